import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler.simulation import InvalidTrace, Trace, TraceRow, read_trace, write_trace

HEADER = b"arrival_time_s,prompt_tokens,output_tokens,prefix_group,prefix_tokens\n"

groups = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5).filter(str.isprintable)


@st.composite
def traces(draw):
    times = sorted(draw(st.lists(st.floats(0, 1e9), min_size=1, max_size=8)))
    rows = []
    for time_s in times:
        prompt_tokens = draw(st.integers(1, 2**24))
        group = draw(st.none() | groups)
        prefix_tokens = 0 if group is None else draw(st.integers(1, prompt_tokens))
        rows.append(TraceRow(time_s, prompt_tokens, draw(st.integers(1, 2**24)), group, prefix_tokens))
    return Trace(tuple(rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "T.CSV"])
@given(trace=traces())
def test_what_is_written_is_read_back(folder, name, trace):
    write_trace(folder / name, trace)
    assert read_trace(folder / name) == trace


def test_a_file_may_be_called_by_a_string(tmp_path):
    trace = Trace((TraceRow(0.5, 10, 2),))
    write_trace(str(tmp_path / "t.csv"), trace)
    assert read_trace(str(tmp_path / "t.csv")) == trace


def test_columns_may_stand_in_any_order_and_be_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfoutput_tokens, arrival_time_s,prompt_tokens\r\n 2, 0.5, 10\r\n3,1,11\r\n")
    assert read_trace(path).rows == (TraceRow(0.5, 10, 2), TraceRow(1.0, 11, 3))


def test_a_group_without_length_shares_the_whole_prompt(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"arrival_time_s": 0, "prompt_tokens": 9, "output_tokens": 1, "prefix_group": 7}\n')
    assert read_trace(path).rows == (TraceRow(0, 9, 1, "7", 9),)


def test_names_of_groups_are_not_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER + b"0,9,1,07,\n0,9,1,7,2\n0,9,1,nan,2\n0,9,1,,\n")
    assert [row.prefix_group for row in read_trace(path).rows] == ["07", "7", "nan", None]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (b"0,5,2,,", "arrival_time_s", "0"),
        (b"x,5,2,,", "arrival_time_s", "'x'"),
        (b",5,2,,", "arrival_time_s", "None"),
        (b"nan,5,2,,", "arrival_time_s", "nan"),
        (b"1e999,5,2,,", "arrival_time_s", "inf"),
        (b"1,-5,2,,", "prompt_tokens", "-5"),
        (b"1,5.5,2,,", "prompt_tokens", "5.5"),
        (b"1,0,2,,", "prompt_tokens", "0"),
        (b"1,5,99999999,,", "output_tokens", "99999999"),
        (b"1,5,1_0,,", "output_tokens", "10.0"),
        (b"1,5,2,,4", "prefix_tokens", "4"),
        (b"1,5,2,a,6", "prefix_tokens", "6"),
        (b"1,5,2,a,no", "prefix_tokens", "'no'"),
        (b"1,5,2,a", "it", "'1,5,2,a'"),
        (b"1,5,2,,,", "it", "'1,5,2,,,'"),
        (b"", "it", "''"),
        (b'1,5,2,"a"b,1', "it", ".*"),
        (b"1,5,2,\xff,1", "it", ".*"),
    ],
)
def test_a_bad_line_of_csv_is_named_with_field_and_value(tmp_path, line, field, value):
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER + b"1,5,2,,\n" + line + b"\n1,5,2,,\n")
    with pytest.raises(InvalidTrace, match=rf"^line 3: {field} is {value}, it must be"):
        read_trace(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"arrival_time_s,prompt_tokens\n", "line 1: output_tokens is None, it must be present"),
        (b"arrival_time_s,prompt_tokens,output_tokens,colour\n", "line 1: a field is 'colour'"),
        (b"arrival_time_s,prompt_tokens,output_tokens,prompt_tokens\n", "line 1: a field is 'prompt_tokens'"),
    ],
)
def test_a_bad_header_is_named(tmp_path, header, message):
    path = tmp_path / "t.csv"
    path.write_bytes(header)
    with pytest.raises(InvalidTrace, match=message):
        read_trace(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "it is '{', it must be a JSON object"),
        ("", "it is '', it must be a JSON object"),
        ("[1]", r"it is \[1\], it must be a JSON object"),
        ("[" * 100_000, "it must be a JSON object"),
        ('{"arrival_time_s": 1, "prompt_tokens": 1}', "output_tokens is None"),
        ('{"arrival_time_s": "1", "prompt_tokens": 1, "output_tokens": 1}', "arrival_time_s is '1'"),
        ('{"arrival_time_s": true, "prompt_tokens": 1, "output_tokens": 1}', "arrival_time_s is True"),
        (
            '{"arrival_time_s": 1%s, "prompt_tokens": 1, "output_tokens": 1}' % ("0" * 400),
            "arrival_time_s is 10",
        ),
        ('{"arrival_time_s": 1, "prompt_tokens": true, "output_tokens": 1}', "prompt_tokens is True"),
        ('{"arrival_time_s": 1, "prompt_tokens": 1, "output_tokens": 1.0}', "output_tokens is 1.0"),
        ('{"arrival_time_s": 1, "prompt_tokens": 1, "output_tokens": null}', "output_tokens is None"),
        (
            '{"arrival_time_s": 1, "prompt_tokens": 1, "output_tokens": 1, "prefix_group": [1]}',
            "prefix_group is",
        ),
        ('{"arrival_time_s": 1, "prompt_tokens": 1, "output_tokens": 1, "id": 1}', "a field is 'id'"),
    ],
)
def test_a_bad_line_of_json_is_named_with_field_and_value(tmp_path, line, message):
    path = tmp_path / "t.jsonl"
    path.write_text('{"arrival_time_s": 0.5, "prompt_tokens": 1, "output_tokens": 1}\n' + line + "\n")
    with pytest.raises(InvalidTrace, match=f"^line 2: .*{message}"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", HEADER])
def test_a_trace_without_requests_is_refused(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidTrace, match="at least 1 request"):
        read_trace(path)


def test_other_endings_are_refused(tmp_path):
    for use in (read_trace, lambda path: write_trace(path, Trace([TraceRow(0, 1, 1)]))):
        with pytest.raises(InvalidTrace, match=r"'\.txt', it must be \.csv or \.jsonl"):
            use(tmp_path / "t.txt")
