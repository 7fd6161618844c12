"""Model configurations and the decoder they describe."""
