"""What an engine process tells its parent while it starts: one line of JSON on its standard output for each."""

import msgspec

from minivllm_runtime.model_config import ModelConfig


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Progress of one stage."""

    stage: str
    done: int
    total: int


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The model is there and fits the settings as far as can be told without its weights, which come next."""

    model_config: ModelConfig


class SettingRefused(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot be built because of a setting, see InvalidParameter; the process ends."""

    param: str
    message: str


class ModelRefused(msgspec.Struct, frozen=True, tag=True):
    """The model cannot be loaded, see ModelLoadError; the process ends."""

    message: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Clients may connect to `address`."""

    address: str


Announcement = Loading | Opened | SettingRefused | ModelRefused | Ready

decode_announcement = msgspec.json.Decoder(Announcement).decode
