"""RooflineCost: the time that a device's sheet and a model's shape allow, with nothing measured.

A step takes as long as its arithmetic at the peak rate or its memory traffic at the peak bandwidth, whichever
is longer (Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", 2009).
"""

from dataclasses import dataclass, fields

from minivllm_scheduler.simulation.cost import StepLoad
from minivllm_scheduler.simulation.errors import InvalidCost, require_at_least, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSheet:
    """What a device can do.

    Attributes:
        flops_per_s: Dense multiply-accumulates count twice; without sparsity, in the model's precision.
        bytes_per_s: Memory bandwidth.
        compute_efficiency: Share of `flops_per_s` that is reached, in (0, 1].
        bandwidth_efficiency: Share of `bytes_per_s` that is reached, in (0, 1].
        step_overhead_s: Of every step, on top: launches, sampling, the host.

    Raises:
        InvalidCost: A value is outside its limits.
    """

    flops_per_s: float
    bytes_per_s: float
    compute_efficiency: float = 1.0
    bandwidth_efficiency: float = 1.0
    step_overhead_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops_per_s", "bytes_per_s", "compute_efficiency", "bandwidth_efficiency"):
            require_positive(name, getattr(self, name), InvalidCost)
        for name in ("compute_efficiency", "bandwidth_efficiency"):
            if getattr(self, name) > 1:
                raise InvalidCost(f"{name} is {getattr(self, name)}, it must be at most 1")
        require_at_least("step_overhead_s", self.step_overhead_s, 0, InvalidCost)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A Llama-like decoder: grouped-query attention, gated MLP.

    Attributes:
        num_layers: Decoder layers.
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside the MLP.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        vocab_size: Rows of the head's matrix.
        bytes_per_weight: 2 for bfloat16, 1 for int8.
        bytes_per_kv_element: 2 for bfloat16.

    Raises:
        InvalidCost: A value is not above 0.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    bytes_per_weight: float = 2.0
    bytes_per_kv_element: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            require_positive(field.name, getattr(self, field.name), InvalidCost)

    @property
    def num_layer_weights(self) -> int:
        """Weights of all layers' projections: q, k, v, o, gate, up, down."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden_size * (attention + 3 * self.intermediate_size)

    @property
    def num_head_weights(self) -> int:
        """Weights of the projection to logits."""
        return self.hidden_size * self.vocab_size

    @property
    def kv_bytes_per_token(self) -> float:
        """KV cache that one token takes: keys and values of all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.bytes_per_kv_element


class RooflineCost:
    """The time of a step on `device` for `model`, both read once.

    Counted are the projections, the attention scores and values, every weight read once a step, and the KV
    read and written; embedding rows, norms and activations are left out.

    Args:
        device: Its sheet.
        model: Its shape.
    """

    __slots__ = (
        "_bytes_per_s",
        "_flops_per_pair",
        "_flops_per_s",
        "_flops_per_sample",
        "_flops_per_token",
        "_kv_bytes_per_token",
        "_overhead_s",
        "_weight_bytes",
    )

    def __init__(self, device: DeviceSheet, model: ModelShape) -> None:
        self._flops_per_s = device.flops_per_s * device.compute_efficiency
        self._bytes_per_s = device.bytes_per_s * device.bandwidth_efficiency
        self._overhead_s = device.step_overhead_s
        self._flops_per_token = 2 * model.num_layer_weights
        self._flops_per_sample = 2 * model.num_head_weights
        self._flops_per_pair = 4 * model.num_layers * model.num_heads * model.head_dim
        self._weight_bytes = (model.num_layer_weights + model.num_head_weights) * model.bytes_per_weight
        self._kv_bytes_per_token = model.kv_bytes_per_token

    def step_s(self, load: StepLoad) -> float:
        """Seconds of a step."""
        flops = (
            self._flops_per_token * load.num_tokens
            + self._flops_per_sample * load.num_samples
            + self._flops_per_pair * load.num_attention_pairs
        )
        moved_bytes = self._weight_bytes + self._kv_bytes_per_token * (
            load.num_context_tokens + load.num_tokens
        )
        return self._overhead_s + max(flops / self._flops_per_s, moved_bytes / self._bytes_per_s)
