import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from minivllm_server.violations import describe_violation


class Body(BaseModel):
    number: int = Field(1, le=9)
    numbers: list[int] = []
    text: str = Field("", max_length=3)
    needed: int
    pair: tuple[int, int] | None = None

    @field_validator("pair")
    @classmethod
    def _refuse_disorder(cls, pair):
        if pair is not None and pair[0] > pair[1]:
            raise ValueError(f"{pair[0]} comes after {pair[1]}")
        return pair


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        ({}, "needed: Field required"),
        ({"needed": 1, "number": 10}, "number: Input should be less than or equal to 9, got 10"),
        (
            {"needed": 1, "numbers": [1, "a"]},
            "numbers[1]: Input should be a valid integer, got 'a'",
        ),
        ({"needed": [1] * 5000}, "needed: Input should be a valid integer, got list of length 5000"),
        ({"needed": 1, "pair": [2, 1]}, "pair: 2 comes after 1"),
    ],
)
def test_a_violation_is_one_line_with_field_rule_and_value(sent, line):
    with pytest.raises(ValidationError) as caught:
        Body.model_validate(sent)
    violation = caught.value.errors()[0]
    assert describe_violation(violation, violation["loc"]) == line


def test_a_long_value_is_cut():
    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"needed": 1, "text": "x" * 10**6})
    violation = caught.value.errors()[0]
    assert len(describe_violation(violation, violation["loc"])) < 200
