"""The asyncio engine with a scripted model: submissions, refusals, leaving early, dying."""

import asyncio
import threading
from contextlib import aclosing

import pytest
import torch

from minivllm_runtime import EngineDead, InvalidParameter, QueueFull, RequestFailed, SamplingParams
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.builder import assemble_engine

from ..scripted.byte_level import byte_level_tokenizer
from ..scripted.model import ScriptedModel, scripted_config

TEXT = "one two three"
PROMPT = tuple(b"prompt: ")


class Gate(ScriptedModel):
    """Waits before every forward pass until it may go on; closes after `last_pass`; fails on request."""

    def __init__(self):
        super().__init__(list(TEXT.encode()), prompt_length=len(PROMPT))
        self.open = threading.Event()
        self.open.set()
        self.num_passes = 0
        self.last_pass = None
        self.errors = []

    def __call__(self, *step):
        assert self.open.wait(30)
        self.num_passes += 1
        if self.num_passes == self.last_pass:
            self.open.clear()
        if self.errors:
            raise self.errors.pop(0)
        return super().__call__(*step)


def run(scenario, **settings):
    """Run `scenario(engine, model)` in an event loop with a started engine."""

    async def main():
        model = Gate()
        config = EngineConfig(
            **{"num_blocks": 64, "block_size": 4, "max_num_seqs": 4, "run_ahead": False, **settings}
        )
        built = assemble_engine(
            config,
            model,
            byte_level_tokenizer(),
            scripted_config(),
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        engine = AsyncEngine(built)
        await engine.start()
        try:
            await asyncio.wait_for(scenario(engine, model), 60)
        finally:
            model.open.set()
            await engine.shutdown()

    asyncio.run(main())


async def read(submission):
    text, reasons = {}, {}
    async with aclosing(submission):
        async for deltas in submission:
            for delta in deltas:
                text[delta.index] = text.get(delta.index, "") + delta.text
                if delta.finish_reason is not None:
                    reasons[delta.index] = delta.finish_reason
    return text, reasons


async def until_at_rest(engine):
    """Wait, without sleeping blindly, until the engine reports that nothing is left."""
    async with asyncio.timeout(30):
        while (engine.stats().num_running, engine.stats().num_waiting, engine.stats().num_blocks_in_use) != (
            0,
            0,
            0,
        ):
            await asyncio.sleep(0.001)
    assert engine.stats().num_blocks_allocatable == engine.stats().num_blocks


def greedy(**changes):
    return SamplingParams(**{"temperature": 0.0, "max_tokens": len(TEXT), **changes})


def test_text_arrives_in_pieces_that_join_to_the_whole():
    async def scenario(engine, model):
        submission = await engine.submit([PROMPT], greedy(), request_id="r")
        assert submission.num_prompt_tokens == len(PROMPT)
        assert await read(submission) == ({0: TEXT}, {0: "length"})
        await until_at_rest(engine)

    run(scenario)


def test_choices_are_prompt_major_and_prompts_are_counted_once():
    async def scenario(engine, model):
        submission = await engine.submit([PROMPT, PROMPT], greedy(n=3, stop="two"), request_id="r")
        assert submission.num_prompt_tokens == 2 * len(PROMPT)
        assert await read(submission) == (dict.fromkeys(range(6), "one "), dict.fromkeys(range(6), "stop"))
        await until_at_rest(engine)

    run(scenario)


def test_a_stop_string_frees_the_request_before_its_max_tokens():
    async def scenario(engine, model):
        model.last_pass = len("one two t")
        text, _ = await read(
            await engine.submit([PROMPT], greedy(max_tokens=100, stop="wo t"), request_id="r")
        )
        assert text == {0: "one t"}
        model.open.set()
        await until_at_rest(engine)
        assert engine.stats().num_steps <= len("one two t") + 1  # the next one may have been under way

    run(scenario)


def test_a_slow_reader_gets_one_merged_delta():
    async def scenario(engine, model):
        submission = await engine.submit([PROMPT], greedy(), request_id="r")
        await until_at_rest(engine)
        taken = [deltas async for deltas in submission]
        assert [[delta.text for delta in deltas] for deltas in taken] == [[TEXT]]

    run(scenario)


@pytest.mark.parametrize("max_num_seqs", [1, 4])
def test_leaving_early_frees_running_and_waiting_requests_and_no_other(max_num_seqs):
    async def scenario(engine, model):
        stays = await engine.submit([PROMPT], greedy(), request_id="stays")
        leaves = await engine.submit([PROMPT], greedy(max_tokens=100, n=4), request_id="leaves")
        await leaves.aclose()
        await leaves.aclose()
        assert await read(stays) == ({0: TEXT}, {0: "length"})
        await until_at_rest(engine)

    run(scenario, max_num_seqs=max_num_seqs)


def test_a_cancelled_submit_leaves_nothing_behind():
    async def scenario(engine, model):
        model.open.clear()
        blocker = await engine.submit([PROMPT], greedy(), request_id="blocker")
        task = asyncio.create_task(engine.submit([PROMPT], greedy(max_tokens=100), request_id="cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        model.open.set()
        await read(blocker)
        await until_at_rest(engine)

    run(scenario)


def test_refusals_name_the_reason_and_the_id_can_be_used_again():
    async def scenario(engine, model):
        with pytest.raises(InvalidParameter, match=r"128 tokens.*8 tokens.*121"):
            await engine.submit([PROMPT], greedy(max_tokens=121), request_id="r")
        with pytest.raises(InvalidParameter, match="258"):
            await engine.submit([(258,)], greedy(), request_id="r")
        with pytest.raises(InvalidParameter, match="limit of 4"):
            await engine.submit([PROMPT], greedy(n=5), request_id="r")
        model.open.clear()
        first = await engine.submit([PROMPT], greedy(), request_id="running")
        others = [asyncio.create_task(engine.submit([PROMPT], greedy(), request_id=f"{i}")) for i in range(8)]
        await asyncio.sleep(0)
        model.open.set()
        results = await asyncio.gather(*others, return_exceptions=True)
        assert any(isinstance(result, QueueFull) for result in results)
        for submission in (first, *(result for result in results if not isinstance(result, QueueFull))):
            assert await read(submission) == ({0: TEXT}, {0: "length"})
        assert await read(await engine.submit([PROMPT], greedy(), request_id="r")) == (
            {0: TEXT},
            {0: "length"},
        )

    run(scenario, max_num_waiting=3, max_num_seqs=1)


def test_c31_submissions_of_one_id_are_served_side_by_side():
    async def scenario(engine, model):
        model.open.clear()
        first = await engine.submit([PROMPT], greedy(), request_id="r")
        second = asyncio.create_task(engine.submit([PROMPT], greedy(max_tokens=3), request_id="r"))
        await asyncio.sleep(0)
        model.open.set()
        assert await read(first) == ({0: TEXT}, {0: "length"})
        assert await read(await second) == ({0: TEXT[:3]}, {0: "length"})

    run(scenario)


@pytest.mark.parametrize("run_ahead", [False, True])
def test_an_id_can_be_used_again_while_the_engine_still_computes_for_it(run_ahead):
    async def scenario(engine, model):
        for _ in range(4):
            closed = await engine.submit([PROMPT], greedy(), request_id="r")
            await anext(aiter(closed))
            await closed.aclose()
            again = await engine.submit([PROMPT], greedy(max_tokens=5), request_id="r")
            assert await read(again) == ({0: TEXT[:5]}, {0: "length"})
        await until_at_rest(engine)

    run(scenario, run_ahead=run_ahead)


def test_a_loop_that_is_held_up_is_woken_once():
    async def scenario(engine, model):
        submission = await engine.submit([PROMPT], greedy(), request_id="r")
        calls = []
        loop = asyncio.get_running_loop()
        call_soon = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (calls.append(args), call_soon(*args))
        deadline = loop.time() + 30
        while engine._connection._core.has_work:  # the loop itself does nothing meanwhile
            assert loop.time() < deadline
        loop.call_soon_threadsafe = call_soon
        assert len(calls) <= 1
        assert await read(submission) == ({0: TEXT}, {0: "length"})

    run(scenario)


def test_c31_one_failing_step_fails_its_requests_and_the_engine_goes_on():
    async def scenario(engine, model):
        model.open.clear()
        submission = await engine.submit([PROMPT], greedy(), request_id="r")
        model.errors = [RuntimeError("once")]
        model.open.set()
        with pytest.raises(RequestFailed, match="once"):
            await read(submission)
        assert engine.is_alive
        assert await read(await engine.submit([PROMPT], greedy(), request_id="r")) == (
            {0: TEXT},
            {0: "length"},
        )
        await until_at_rest(engine)

    run(scenario)


def test_c31_a_dead_engine_fails_what_is_open_and_what_comes():
    async def scenario(engine, model):
        model.open.clear()
        running = await engine.submit([PROMPT], greedy(), request_id="running")
        waiting = asyncio.create_task(engine.submit([PROMPT], greedy(), request_id="waiting"))
        await asyncio.sleep(0)
        model.errors = [RuntimeError("for ever")] * 10
        model.open.set()
        with pytest.raises((RequestFailed, EngineDead)):
            await read(running)
        with pytest.raises(EngineDead, match="for ever"):
            await read(await waiting)
        assert not engine.is_alive
        assert engine.error == "RuntimeError: for ever"
        with pytest.raises(EngineDead, match="for ever"):
            await engine.submit([PROMPT], greedy(), request_id="later")

    run(scenario)


def test_shutdown_ends_open_submissions():
    async def scenario(engine, model):
        submission = await engine.submit([PROMPT], greedy(max_tokens=100), request_id="r")
        await engine.shutdown()
        with pytest.raises(EngineDead, match="shut down"):
            await read(submission)
        with pytest.raises(EngineDead, match="shut down"):
            await engine.encode("late")

    run(scenario)


def test_whoever_comes_while_the_engine_stops_hears_that_it_does():
    async def scenario(engine, model):
        model.open.clear()
        running = await engine.submit([PROMPT], greedy(), request_id="running")
        offered = asyncio.create_task(engine.submit([PROMPT], greedy(), request_id="offered"))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(engine.shutdown())
        await asyncio.sleep(0)
        assert not stopping.done()
        assert not engine.is_alive
        with pytest.raises(EngineDead, match="shut down"):
            await engine.submit([PROMPT], greedy(), request_id="later")
        with pytest.raises(EngineDead, match="shut down"):
            await read(running)
        with pytest.raises(EngineDead, match="shut down"):
            await offered
        model.open.set()
        await stopping

    run(scenario)


def test_who_asks_gets_the_numbers_of_the_moment_or_the_last_ones_known():
    async def scenario(engine, model):
        before = engine.stats()
        assert await engine.ask_stats() == before
        model.open.clear()
        running = await engine.submit([PROMPT], greedy(), request_id="running")
        held = await engine.ask_stats(patience_s=0.05)
        assert held.num_steps == before.num_steps
        model.open.set()
        await read(running)
        assert (await engine.ask_stats()).num_steps > 0
        await engine.shutdown()
        assert await engine.ask_stats() == engine.stats()

    run(scenario)


def test_an_engine_that_gives_no_sign_of_life_is_silent_until_it_does():
    async def scenario(engine, model):
        async def silence_is(expected):
            while not expected(engine.silence_s()):
                await asyncio.sleep(0.001)

        assert engine.silence_s() == 0
        await silence_is(lambda seconds: seconds > 0)  # before the answer can be here
        await silence_is(lambda seconds: seconds == 0)
        model.open.clear()
        running = await engine.submit([PROMPT], greedy(), request_id="running")
        await silence_is(lambda seconds: seconds > 0.05)
        model.open.set()
        await read(running)
        await silence_is(lambda seconds: seconds == 0)
        await engine.shutdown()

    run(scenario)


def test_encoding_runs_off_the_loop_and_refuses_what_cannot_fit():
    async def scenario(engine, model):
        assert await engine.encode("prompt: ") == PROMPT
        with pytest.raises(InvalidParameter, match="5000000 bytes"):
            await engine.encode("x" * 5_000_000)

    run(scenario)
