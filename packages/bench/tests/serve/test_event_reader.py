from hypothesis import given
from hypothesis import strategies as st

from minivllm_bench.serve.event_reader import EventReader

STREAM = b': ping\n\ndata: {"a": 1}\n\nevent: x\r\ndata:{"b": 2}\r\n\r\nid: 3\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_the_body_is_cut(cuts):
    reader = EventReader()
    ends = [*sorted(cuts), len(STREAM)]
    starts = [0, *ends[:-1]]
    found = [
        event for start, end in zip(starts, ends, strict=True) for event in reader.feed(STREAM[start:end])
    ]
    assert found == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]


def test_an_event_counts_once_its_line_is_complete():
    reader = EventReader()
    assert reader.feed(b"data: 1") == []
    assert reader.feed(b"2\n") == [b"12"]
