"""Random calls to the manager, held against a model of dicts and lists and a simulated KV memory."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minivllm_kvcache import (
    BlockEventKind,
    BlockTable,
    KVCacheError,
    KVCacheManager,
    PrefixKeys,
)

Content = tuple[str, tuple[int, ...]]  # salt and the whole prefix, spelled out
TOKENS = st.integers(0, 1)
PICK = st.integers(0, 50)


class NaiveCache:
    """The same promises without a digest, a link or a counter."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.waiting = list(range(num_blocks))  # the front is reused first
        self.content: dict[int, Content] = {}
        self.tables: dict[str, list[int]] = {}
        self.num_evictions = 0

    def in_use(self) -> set[int]:
        return {block for table in self.tables.values() for block in table}

    def hits(self, salt: str, ids: list[int]) -> list[int]:
        found: list[int] = []
        for end in range(self.block_size, len(ids), self.block_size):
            block = next((b for b, c in self.content.items() if c == (salt, tuple(ids[:end]))), None)
            if block is None:
                break
            found.append(block)
        return found

    def allocate(self, name: str, hits: list[int], num_new: int, reserve: int = 0) -> bool:
        rest = [block for block in self.waiting if block not in hits]
        needed = -(-num_new // self.block_size)
        if needed + reserve > len(rest):
            return False
        self.waiting = rest
        self.tables[name] = list(hits)
        self._take(name, needed)
        return True

    def grow(self, name: str, num_tokens: int) -> bool:
        needed = max(0, -(-num_tokens // self.block_size) - len(self.tables[name]))
        if needed > len(self.waiting):
            return False
        self._take(name, needed)
        return True

    def commit(self, name: str, salt: str, ids: list[int], start: int, stop: int) -> None:
        for index in range(start // self.block_size, stop // self.block_size):
            block, prefix = self.tables[name][index], (salt, tuple(ids[: (index + 1) * self.block_size]))
            if prefix not in self.content.values():
                self.content[block] = prefix

    def free(self, name: str) -> None:
        table = self.tables.pop(name)
        for block in reversed(table):
            if block in self.in_use():
                continue
            if block in self.content:
                self.waiting.append(block)
            else:
                self.waiting.insert(0, block)

    def _take(self, name: str, count: int) -> None:
        for _ in range(count):
            block = self.waiting.pop(0)
            self.num_evictions += self.content.pop(block, None) is not None
            self.tables[name].append(block)


class Sequence:
    """What a scheduler knows of a request."""

    def __init__(self, name: str, salt: str, ids: list[int], block_size: int) -> None:
        self.name = name
        self.salt = salt
        self.ids = ids
        self.keys = PrefixKeys(ids, block_size, salt)
        self.num_computed = 0
        self.num_committed = 0


class KVCacheMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(1, 12),
        block_size=st.integers(1, 3),
        caching=st.sampled_from([True, True, True, False]),
    )
    def start(self, num_blocks, block_size, caching):
        self.kv = KVCacheManager(num_blocks, block_size, prefix_caching=caching, record_events=True)
        self.model = NaiveCache(num_blocks, block_size)
        self.caching = caching
        self.block_size = block_size
        self.memory: dict[int, Content] = {}  # slot -> the prefix whose last key and value it holds
        self.mirror: dict[bytes, int] = {}
        self.history: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    # --- Requests arrive: new ones, and forks of any earlier prefix

    @rule(ids=st.lists(TOKENS, min_size=1, max_size=9), salt=st.sampled_from(["", "", "s"]))
    def arrive(self, ids, salt):
        self._arrive(salt, ids)

    @precondition(lambda self: self.history)
    @rule(pick=PICK, keep=st.integers(1, 20), tail=st.lists(TOKENS, max_size=3))
    def fork(self, pick, keep, tail):
        parent = self.history[pick % len(self.history)]
        self._arrive(parent.salt, [*parent.ids[:keep], *tail])

    def _arrive(self, salt, ids):
        sequence = Sequence(f"r{len(self.history)}", salt, list(ids), self.block_size)
        self.history.append(sequence)
        self.waiting.append(sequence)

    # --- The life of a request

    @precondition(lambda self: self.waiting)
    @rule(
        pick=PICK,
        num_new=st.integers(0, 9),
        use_cache=st.booleans() | st.just(True),
        reserve=st.sampled_from([0, 0, 1, 2]),
    )
    def allocate(self, pick, num_new, use_cache, reserve):
        self._allocate(self.waiting[pick % len(self.waiting)], num_new, use_cache=use_cache, reserve=reserve)

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def prefill(self, pick):
        """A whole first step: alone, the rules it is made of seldom meet in this order."""
        sequence = self.waiting[pick % len(self.waiting)]
        self._allocate(sequence, len(sequence.ids) - self.kv.match(sequence.keys))
        if sequence in self.running:
            self._compute(sequence)
            self._commit(sequence)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def catch_up(self, pick):
        """A whole later step."""
        sequence = self.running[pick % len(self.running)]
        self._grow(sequence, len(sequence.ids))
        self._compute(sequence)
        self._commit(sequence)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, num_tokens=st.integers(0, 20))
    def grow(self, pick, num_tokens):
        self._grow(self.running[pick % len(self.running)], num_tokens)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def compute(self, pick):
        self._compute(self.running[pick % len(self.running)])

    @precondition(lambda self: self.running)
    @rule(pick=PICK, tokens=st.lists(TOKENS, min_size=1, max_size=4))
    def sample(self, pick, tokens):
        sequence = self.running[pick % len(self.running)]
        sequence.ids += tokens
        sequence.keys.extend(tokens)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, late=st.integers(0, 3))
    def commit(self, pick, late):
        self._commit(self.running[pick % len(self.running)], late)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def preempt(self, pick):
        self.waiting.append(self._leave(pick))

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def finish_or_abort(self, pick):
        self._leave(pick)

    def _allocate(self, sequence, num_new, *, use_cache=True, reserve=0):
        hits = self.model.hits(sequence.salt, sequence.ids)
        assert self.kv.match(sequence.keys) == len(hits) * self.block_size < len(sequence.ids)
        hits = hits if use_cache else []
        allocation = self.kv.allocate(
            sequence.name, sequence.keys, num_new, use_cache=use_cache, reserve=reserve
        )
        assert (allocation is not None) is self.model.allocate(sequence.name, hits, num_new, reserve)
        if allocation is None:
            return
        assert allocation.num_cached_tokens == len(hits) * self.block_size
        assert list(allocation.block_ids) == self.model.tables[sequence.name]
        self.waiting.remove(sequence)
        self.running.append(sequence)
        sequence.num_computed = sequence.num_committed = allocation.num_cached_tokens

    def _grow(self, sequence, num_tokens):
        before = len(self.model.tables[sequence.name])
        new = self.kv.grow(sequence.name, num_tokens)
        assert (new is not None) is self.model.grow(sequence.name, num_tokens)
        assert list(new or ()) == self.model.tables[sequence.name][before:]

    def _compute(self, sequence):
        """Writes each covered known position after reading all before it: they must be its own."""
        table = BlockTable(self.block_size, self.kv.block_ids(sequence.name))
        stop = min(table.capacity_tokens, len(sequence.ids))
        for position in range(stop):
            own = (sequence.salt, tuple(sequence.ids[: position + 1]))
            if position >= sequence.num_computed:
                self.memory[table.slot(position)] = own
            assert self.memory[table.slot(position)] == own
        sequence.num_computed = max(sequence.num_computed, stop)

    def _commit(self, sequence, late=0):
        num_written = max(sequence.num_committed, sequence.num_computed - late)
        self.kv.commit(sequence.name, sequence.keys, num_written)
        if self.caching:
            self.model.commit(sequence.name, sequence.salt, sequence.ids, sequence.num_committed, num_written)
        sequence.num_committed = num_written

    def _leave(self, pick):
        sequence = self.running.pop(pick % len(self.running))
        self.kv.free(sequence.name)
        self.model.free(sequence.name)
        return sequence

    # --- Misuse is refused and changes nothing; the invariants below look

    @precondition(lambda self: self.history)
    @rule(pick=PICK, beyond=st.integers(1, 5))
    def misuse(self, pick, beyond):
        sequence = self.history[pick % len(self.history)]
        name, keys = sequence.name, sequence.keys
        if sequence in self.running:
            self._refused(lambda: self.kv.allocate(name, keys, 1))
            too_many = (
                len(self.model.tables[name]) * self.block_size + len(sequence.ids) + self.block_size * beyond
            )
            if self.caching:
                self._refused(lambda: self.kv.commit(name, keys, too_many))
        else:
            self._refused(lambda: self.kv.allocate(name, keys, -beyond))
            self._refused(lambda: self.kv.grow(name, beyond))
            self._refused(lambda: self.kv.commit(name, keys, beyond))
            self._refused(lambda: self.kv.free(name))

    def _refused(self, call):
        try:
            call()
        except KVCacheError:
            return
        raise AssertionError("misuse was accepted")

    # --- What must hold after every rule

    @invariant()
    def is_consistent(self):
        self.kv.check_invariants()

    @invariant()
    def tables_are_those_of_the_model(self):
        for sequence in self.running:
            assert list(self.kv.block_ids(sequence.name)) == self.model.tables[sequence.name]

    @invariant()
    def every_block_is_counted_once(self):
        stats = self.kv.stats()
        idle = [block for block in self.model.waiting if block in self.model.content]
        assert stats.in_use == len(self.model.in_use())
        assert stats.idle_cached == len(idle)
        assert stats.unused == len(self.model.waiting) - len(idle)
        assert stats.unused + stats.idle_cached + stats.in_use == self.kv.num_blocks
        assert stats.allocatable == self.kv.num_allocatable
        assert stats.evictions == self.model.num_evictions
        if not self.running:
            assert stats.in_use == 0

    @invariant()
    def events_replay_to_the_content_of_the_cache(self):
        for event in self.kv.take_events():
            if event.kind is BlockEventKind.STORED:
                assert self.mirror.setdefault(event.key, event.block_id) == event.block_id
            else:
                assert self.mirror.pop(event.key) == event.block_id
        expected = {}
        for block, (salt, ids) in self.model.content.items():
            expected[PrefixKeys(ids, self.block_size, salt).key(len(ids) // self.block_size - 1)] = block
        assert self.mirror == expected


def test_the_manager_does_what_the_model_does():
    run_state_machine_as_test(KVCacheMachine, settings=settings(max_examples=300, stateful_step_count=40))
