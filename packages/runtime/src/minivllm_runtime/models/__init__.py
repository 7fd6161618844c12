"""The decoder that a model configuration describes."""
