import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_server.json_response import AsciiJSONResponse, to_json


@given(st.text())
def test_every_text_survives_as_one_ascii_line(text):
    encoded = to_json({"text": text})
    assert json.loads(encoded) == {"text": text}
    assert encoded.isascii()
    assert len(encoded.splitlines()) == 1


def test_line_separators_are_escaped_in_responses():
    assert AsciiJSONResponse({"t": "\u2028é"}).body == b'{"t":"\\u2028\\u00e9"}'


def test_nan_is_no_json():
    with pytest.raises(ValueError, match="JSON"):
        to_json(float("nan"))
