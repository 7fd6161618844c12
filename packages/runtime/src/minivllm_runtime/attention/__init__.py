"""Attention over the paged KV cache, heads rotated: the interface and its CPU and CUDA implementations."""
