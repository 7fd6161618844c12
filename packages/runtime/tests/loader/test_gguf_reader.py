import contextlib
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.gguf_reader import GGUFFile

TENSOR = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 255)
    writer.add_int16("i16", -3)
    writer.add_uint64("u64", 2**63)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "größer")
    writer.add_array("words", ["a", "", "日本"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("flags", [True, False])
    writer.add_tensor("matrix", TENSOR)
    writer.add_tensor("row", TENSOR[0].astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_values_of_every_type_come_back(small_file):
    metadata = GGUFFile(small_file).metadata
    assert metadata == {
        "general.architecture": "llama",
        "u8": 255,
        "i16": -3,
        "u64": 2**63,
        "f32": 0.5,
        "f64": 0.1,
        "yes": True,
        "text": "größer",
        "words": ["a", "", "日本"],
        "numbers": [1, -2, 3],
        "flags": [True, False],
    }


def test_tensors_have_row_major_shape_and_their_bytes(small_file):
    file = GGUFFile(small_file)
    matrix = file.tensors["matrix"]
    assert matrix.shape == TENSOR.shape
    assert matrix.format.name == "F32"
    assert np.array_equal(file.read(matrix).view(np.float32).reshape(3, 4), TENSOR)
    row = file.tensors["row"]
    assert np.array_equal(file.read(row).view(np.float16), TENSOR[0])


def test_a_file_cut_anywhere_is_refused(small_file, tmp_path):
    data = small_file.read_bytes()
    last = max(t.offset + t.num_bytes for t in GGUFFile(small_file).tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in range(last):
        cut.write_bytes(data[:length])
        with pytest.raises(ModelLoadError) as caught:
            GGUFFile(cut)
        assert "\n" not in str(caught.value)


@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(small_file, tmp_path_factory, data):
    damaged = bytearray(small_file.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged)
    with contextlib.suppress(ModelLoadError):
        file = GGUFFile(path)
        assert all(file.read(tensor).size == tensor.num_bytes for tensor in file.tensors.values())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(64), "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "larger than the file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "larger than the file"),
        (
            b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"k", 9) + struct.pack("<IQ", 9, 1) * 9,
            "array in an array",
        ),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"k", 13) + bytes(64), "type 13"),
        (b"GGUF" + struct.pack("<IQQQ2sI", 3, 0, 1, 2, b"\xff\xff", 0) + bytes(64), "not UTF-8"),
    ],
)
def test_what_is_no_readable_file_is_named(tmp_path, content, words):
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=words):
        GGUFFile(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="no such file"):
        GGUFFile(tmp_path / "none.gguf")
    with pytest.raises(ModelLoadError, match="cannot read"):
        GGUFFile(tmp_path)


def test_an_unknown_tensor_format_is_refused_by_number(tmp_path):
    path = tmp_path / "iq.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    blocks = np.zeros((2, 66), dtype=np.uint8)
    writer.add_tensor("t", blocks, raw_dtype=gguf.GGMLQuantizationType.IQ2_XXS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match="format 16"):
        GGUFFile(path)
