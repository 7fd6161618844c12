"""Typed access to the values of a configuration that someone else wrote."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from minivllm_runtime.errors import ModelLoadError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """A mapping from a file whose values are checked when they are asked for.

    A key that is null counts as absent. An accessor without a default raises ModelLoadError when the key is
    absent; all of them raise it, naming file, key and value, when the value has the wrong type.

    Attributes:
        source: Where the mapping stands, for messages.
        values: The mapping.
    """

    source: str
    values: Mapping[str, Any]

    @classmethod
    def from_file(cls, path: Path) -> "ConfigFields":
        """The JSON object in a file.

        Raises:
            ModelLoadError: the file is missing, unreadable or holds no JSON object.
        """
        try:
            values = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ModelLoadError(f"no such file: {path}") from None
        except OSError as error:
            raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ModelLoadError(f"{path} is damaged: {error}") from error
        if not isinstance(values, dict):
            raise ModelLoadError(f"{path} is damaged: it holds no JSON object")
        return cls(str(path), values)

    def empty(self) -> "ConfigFields":
        """An object of the same source without any key."""
        return ConfigFields(self.source, {})

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value; null if it is null, `default` only if the key is missing."""
        return self.values.get(key, default)

    def nested(self, key: str) -> "ConfigFields | None":
        """The object under `key`, None if absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return ConfigFields(f"{self.source}, {key}", value)

    def flag(self, key: str) -> bool:
        """A boolean, false if absent."""
        value = self.values.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def optional_int(self, key: str) -> int | None:
        """An integer of at least 0, None if absent."""
        value = self.values.get(key)
        if value is not None and (not _is_int(value) or value < 0):
            raise self._wrong(key, "an integer of at least 0")
        return value

    def positive_int(self, key: str, default: int | None = None) -> int:
        """An integer of at least 1."""
        value = self._value(key, default)
        if not _is_int(value) or value < 1:
            raise self._wrong(key, "an integer of at least 1")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self._value(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise self._wrong(key, "a positive number")
        return float(value)

    def int_list(self, key: str) -> tuple[int, ...]:
        """One integer or a list of them, as a tuple; empty if absent."""
        value = self.values.get(key)
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(_is_int(item) and item >= 0 for item in items):
            raise self._wrong(key, "an integer or a list of integers")
        return tuple(items)

    def array(self, key: str, kind: type[T]) -> list[T]:
        """A list whose items are all of one type, empty if absent."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise ModelLoadError(f"{self.source}: {key} must be a list of items of type {kind.__name__}")
        return value

    def _value(self, key: str, default: float | None) -> Any:
        value = self.values.get(key)
        if value is None and default is None:
            raise ModelLoadError(f"{self.source} lacks {key}")
        return default if value is None else value

    def _wrong(self, key: str, expected: str) -> ModelLoadError:
        return ModelLoadError(f"{self.source}: {key} must be {expected}, got {self.values.get(key)!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
