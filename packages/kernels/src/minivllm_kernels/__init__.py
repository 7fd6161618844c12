"""Triton kernels for LLM inference, each with a plain PyTorch twin.

Every op is a module with a function of its name, imported from there, so that Triton is loaded only by who
launches a kernel:

    from minivllm_kernels.rms_norm import rms_norm              # the Triton op
    from minivllm_kernels.reference.rms_norm import rms_norm    # its twin: any device, no Triton

`errors` holds what the ops raise, `head_norms` what those that rotate take for models that normalize heads,
`decode_step` what one decode op gives and another takes, `gate_up` the order of rows that a gated product wants.
"""

__all__ = [
    "decode_inputs",
    "decode_step",
    "errors",
    "gate_up",
    "gemv",
    "head_norms",
    "paged_decode_attention",
    "paged_prefill_attention",
    "reference",
    "reshape_and_cache",
    "rms_norm",
    "rotary_embedding",
    "rotate_and_cache",
    "sample",
    "sampling_table",
    "silu_and_mul",
    "small_batch_linear",
]
