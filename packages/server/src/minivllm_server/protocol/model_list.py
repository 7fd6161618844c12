"""`GET /v1/models`."""

from typing import Literal

from pydantic import BaseModel


class ModelCard(BaseModel):
    """A served model.

    Attributes:
        created: Unix time at which the server started.
        max_model_len: Most tokens of one request, prompt included.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "minivllm"
    max_model_len: int


class ModelList(BaseModel):
    """All names the model is served under."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
