"""What all parts of requests have in common."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A part of a request: no booleans as numbers, no numbers as strings, no NaN; unknown fields are ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="ignore", frozen=True, allow_inf_nan=False
    )
