import pytest

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.config_fields import ConfigFields


def fields(**values: object) -> ConfigFields:
    return ConfigFields("config.json", values)


def test_values_of_the_right_type_come_back():
    given = fields(
        count=3, ratio=0.5, on=True, ids=[1, 2], single=7, names=["a"], inner={"x": 1}, nothing=None
    )
    assert given.positive_int("count") == 3
    assert given.number("count") == 3.0
    assert given.number("ratio") == 0.5
    assert given.flag("on") is True
    assert given.int_list("ids") == (1, 2)
    assert given.int_list("single") == (7,)
    assert given.array("names", str) == ["a"]
    assert given.nested("inner") == ConfigFields("config.json, inner", {"x": 1})
    assert given.optional_int("single") == 7


@pytest.mark.parametrize("key", ["nothing", "missing"])
def test_null_counts_as_absent(key):
    given = fields(nothing=None)
    assert given.positive_int(key, 5) == 5
    assert given.number(key, 0.5) == 0.5
    assert given.flag(key) is False
    assert given.int_list(key) == ()
    assert given.array(key, int) == []
    assert given.nested(key) is None
    assert given.optional_int(key) is None
    with pytest.raises(ModelLoadError, match=f"config.json lacks {key}"):
        given.positive_int(key)


@pytest.mark.parametrize(
    ("accessor", "value"),
    [
        ("positive_int", 0),
        ("positive_int", True),
        ("positive_int", "8"),
        ("positive_int", 1.5),
        ("number", 0),
        ("number", -1.0),
        ("number", float("inf")),
        ("number", "1"),
        ("flag", 1),
        ("flag", "true"),
        ("optional_int", -1),
        ("optional_int", False),
        ("int_list", [1, "2"]),
        ("int_list", [-1]),
        ("nested", [1]),
    ],
)
def test_a_value_of_the_wrong_type_is_named(accessor, value):
    with pytest.raises(ModelLoadError) as caught:
        getattr(fields(key=value), accessor)("key")
    assert "config.json: key must be" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [[1, "a"], "ab", {"a": 1}])
def test_an_array_of_mixed_items_or_none_at_all_is_refused(value):
    with pytest.raises(ModelLoadError, match="key must be a list of items of type str"):
        fields(key=value).array("key", str)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"a": 1}}', b"[" * 100_000])
def test_a_file_that_holds_no_object_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match="is damaged") as caught:
        ConfigFields.from_file(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="no such file"):
        ConfigFields.from_file(tmp_path / "config.json")
    with pytest.raises(ModelLoadError, match="cannot read"):
        ConfigFields.from_file(tmp_path)
