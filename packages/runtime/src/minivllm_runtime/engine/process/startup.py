"""What an engine process tells its parent: one line of JSON on its standard output for each.

All but log records belong to the start and end with Ready or a refusal.
"""

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


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A log record.

    Attributes:
        logger: Name of the logger.
        level: As in `logging`.
        created_s: Seconds since the epoch.
        message: Without open arguments.
        traceback: Of the exception that the record is about.
    """

    logger: str
    level: int
    created_s: float
    message: str
    traceback: str | None


Announcement = Loading | Opened | SettingRefused | ModelRefused | Ready | Logged

decode_announcement = msgspec.json.Decoder(Announcement).decode
