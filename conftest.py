"""Settings that must hold before any test module is imported."""

import importlib.util
import os
import signal

from hypothesis import HealthCheck, settings


def _has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


# Triton reads this when it is imported, and `transformers` may import it before the kernels' own tests do.
if not _has_cuda():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Properties are about results: a busy machine must not fail them.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Programs that tests start inherit that Ctrl-C is ignored, as it is in jobs that a script runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
