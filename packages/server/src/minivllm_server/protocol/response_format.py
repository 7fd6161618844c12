"""`response_format` of chats: text, any JSON object, or JSON that follows a schema."""

from typing import Annotated, Any, Literal

from pydantic import Field

from minivllm_server.protocol.json_schema import JsonSchema
from minivllm_server.protocol.strict import StrictModel


class TextFormat(StrictModel):
    """Anything."""

    type: Literal["text"]

    def sampling_fields(self) -> dict[str, Any]:
        """Returns what this is in `SamplingParams`."""
        return {}


class JsonObjectFormat(StrictModel):
    """A JSON object."""

    type: Literal["json_object"]

    def sampling_fields(self) -> dict[str, Any]:
        """Returns what this is in `SamplingParams`."""
        return {"json_object": True}


class NamedSchema(StrictModel):
    """A schema with a name, which says nothing to the model."""

    name: str | None = None
    json_schema: JsonSchema = Field(alias="schema")


class JsonSchemaFormat(StrictModel):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema

    def sampling_fields(self) -> dict[str, Any]:
        """Returns what this is in `SamplingParams`."""
        return {"json_schema": self.json_schema.json_schema}


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
