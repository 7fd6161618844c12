"""Building blocks of a decoder, each for CPU and CUDA tensors."""
