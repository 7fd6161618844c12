"""What goes over the socket between an engine process and its clients: a kind, and msgpack of what belongs to it."""

from enum import Enum

import msgspec

from minivllm_runtime.messages import AbortRequest, AddRequests, AskStats, EngineStats, StepOutput
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import TokenizerParts


class ToEngine(bytes, Enum):
    """Kinds of messages of a client. All of one client arrive in order."""

    DESCRIBE = b"describe"  # empty; answered by DESCRIPTION
    HELLO = b"hello"  # empty; from now on the client hears of the engine's state
    ADD = b"add"  # AddRequests
    ABORT = b"abort"  # AbortRequest
    ASK = b"ask"  # AskStats


class FromEngine(bytes, Enum):
    """Kinds of messages of the engine."""

    DESCRIPTION = b"description"  # EngineDescription
    OUTPUT = b"output"  # StepOutput, cut to what belongs to the client
    DEATH = b"death"  # the reason, a string; nothing follows


class EngineDescription(msgspec.Struct, frozen=True):
    """What a client has to know of an engine; see connection.Engine."""

    tokenizer: TokenizerParts
    model_config: ModelConfig
    dtype_name: str
    device_name: str
    kernels: str
    num_blocks: int
    block_size: int
    max_model_len: int
    stats: EngineStats


encode = msgspec.msgpack.encode
decode_add = msgspec.msgpack.Decoder(AddRequests).decode
decode_abort = msgspec.msgpack.Decoder(AbortRequest).decode
decode_ask = msgspec.msgpack.Decoder(AskStats).decode
decode_output = msgspec.msgpack.Decoder(StepOutput).decode
decode_description = msgspec.msgpack.Decoder(EngineDescription).decode
decode_reason = msgspec.msgpack.Decoder(str).decode
