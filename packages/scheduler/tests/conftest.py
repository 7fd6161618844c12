"""A whole engine around the real scheduler: a pure function for a model, a shadow of the KV memory."""

import zlib
from collections import deque
from functools import partial

import pytest

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler import FinishReason, Request, Scheduler, SchedulerConfig, StepLoop, StepResult
from minivllm_scheduler.recording import Recording, RecordingScheduler

VOCAB = 6


def next_token(ids):
    """The model: the next id depends on every id before it, and on nothing else."""
    return zlib.crc32(bytes(ids)) % VOCAB


def expected_output(request):
    """What the request generates alone in an unlimited pool: its output ids and why it ends."""
    ids = list(request.prompt_token_ids)
    for _ in range(request.max_tokens):
        ids.append(next_token(ids))
        if ids[-1] in request.stop_token_ids:
            return tuple(ids[len(request.prompt_token_ids) :]), FinishReason.STOP
    return tuple(ids[len(request.prompt_token_ids) :]), FinishReason.LENGTH


class ShadowExecutor:
    """Executes steps on a memory whose slots remember which (salt, prefix) was written into them.

    A row may read what earlier steps wrote and what it writes itself, never what another row of its step
    writes.
    """

    class Fault(Exception):
        """Raised where a test asks for it."""

    def __init__(self, block_size, max_num_seqs, requests):
        self.block_size = block_size
        self.max_num_seqs = max_num_seqs
        self.requests = requests  # by id
        self.memory = {}  # slot -> (salt, ids up to and including its position)
        self.tables = {}
        self.ids = {}
        self.num_computed = {}
        self.outputs = []  # every step launched
        self.results = deque()  # (result, requests it samples for)
        self.fail_at = None  # "launch" or "result"
        self.keeps_launched_steps = False  # after a fault

    def launch(self, output):
        self._raise_if_asked("launch")
        self.outputs.append(output)
        for request_id in output.released:
            for per_request in (self.tables, self.ids, self.num_computed):
                per_request.pop(request_id, None)
        for admitted in output.admitted:
            self._admit(admitted)
        assert len(self.tables) <= self.max_num_seqs, "a request that ended was not released"
        rows = {row.request_id: row for row in output.rows}
        assert len(rows) == len(output.rows) > 0, "two rows of one request, or none at all"
        unknown = {request_id for _, sampled in self.results for request_id in sampled}
        assert all(self.requests[name].runs_ahead for name in rows.keys() & unknown), "ran ahead of its id"
        for row in output.rows:
            self._start(row)
        read = {slot for row in output.rows for slot in self._slots(row.request_id, 0, row.start)}
        written = [slot for row in output.rows for slot in self._row_slots(row)]
        assert len(set(written)) == len(written), "two rows write one slot"
        assert not read & set(written), "a row overwrites what another reads"
        sampling = [row for row in output.rows if row.samples]
        result = StepResult(output.step_id, tuple(self._finish(row) for row in sampling))
        self.results.append((result, [row.request_id for row in sampling]))

    def result(self):
        self._raise_if_asked("result")
        return self.results.popleft()[0]

    def _raise_if_asked(self, place):
        if self.fail_at == place:
            self.fail_at = None
            if not self.keeps_launched_steps:
                self.results.clear()
            raise self.Fault

    def _admit(self, admitted):
        assert admitted.request_id not in self.tables, "admitted without having been released"
        assert 0 <= admitted.num_cached_tokens < len(admitted.token_ids)
        self.tables[admitted.request_id] = list(admitted.block_ids)
        self.ids[admitted.request_id] = list(admitted.token_ids)
        self.num_computed[admitted.request_id] = admitted.num_cached_tokens

    def _start(self, row):
        """Checks a row and everything it reads from earlier steps, then writes its own tokens."""
        ids, table = self.ids[row.request_id], self.tables[row.request_id]
        table.extend(row.new_block_ids)
        end = row.start + row.num_tokens
        assert row.start == self.num_computed[row.request_id]
        assert row.num_tokens > 0
        assert end <= min(len(ids), len(table) * self.block_size)
        assert row.samples == (end == len(ids))
        for position, slot in enumerate(self._slots(row.request_id, 0, row.start)):
            assert self.memory[slot] == self._content(row.request_id, position), "reads what is not its own"
        self.num_computed[row.request_id] = end

    def _finish(self, row):
        ids = self.ids[row.request_id]
        ids.append(next_token(ids))
        return (ids[-1],)

    def _row_slots(self, row):
        slots = self._slots(row.request_id, row.start, row.start + row.num_tokens)
        for position, slot in enumerate(slots, row.start):
            self.memory[slot] = self._content(row.request_id, position)
        return slots

    def _content(self, request_id, position):
        return self.requests[request_id].cache_salt, tuple(self.ids[request_id][: position + 1])

    def _slots(self, request_id, start, stop):
        table, size = self.tables[request_id], self.block_size
        return [table[position // size] * size + position % size for position in range(start, stop)]


class World:
    """Scheduler, allocator, loop and executor, and a record of what came out."""

    def __init__(
        self,
        num_blocks,
        block_size=4,
        *,
        run_ahead=False,
        prefix_caching=True,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_num_waiting=100,
        max_model_len=64,
        watermark=0.01,
        prefill_chunk_size=None,
        max_overtaking=256,
        make_scheduler=Scheduler,
        **policies,
    ):
        config = SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            max_num_waiting=max_num_waiting,
            watermark=watermark,
            prefill_chunk_size=prefill_chunk_size,
            max_overtaking=max_overtaking,
        )
        self.kv = KVCacheManager(num_blocks, block_size, prefix_caching=prefix_caching)
        self.scheduler = make_scheduler(config, self.kv, **policies)
        self.requests = {}  # every request ever accepted
        self.live = {}
        self.executor = ShadowExecutor(block_size, max_num_seqs, self.requests)
        self.loop = StepLoop(self.scheduler, self.executor, run_ahead=run_ahead)
        self.outputs = {}
        self.finish_reasons = {}
        self.num_cached_tokens = {}
        self.now = 0.0

    def add(self, request_id, prompt, max_tokens, **options):
        self.add_all(
            [Request(request_id=request_id, prompt_token_ids=prompt, max_tokens=max_tokens, **options)]
        )

    def add_all(self, requests):
        self.scheduler.add(requests, self.now)
        for request in requests:
            self.requests[request.request_id] = self.live[request.request_id] = request
            self.outputs[request.request_id] = ()

    def abort(self, request_id):
        accepted = self.scheduler.abort(request_id, self.now)
        assert accepted == (request_id in self.live)
        self.live.pop(request_id, None)
        return accepted

    def step(self):
        self.now += 1.0
        self.take(self.loop.step(self.now))

    def fail(self):
        failed = self.loop.fail(self.now)
        for request_id in failed:
            del self.live[request_id]
        return failed

    def take(self, updates):
        """Records updates; each must continue what the model says, for a request that has not ended."""
        for update in updates:
            request = self.live[update.request_id]
            self.outputs[update.request_id] += update.token_ids
            self.num_cached_tokens[update.request_id] = update.num_cached_tokens
            output, reason = expected_output(request)
            so_far = self.outputs[update.request_id]
            assert so_far == output[: len(so_far)]
            assert update.finish_reason == (reason if so_far == output else None)
            if update.finish_reason is not None:
                self.finish_reasons[update.request_id] = update.finish_reason
                del self.live[update.request_id]

    def drain(self):
        """Steps until nothing is left, within a bound on the steps; then nothing may be held."""
        work = sum(len(request.prompt_token_ids) + request.max_tokens for request in self.live.values())
        for _ in range(4 * work + 4):
            if not self.loop.has_work:
                break
            self.step()
            self.scheduler.check_invariants()
        self.assert_idle()

    def assert_idle(self):
        assert not self.live
        assert self.scheduler.num_requests == 0
        assert self.scheduler.num_in_flight == 0
        assert self.kv.stats().in_use == 0
        assert self.kv.num_allocatable == self.kv.num_blocks

    @property
    def num_preemptions(self):
        return self.scheduler.stats().total_preempted


@pytest.fixture(scope="session")
def make_world():
    return World


@pytest.fixture(params=[False, True], ids=["in_order", "one_ahead"])
def run_ahead(request):
    return request.param


PREFIX = (1, 2, 3, 4, 5, 0)


@pytest.fixture(scope="session")
def make_recorded_world(make_world):
    """Builds a World and the list that its events go to."""

    def make(num_blocks, run_ahead, **options):
        events = []
        make_scheduler = partial(RecordingScheduler, run_ahead=run_ahead, record=events.append)
        world = make_world(num_blocks, run_ahead=run_ahead, make_scheduler=make_scheduler, **options)
        return world, events

    return make


@pytest.fixture(scope="session")
def record_run(make_recorded_world):
    """Makes a recording; `policies` are those of the scheduler."""

    def record(run_ahead, **policies):
        world, events = make_recorded_world(9, run_ahead, watermark=0.0, max_num_batched_tokens=8, **policies)
        for index in range(6):
            world.add(f"r{index}", (*PREFIX, *range(index)), 12)
            world.step()
        world.abort("r5")
        for _ in range(40):
            world.step()
        world.add("late", PREFIX, 6, stop_token_ids=frozenset({1}))
        world.step()
        world.executor.fail_at = "result"
        with pytest.raises(world.executor.Fault):
            world.step()
        world.fail()
        world.drain()
        return Recording.of(events)

    return record


@pytest.fixture(scope="session")
def recordings(record_run):
    """The recording in order, and the one of a loop that runs one step ahead."""
    return {run_ahead: record_run(run_ahead) for run_ahead in (False, True)}


@pytest.fixture
def recording(recordings, run_ahead):
    return recordings[run_ahead]
