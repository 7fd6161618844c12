"""Triton kernels for LLM inference, each with a plain PyTorch twin."""
