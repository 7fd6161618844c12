from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.join_outputs import join_outputs
from minivllm_runtime.messages import TokenLogprobs, TokenOutput
from minivllm_scheduler import FinishReason

SCORE = TokenLogprobs(-1.0, 1, ())


def output(*token_ids, **changes):
    return TokenOutput(
        "a", token_ids, **{"finish_reason": None, "num_cached_tokens": 4, "error": None, **changes}
    )


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=9), st.booleans())
def test_ids_and_their_log_probabilities_are_those_of_all(steps, wants_logprobs):
    joined = join_outputs(
        [output(*ids, logprobs=(SCORE,) * len(ids) if wants_logprobs else None) for ids in steps]
    )
    assert joined.token_ids == tuple(token_id for ids in steps for token_id in ids)
    assert joined.logprobs == ((SCORE,) * len(joined.token_ids) if wants_logprobs else None)


def test_one_output_is_itself():
    alone = output(1)
    assert join_outputs([alone]) is alone


def test_the_last_one_says_how_it_ended_and_the_first_one_how_the_prompt_scored():
    joined = join_outputs(
        [
            output(1, logprobs=(SCORE,), prompt_logprobs=(SCORE, SCORE)),
            output(2, logprobs=(SCORE,)),
            output(finish_reason=FinishReason.ERROR, num_cached_tokens=0, error="no luck"),
        ]
    )
    assert joined == TokenOutput(
        "a", (1, 2), FinishReason.ERROR, 0, "no luck", (SCORE, SCORE), (SCORE, SCORE)
    )
