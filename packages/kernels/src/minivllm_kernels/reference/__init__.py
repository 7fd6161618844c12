"""Plain-PyTorch twins of the ops: dense, obvious, on any device, without Triton.

Each module has the name of its op and a function of the same signature: `reference.rms_norm.rms_norm` says
what `minivllm_kernels.rms_norm.rms_norm` must compute. They are written to be read and to test against, not
to be fast.
"""

__all__ = [
    "decode_inputs",
    "gemv",
    "paged_decode_attention",
    "paged_prefill_attention",
    "reshape_and_cache",
    "rms_norm",
    "rotary_embedding",
    "rotate_and_cache",
    "sample",
    "silu_and_mul",
    "small_batch_linear",
]
