"""The endpoints, one per file."""
