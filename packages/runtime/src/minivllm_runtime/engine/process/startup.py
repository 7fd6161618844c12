"""What an engine process tells its parent while it starts: one line of JSON on its standard output for each."""

from typing import Literal

import msgspec

from minivllm_runtime.models.model_config import ModelConfig


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Progress of one stage."""

    stage: str
    done: int
    total: int


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The model is there and fits the settings as far as can be told without its weights, which come next."""

    model_config: ModelConfig


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot be built; the process ends. `param` belongs to an InvalidParameter."""

    error: Literal["InvalidParameter", "ModelLoadError"]
    message: str
    param: str = ""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Clients may connect to `address`."""

    address: str


Announcement = Loading | Opened | Failed | Ready

decode_announcement = msgspec.json.Decoder(Announcement).decode
