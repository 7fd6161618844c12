"""The error envelope."""

from typing import Literal

from pydantic import BaseModel


class ErrorDetails(BaseModel):
    """What went wrong.

    Attributes:
        message: For a person.
        type: Whose fault it is.
        param: The field of the request that is to blame.
        code: For a program.
    """

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """The body of every answer that is no success, and the last event of a stream that failed."""

    error: ErrorDetails
