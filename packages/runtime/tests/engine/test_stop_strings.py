from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.stop_strings import StopStringMatcher

TEXT = st.text(alphabet="ab\n", max_size=4)
PIECES = st.lists(TEXT, max_size=12)
STOPS = st.lists(TEXT.filter(bool), min_size=1, max_size=4)


def feed(stops, pieces):
    """Safe pieces, the rest and the stop string, as a reader gets them."""
    matcher = StopStringMatcher(stops)
    shown = []
    for piece in pieces:
        safe, stop = matcher.push(piece)
        shown.append(safe)
        if stop is not None:
            return shown, "", stop
    return shown, matcher.flush(), None


def search(stops, pieces):
    """The same by searching the whole text anew after each piece."""
    text = ""
    for piece in pieces:
        text += piece
        found = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
        if found:
            start, _, stop = min(found)
            return text[:start], stop
    return text, None


def test_a_stop_string_that_spans_pieces_never_leaks():
    assert feed(["two three"], ["one t", "wo th", "ree"]) == (["one ", "", ""], "", "two three")
    assert feed(["MNOPQR"], ["MN", "O", "PQ", "R"]) == (["", "", "", ""], "", "MNOPQR")
    assert feed(["\n\n"], ["text", "\n", "\n", "more"]) == (["text", "", ""], "", "\n\n")


def test_held_text_is_released_as_soon_as_no_match_is_possible():
    assert feed(["MNOPQZ"], ["MN", "O", "PQ", "R"]) == (["", "", "", "MNOPQR"], "", None)
    assert feed(["aab"], ["aaa", "a"]) == (["a", "a"], "aa", None)


def test_the_leftmost_match_cuts_and_of_equal_starts_the_shortest():
    assert feed(["lo wor", "hello world"], ["say hello world"]) == (["say "], "", "hello world")
    assert feed(["abc", "ab"], ["xabc"]) == (["x"], "", "ab")
    assert feed(["c", "b"], ["abc"]) == (["a"], "", "b")


def test_no_stop_strings_let_everything_pass():
    assert feed([], ["a", "", "b"]) == (["a", "", "b"], "", None)


def test_a_match_that_may_not_stop_passes_and_one_that_reaches_beyond_it_counts():
    matcher = StopStringMatcher(["aba"])
    assert matcher.push("xaba", may_stop=False) == ("xab", None)
    assert matcher.push("ba") == ("", "aba")


def test_stop_strings_longer_than_any_text_cost_next_to_nothing():
    stops = ["ab" * 2_000_000 + end for end in "cdef"]
    for _ in range(1000):
        assert feed(stops, ["ab", "aab", "b"]) == (["", "aba", "abb"], "", None)


@given(STOPS, PIECES)
def test_the_shown_text_is_what_a_search_of_the_whole_text_gives(stops, pieces):
    shown, rest, stop = feed(stops, pieces)
    assert ("".join(shown) + rest, stop) == search(stops, pieces)


@given(STOPS, PIECES)
def test_only_the_longest_tail_that_begins_a_stop_string_is_held(stops, pieces):
    shown, _, stop = feed(stops, pieces)
    if stop is None:
        text = "".join(pieces)
        tails = (text[start:] for start in range(len(text) + 1))
        held = next(tail for tail in tails if any(s != tail and s.startswith(tail) for s in stops))
        assert "".join(shown) + held == text
