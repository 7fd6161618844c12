"""From the engine's token ids to deltas for readers, for all submissions of one client."""

from collections.abc import Sequence
from typing import NamedTuple

from minivllm_runtime.engine.choice_decoder import ChoiceDecoder
from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.messages import EngineRequest, TokenOutput
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_scheduler import FinishReason


class SubmissionUpdate(NamedTuple):
    """News of one submission.

    Attributes:
        submission_id: As registered.
        deltas: In the order in which the engine reported them.
        is_finished: No update of this submission follows.
        error: Why it ended early; the deltas before it are still good.
    """

    submission_id: str
    deltas: tuple[ChoiceDelta, ...]
    is_finished: bool
    error: RequestFailed | InvalidParameter | None


class Processed(NamedTuple):
    """What a batch of token outputs came to.

    Attributes:
        updates: One per submission that has news.
        aborts: Requests that the engine still runs and nobody needs: a stop string ended them, or their
            submission failed.
    """

    updates: tuple[SubmissionUpdate, ...]
    aborts: tuple[str, ...]


class _Submission:
    """The choices of one submission that are not finished, by the id of their request, and its news."""

    def __init__(self, submission_id: str, running: dict[str, ChoiceDecoder]) -> None:
        self.submission_id = submission_id
        self.running = running
        self.deltas: list[ChoiceDelta] = []
        self.error: RequestFailed | InvalidParameter | None = None

    def take_update(self) -> SubmissionUpdate:
        deltas, self.deltas = tuple(self.deltas), []
        return SubmissionUpdate(self.submission_id, deltas, not self.running, self.error)


class OutputProcessor:
    """Keeps the text side of every request that the engine runs.

    A submission is what its caller waits for as one: some prompts with `n` choices each. If one of its
    choices fails, the submission fails, its other choices are aborted, and no other submission notices.

    Args:
        tokenizer: Makes the text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._submissions: dict[str, _Submission] = {}
        self._owners: dict[str, _Submission] = {}

    def register(self, submission_id: str, requests: Sequence[EngineRequest], params: SamplingParams) -> None:
        """Make a submission known, before its requests go to the engine.

        Args:
            submission_id: Unique among those not finished.
            requests: All choices of the first prompt, then of the second, …; their position becomes
                `ChoiceDelta.index`.
            params: What the requests were made from.

        Raises:
            InvalidParameter: the submission or one of its requests is already registered.
        """
        if submission_id in self._submissions:
            raise InvalidParameter("request_id", f"request id {submission_id!r} is already in use")
        for request in requests:
            if request.request_id in self._owners:
                raise InvalidParameter("request_id", f"request id {request.request_id!r} is already in use")
        running = {
            request.request_id: ChoiceDecoder(index, params, request.prompt_token_ids, self._tokenizer)
            for index, request in enumerate(requests)
        }
        submission = _Submission(submission_id, running)
        self._submissions[submission_id] = submission
        self._owners |= dict.fromkeys(running, submission)

    def abort(self, submission_id: str) -> tuple[str, ...]:
        """Forget a submission; nothing more is reported of it.

        Returns:
            Its requests that the engine must abort; none if it is unknown or finished.
        """
        submission = self._submissions.get(submission_id)
        return () if submission is None else self._drop(submission)

    def process(self, outputs: Sequence[TokenOutput]) -> Processed:
        """Decode what the engine reported; outputs of requests that ended meanwhile are dropped."""
        touched: dict[str, _Submission] = {}
        aborts: list[str] = []
        for output in outputs:
            submission = self._owners.get(output.request_id)
            if submission is None:
                continue
            touched[submission.submission_id] = submission
            # Whatever goes wrong with one request must not take the others' outputs of this step with it.
            try:
                aborts += self._decode(submission, output)
            except Exception as error:
                submission.error = _as_known_error(error)
                request_ids = self._drop(submission)
                aborts += (i for i in request_ids if i != output.request_id or output.finish_reason is None)
        return Processed(tuple(submission.take_update() for submission in touched.values()), tuple(aborts))

    def _decode(self, submission: _Submission, output: TokenOutput) -> tuple[str, ...]:
        """Add the output's delta to the news; return the request if only the engine still runs it."""
        if output.finish_reason in {FinishReason.ERROR, FinishReason.ABORT}:
            message = output.error or "the engine ended the request before it was complete"
            if output.error_param is not None:
                raise InvalidParameter(output.error_param, message)
            raise RequestFailed(message)
        decoder = submission.running[output.request_id]
        delta = decoder.push(output)
        submission.deltas.append(delta)
        if delta.finish_reason is None:
            return ()
        del submission.running[output.request_id], self._owners[output.request_id]
        if not submission.running:
            del self._submissions[submission.submission_id]
        return (output.request_id,) if output.finish_reason is None else ()

    def _drop(self, submission: _Submission) -> tuple[str, ...]:
        request_ids = tuple(submission.running)
        for request_id in request_ids:
            del self._owners[request_id]
        submission.running.clear()
        del self._submissions[submission.submission_id]
        return request_ids


def _as_known_error(error: Exception) -> RequestFailed | InvalidParameter:
    if isinstance(error, RequestFailed | InvalidParameter):
        return error
    failure = RequestFailed(f"the output could not be turned into text: {error}")
    failure.__cause__ = error
    return failure
