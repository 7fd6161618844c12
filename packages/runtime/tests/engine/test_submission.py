import asyncio

import pytest

from minivllm_runtime.engine.output_processor import SubmissionUpdate
from minivllm_runtime.engine.submission import Submission
from minivllm_runtime.errors import EngineDead, RequestFailed
from minivllm_runtime.outputs import ChoiceDelta

ERROR = RequestFailed("no luck")


def update(text, *, is_finished=False, error=None):
    deltas = (ChoiceDelta(0, text, tuple(text.encode())),) if text else ()
    return SubmissionUpdate("r", deltas, is_finished, error)


async def read(submission):
    return ["".join(delta.text for delta in deltas) async for deltas in submission]


def test_what_came_since_the_last_look_is_one_piece():
    async def main():
        submission = Submission(1, lambda: None)
        pieces = aiter(submission)
        submission.deliver(update("a"))
        submission.deliver(update("b"))
        assert [delta.text for delta in await anext(pieces)] == ["ab"]
        # While the reader is busy the rest arrives.
        submission.deliver(update("c"))
        submission.deliver(update("d", is_finished=True))
        assert [[delta.text for delta in deltas] async for deltas in pieces] == [["cd"]]

    asyncio.run(main())


def test_reading_a_finished_submission_again_ends_at_once():
    async def main():
        submission = Submission(1, lambda: None)
        submission.deliver(update("a", is_finished=True))
        assert await read(submission) == ["a"]
        assert await read(submission) == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda submission: submission.deliver(update("", is_finished=True, error=ERROR)), RequestFailed),
        (lambda submission: submission.fail(EngineDead("gone")), EngineDead),
    ],
)
def test_what_was_pending_is_read_before_the_error(end, error):
    async def main():
        submission = Submission(1, lambda: None)
        submission.deliver(update("a"))
        end(submission)
        pieces = aiter(submission)
        assert [delta.text for delta in await anext(pieces)] == ["a"]
        with pytest.raises(error):
            await anext(pieces)
        with pytest.raises(error):
            await read(submission)

    asyncio.run(main())


def test_closing_aborts_once_and_wakes_the_reader():
    async def main():
        aborts = []
        submission = Submission(1, lambda: aborts.append("r"))
        reader = asyncio.create_task(read(submission))
        await asyncio.sleep(0)
        await submission.aclose()
        await submission.aclose()
        assert (await reader, aborts) == ([], ["r"])

    asyncio.run(main())


def test_closing_what_is_finished_aborts_nothing():
    async def main():
        aborts = []
        submission = Submission(1, lambda: aborts.append("r"))
        submission.deliver(update("a", is_finished=True))
        await submission.aclose()
        assert aborts == []

    asyncio.run(main())
