"""`response_format`: text, any JSON object, or JSON that follows a schema."""

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
    """A schema with a name, which says nothing to the model.

    Attributes:
        strict: True refuses keywords of the schema that cannot be enforced; else they are ignored, as OpenAI has it.
    """

    name: str | None = None
    json_schema: JsonSchema = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(StrictModel):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema

    def sampling_fields(self) -> dict[str, Any]:
        """Returns what this is in `SamplingParams`."""
        named = self.json_schema
        return {"json_schema": named.json_schema, "strict_schema": named.strict is True}


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
