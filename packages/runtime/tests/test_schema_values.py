import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import schema_text

NO_COUNTS = [-1, 1.0, "1", None, True, [], 2**31]
NO_BOUNDS = ["1", None, True, []]


@pytest.mark.parametrize(
    ("kind", "keyword", "values"),
    [
        *(("string", keyword, NO_COUNTS) for keyword in ("minLength",)),
        *(("array", keyword, NO_COUNTS) for keyword in ("minItems",)),
        *(("object", keyword, NO_COUNTS) for keyword in ("minProperties", "maxProperties")),
        *(
            (kind, keyword, NO_COUNTS[:-1])
            for kind, keyword in (("string", "maxLength"), ("array", "maxItems"))
        ),
        *(("string", keyword, [1, None, [], {}]) for keyword in ("pattern", "format")),
        ("object", "required", ["a", {}, [1], ["a", None]]),
        *(
            ("integer", keyword, [*NO_BOUNDS, 2**63, -(2**63) - 1, 1e30, float(-(2**63))])
            for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        ),
        *(
            ("number", keyword, [*NO_BOUNDS, 2**53 + 1, 10**299])
            for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        ),
        *((kind, "multipleOf", [*NO_BOUNDS, 0, -1.5]) for kind in ("integer", "number")),
    ],
)
def test_a_keyword_with_a_value_of_another_form_is_refused(kind, keyword, values):
    for value in values:
        for schema in ({"type": kind, keyword: value}, {"type": ["null", kind], keyword: value}):
            for is_strict in (True, False):
                with pytest.raises(
                    InvalidParameter, match=f"json_schema has a wrong {keyword}: it must be "
                ) as refusal:
                    schema_text({"items": schema}, is_strict=is_strict)
                assert refusal.value.param == "json_schema"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 2**31 - 1, "maxLength": 2**40},
        {"type": "array", "items": {}, "maxItems": 2**40},
        {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        {"type": "number", "minimum": -(2**70), "maximum": 1e300},
        {"type": "number", "minimum": 0.1, "maximum": 0.1},
        {"const": [2**63 - 1, {"a": 2**70}, 1e300, True]},
        {"type": "object", "minLength": "of no string"},
        {"$defs": {"never read": {"type": "string", "minLength": "x"}}},
    ],
)
def test_values_at_their_limits_and_those_that_nobody_reads_are_accepted(schema):
    assert schema_text(schema)


@pytest.mark.parametrize("types", [1, None, [], {}, [1]])
def test_a_type_that_is_none_is_refused(types):
    with pytest.raises(InvalidParameter, match="wrong type"):
        schema_text({"items": {"type": types}})


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 1e-7, "maximum": 2e-7},
        {"exclusiveMinimum": 0, "maximum": 1e-7},
        {"exclusiveMinimum": -4e-7, "maximum": -1e-7},
        {"exclusiveMinimum": 0.1, "exclusiveMaximum": 0.100001},
        {"exclusiveMinimum": 1, "maximum": 1},
        {"minimum": 2, "maximum": 1},
    ],
)
@pytest.mark.parametrize("is_strict", [True, False])
def test_bounds_that_no_number_that_is_written_keeps_are_refused(bounds, is_strict):
    with pytest.raises(InvalidParameter, match="no number of at most 6 decimals") as refusal:
        schema_text({"items": {"type": "number", **bounds}}, is_strict=is_strict)
    assert all(keyword in str(refusal.value) for keyword in bounds)


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63) - 1, 10**299])
def test_a_constant_that_would_be_rounded_is_refused(number):
    for schema in ({"const": {"a": [number]}}, {"enum": ["a", number]}):
        with pytest.raises(InvalidParameter, match=f"constant {str(number)[:40]}.*64 bits"):
            schema_text({"items": schema})
