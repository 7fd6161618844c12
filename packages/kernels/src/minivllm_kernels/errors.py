"""Everything this package raises on purpose.

KernelError
├── InvalidTensor (ValueError)   a tensor's shape, dtype or layout does not fit the op
└── CpuKernelsUnavailable        the C kernels need a processor or a compiler that is not there
"""


class KernelError(Exception):
    """Base of all errors that the kernels raise on purpose."""


class InvalidTensor(KernelError, ValueError):
    """A tensor does not fit the op; the message names the tensor, what it has and what is needed."""


class CpuKernelsUnavailable(KernelError):
    """The C kernels cannot run on this machine; the message says what is missing."""
