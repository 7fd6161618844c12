import subprocess
import sys

import pytest

from minivllm_runtime.engine.output_processor import OutputProcessor
from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.messages import EngineRequest, TokenOutput
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_scheduler import FinishReason

from ..scripted.byte_level import byte_level_tokenizer

BAD_ID = 258


class FaultyTokenizer(Tokenizer):
    """Fails on one token id, as a damaged vocabulary would."""

    def token_bytes(self, token_id):
        if token_id == BAD_ID:
            raise ValueError("no such token")
        return super().token_bytes(token_id)


@pytest.fixture
def processor(byte_tokenizer):
    return OutputProcessor(byte_tokenizer)


def requests(*request_ids):
    return [EngineRequest(request_id=i, prompt_token_ids=(1,), max_tokens=8) for i in request_ids]


def output(request_id, text, finish_reason=None, error=None):
    return TokenOutput(request_id, tuple(text), finish_reason, 0, error)


def register(processor, submission_id, request_ids, **params):
    processor.register(submission_id, requests(*request_ids), SamplingParams(**params))


def test_each_submission_gets_its_own_deltas_in_order(processor):
    register(processor, "A", ["a0", "a1"])
    register(processor, "B", ["b0"])
    processed = processor.process([output("a1", b"x"), output("b0", b"y"), output("a0", b"z")])
    assert processed.aborts == ()
    assert {update.submission_id: update.deltas for update in processed.updates} == {
        "A": (ChoiceDelta(1, "x", (120,)), ChoiceDelta(0, "z", (122,))),
        "B": (ChoiceDelta(0, "y", (121,)),),
    }
    assert not any(update.is_finished or update.error for update in processed.updates)


def test_a_submission_is_finished_with_its_last_choice(processor):
    register(processor, "A", ["a0", "a1"])
    first = processor.process([output("a0", b"x", FinishReason.LENGTH)])
    assert [update.is_finished for update in first.updates] == [False]
    second = processor.process([output("a1", b"y", FinishReason.LENGTH)])
    assert [(update.is_finished, update.deltas[-1].finish_reason) for update in second.updates] == [
        (True, "length")
    ]
    assert first.aborts == second.aborts == ()
    assert processor.abort("A") == ()


def test_a_stop_string_ends_the_choice_and_aborts_its_request(processor):
    register(processor, "A", ["a0", "a1"], stop=".")
    processed = processor.process([output("a0", b"x.y"), output("a1", b"z")])
    assert processed.aborts == ("a0",)
    (update,) = processed.updates
    assert update.deltas == (ChoiceDelta(0, "x", tuple(b"x."), "stop", "."), ChoiceDelta(1, "z", tuple(b"z")))
    assert not update.is_finished
    assert processor.process([output("a0", b"late")]) == ((), ())


def test_a_stop_string_at_the_engine_s_own_end_aborts_nothing(processor):
    register(processor, "A", ["a0"], stop=".")
    processed = processor.process([output("a0", b"x.", FinishReason.LENGTH)])
    assert processed.aborts == ()
    assert processed.updates[0].deltas[-1].finish_reason == "stop"


def test_an_aborted_submission_is_silent(processor):
    register(processor, "A", ["a0", "a1"])
    register(processor, "B", ["b0"])
    processor.process([output("a0", b"x", FinishReason.LENGTH)])
    assert processor.abort("A") == ("a1",)
    processed = processor.process([output("a1", b"y"), output("b0", b"z")])
    assert [update.submission_id for update in processed.updates] == ["B"]
    assert processor.abort("A") == ()
    assert processor.abort("unknown") == ()
    assert processor.abort("B") == ("b0",)


@pytest.mark.parametrize(
    "end", [(FinishReason.ERROR, "no memory left"), (FinishReason.ABORT, None)], ids=["error", "abort"]
)
def test_a_request_that_the_engine_gave_up_fails_its_submission_only(processor, end):
    finish_reason, message = end
    register(processor, "A", ["a0", "a1"])
    register(processor, "B", ["b0"])
    processed = processor.process(
        [
            output("a1", b"x"),
            output("a0", b"", finish_reason, message),
            output("a1", b"y"),
            output("b0", b"z"),
        ]
    )
    failed, other = processed.updates
    assert isinstance(failed.error, RequestFailed)
    assert (message or "ended") in str(failed.error)
    assert failed.is_finished
    assert failed.deltas == (ChoiceDelta(1, "x", tuple(b"x")),)
    assert processed.aborts == ("a1",)
    assert (other.error, other.deltas) == (None, (ChoiceDelta(0, "z", tuple(b"z")),))
    assert processor.abort("B") == ("b0",)


def test_a_request_that_the_engine_blames_for_its_end_is_told_which_parameter(processor):
    register(processor, "A", ["a0", "a1"])
    blamed = output("a0", b"", FinishReason.ERROR, "nothing satisfies it")._replace(error_param="json_schema")
    processed = processor.process([blamed])
    error = processed.updates[0].error
    assert isinstance(error, InvalidParameter)
    assert (error.param, str(error)) == ("json_schema", "nothing satisfies it")
    assert processed.aborts == ("a1",)


def test_a_fault_in_detokenizing_one_request_fails_that_request_only():
    processor = OutputProcessor(FaultyTokenizer(byte_level_tokenizer().backend))
    register(processor, "A", ["a0"])
    register(processor, "B", ["b0"])
    register(processor, "C", ["c0"])
    processed = processor.process([output("a0", b"x"), output("b0", [BAD_ID]), output("c0", b"z")])
    errors = {update.submission_id: update.error for update in processed.updates}
    assert errors["A"] is errors["C"] is None
    assert isinstance(errors["B"], RequestFailed)
    assert isinstance(errors["B"].__cause__, ValueError)
    assert processed.aborts == ("b0",)
    later = processor.process(
        [output("a0", b"x", FinishReason.LENGTH), output("c0", b"z", FinishReason.LENGTH)]
    )
    assert [update.is_finished for update in later.updates] == [True, True]


def test_a_request_that_fails_as_the_engine_ends_it_is_not_aborted():
    processor = OutputProcessor(FaultyTokenizer(byte_level_tokenizer().backend))
    register(processor, "A", ["a0", "a1"])
    processed = processor.process([output("a0", [BAD_ID], FinishReason.LENGTH)])
    assert processed.aborts == ("a1",)


def test_ids_in_use_are_refused_and_free_again_later(processor):
    register(processor, "A", ["a0"])
    for submission_id, request_id in (("A", "a1"), ("B", "a0")):
        with pytest.raises(InvalidParameter, match="already in use"):
            register(processor, submission_id, [request_id])
    assert processor.abort("B") == ()
    assert processor.abort("A") == ("a0",)
    register(processor, "A", ["a0"])
    assert processor.process([output("a0", b"x")]).updates[0].submission_id == "A"


@pytest.mark.parametrize("module", ["input_processor", "output_processor", "outbox", "collect"])
def test_the_client_s_side_imports_no_torch(module):
    script = f"import sys, minivllm_runtime.engine.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
