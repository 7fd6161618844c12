"""Settings that must hold before any test module is imported."""

import os

import torch

# Triton reads this when it is imported, and `transformers` may import it before the kernels' own tests do.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
