"""Checkpoints of every format, and how they become parameters and tokenizers."""
