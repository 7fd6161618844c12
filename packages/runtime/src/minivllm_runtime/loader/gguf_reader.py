"""Reads the header of a GGUF file: metadata and where each tensor lies.

The layout is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The tensor data stays on
disk, mapped into memory, until someone asks for it.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minivllm_runtime.errors import ModelLoadError

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

Value = int | float | bool | str | list["Value"]
"""A metadata value; arrays are lists."""


class ValueType(IntEnum):
    """Type codes of metadata values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALARS = {
    ValueType.UINT8: "<u1",
    ValueType.INT8: "<i1",
    ValueType.UINT16: "<u2",
    ValueType.INT16: "<i2",
    ValueType.UINT32: "<u4",
    ValueType.INT32: "<i4",
    ValueType.FLOAT32: "<f4",
    ValueType.BOOL: "?",
    ValueType.UINT64: "<u8",
    ValueType.INT64: "<i8",
    ValueType.FLOAT64: "<f8",
}


class GGMLFormat(NamedTuple):
    """How a tensor is stored: blocks of `block_size` elements, `block_bytes` bytes each."""

    name: str
    block_size: int
    block_bytes: int


FORMATS: Mapping[int, GGMLFormat] = {
    0: GGMLFormat("F32", 1, 4),
    1: GGMLFormat("F16", 1, 2),
    2: GGMLFormat("Q4_0", 32, 18),
    3: GGMLFormat("Q4_1", 32, 20),
    6: GGMLFormat("Q5_0", 32, 22),
    7: GGMLFormat("Q5_1", 32, 24),
    8: GGMLFormat("Q8_0", 32, 34),
    10: GGMLFormat("Q2_K", 256, 84),
    11: GGMLFormat("Q3_K", 256, 110),
    12: GGMLFormat("Q4_K", 256, 144),
    13: GGMLFormat("Q5_K", 256, 176),
    14: GGMLFormat("Q6_K", 256, 210),
    30: GGMLFormat("BF16", 1, 2),
}
"""The formats that can be read, by their code in the file."""


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies.

    Attributes:
        name: As in the file, for example "blk.0.attn_q.weight".
        shape: Row-major, the slowest dimension first (the file lists them the other way round).
        format: Storage format.
        offset: First byte, from the start of the file.
        num_bytes: Bytes of storage.
    """

    name: str
    shape: tuple[int, ...]
    format: GGMLFormat
    offset: int
    num_bytes: int


class GGUFFile:
    """An open GGUF file, mapped into memory.

    Attributes:
        path: The file.
        metadata: Key to value, as written.
        tensors: Name to location, in file order.

    Raises:
        ModelLoadError: the file is missing, no GGUF file, damaged, cut short or of an unsupported kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map_file(path)
        cursor = _Cursor(path, self._data)
        if cursor.take(4) != MAGIC:
            raise ModelLoadError(f"{path} is not a GGUF file")
        version = cursor.u32()
        if version not in SUPPORTED_VERSIONS:
            raise ModelLoadError(
                f"{path} has GGUF version {version}; versions 2 and 3 (little-endian) can be read"
            )
        num_tensors, num_values = cursor.u64(), cursor.u64()
        self.metadata: Mapping[str, Value] = cursor.metadata(num_values)
        self.tensors: Mapping[str, GGUFTensor] = cursor.tensors(num_tensors, self._alignment())

    def read(self, tensor: GGUFTensor) -> npt.NDArray[np.uint8]:
        """The stored bytes [num_bytes] of `tensor`, a view of the mapped file."""
        return np.frombuffer(self._data, dtype=np.uint8, count=tensor.num_bytes, offset=tensor.offset)

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelLoadError(f"{self.path} is damaged: general.alignment is {alignment!r}")
        return alignment


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except FileNotFoundError:
        raise ModelLoadError(f"no such file: {path}") from None
    except ValueError:  # an empty file cannot be mapped
        raise ModelLoadError(f"{path} is empty") from None
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error


class _Cursor:
    """Walks the header; every read is checked against the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._position = 0

    def take(self, num_bytes: int) -> bytes:
        start = self._advance(num_bytes)
        return self._data[start : self._position]

    def u32(self) -> int:
        return int(struct.unpack_from("<I", self._data, self._advance(4))[0])

    def u64(self) -> int:
        return int(struct.unpack_from("<Q", self._data, self._advance(8))[0])

    def string(self) -> str:
        try:
            return self.take(self.u64()).decode()
        except UnicodeDecodeError:
            raise self._damaged("a string is not UTF-8") from None

    def metadata(self, count: int) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for _ in range(self._bounded(count)):
            key = self.string()
            values[key] = self._value(self.u32())
        return values

    def tensors(self, count: int, alignment: int) -> dict[str, GGUFTensor]:
        headers = [
            (self.string(), self._shape(), self._format(), self.u64()) for _ in range(self._bounded(count))
        ]
        data_start = math.ceil(self._position / alignment) * alignment
        tensors = {}
        for name, shape, ggml_format, offset in headers:
            if shape[-1] % ggml_format.block_size:
                raise self._damaged(
                    f"rows of {name} are {shape[-1]} long, not whole {ggml_format.name} blocks"
                )
            num_bytes = math.prod(shape) // ggml_format.block_size * ggml_format.block_bytes
            start = data_start + offset
            if start + num_bytes > self._size:
                raise ModelLoadError(
                    f"{self._path} is cut short: {name} ends at {start + num_bytes}, the file at {self._size}"
                )
            tensors[name] = GGUFTensor(name, shape, ggml_format, start, num_bytes)
        return tensors

    def _shape(self) -> tuple[int, ...]:
        rank = self.u32()
        if not 1 <= rank <= MAX_DIMENSIONS:
            raise self._damaged(f"a tensor has {rank} dimensions")
        shape = tuple(reversed([self.u64() for _ in range(rank)]))
        if 0 in shape:
            raise self._damaged(f"a tensor has the shape {list(shape)}")
        return shape

    def _format(self) -> GGMLFormat:
        code = self.u32()
        if code not in FORMATS:
            known = ", ".join(ggml_format.name for ggml_format in FORMATS.values())
            raise ModelLoadError(
                f"{self._path} stores a tensor in GGML format {code}; known formats: {known}"
            )
        return FORMATS[code]

    def _value(self, code: int) -> Value:
        if code == ValueType.STRING:
            return self.string()
        if code == ValueType.ARRAY:
            return self._array()
        return self._scalars(code, 1)[0]

    def _array(self) -> list[Value]:
        code, count = self.u32(), self.u64()
        if code == ValueType.STRING:
            return [self.string() for _ in range(self._bounded(count))]
        return self._scalars(code, count)

    def _scalars(self, code: int, count: int) -> list[Value]:
        if code not in _SCALARS:
            raise self._damaged(f"a value has the type {code}, which is none, or an array in an array")
        dtype = np.dtype(_SCALARS[ValueType(code)])
        start = self._advance(count * dtype.itemsize)
        values: list[Value] = np.frombuffer(self._data, dtype=dtype, count=count, offset=start).tolist()
        return values

    def _bounded(self, count: int) -> int:
        """Passes `count` on if so many items can be in the rest of the file; a damaged one would run on."""
        if count > self._size - self._position:
            raise self._damaged(f"a count of {count} is larger than the file")
        return count

    def _advance(self, num_bytes: int) -> int:
        start = self._position
        if num_bytes > self._size - start:
            raise ModelLoadError(
                f"{self._path} is cut short or damaged: the header ends at byte {self._size}"
            )
        self._position = start + num_bytes
        return start

    def _damaged(self, what: str) -> ModelLoadError:
        return ModelLoadError(f"{self._path} is damaged: {what}")
