import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm_kernels.reference.decode_inputs import decode_inputs
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_scheduler import ScheduledRequest

BLOCK_SIZE = 4


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.booleans()), min_size=1, max_size=6),
    st.data(),
)
def test_every_token_finds_its_id_position_and_slot(shapes, data):
    states = RequestStates(8, 64, BLOCK_SIZE, torch.device("cpu"))
    order = data.draw(st.permutations(range(100)))
    rows, ids, tables = [], [], []
    for index, (start, num_tokens, samples) in enumerate(shapes):
        token_ids = [1000 * index + position for position in range(start + num_tokens)]
        blocks = [order.pop() for _ in range(-(-len(token_ids) // BLOCK_SIZE))]
        states.admit(str(index), token_ids, 1, blocks[:1])
        states.append_blocks(str(index), blocks[1:])
        rows.append(ScheduledRequest(str(index), start, num_tokens, (), samples))
        ids.append(token_ids)
        tables.append(blocks)
    states.flush()
    batch = InputBatch.build(rows, states, BLOCK_SIZE)

    tokens = [(r, p) for r, row in enumerate(rows) for p in range(row.start, row.start + row.num_tokens)]
    assert batch.input_ids.tolist() == [ids[r][p] for r, p in tokens]
    assert batch.positions.tolist() == [p for _, p in tokens]
    assert batch.layout.slot_mapping.tolist() == [
        tables[r][p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for r, p in tokens
    ]
    assert batch.layout.context_lens == [row.start + row.num_tokens for row in rows]
    last_of_row = {r: index for index, (r, _) in enumerate(tokens)}
    sampling = [r for r, row in enumerate(rows) if row.samples]
    assert batch.sampling_tokens.tolist() == [last_of_row[r] for r in sampling]
    assert batch.next_positions.tolist() == [len(ids[r]) for r in sampling]
    assert batch.next_slots.tolist() == [states.slot(str(r)) for r in sampling]


def test_the_inputs_of_a_decode_step_are_what_the_general_way_makes_of_rows_of_one_token():
    states = RequestStates(8, 64, BLOCK_SIZE, torch.device("cpu"))
    states.pad_with(99)
    for index, length in enumerate((5, 8, 1)):
        states.admit(str(index), range(length), 1, range(20 * index, 20 * index + 3))
    states.flush()
    rows = [ScheduledRequest(str(index), start, 1, (), True) for index, start in enumerate((4, 7, 0))]
    general = InputBatch.build(rows, states, BLOCK_SIZE)

    def gather(slots, positions):
        places = torch.tensor(slots), torch.tensor(positions)
        return decode_inputs(*places, states.token_ids, states.block_tables, BLOCK_SIZE)

    gathered = gather([states.slot(row.request_id) for row in rows], [row.start for row in rows])
    layout = general.layout
    assert gathered.longest_first.tolist() == [1, 0, 2]
    expected = (general.input_ids, layout.context_lens_device, layout.block_tables, layout.slot_mapping)
    assert all(torch.equal(*pair) for pair in zip(gathered[:4], expected, strict=True))
    assert gather([states.padding_slot], [0]).slot_mapping.tolist() == [99 * BLOCK_SIZE]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(0, 40),
)
def test_a_padded_batch_is_what_the_general_way_makes_of_the_rows(
    shapes, num_padding_rows, num_padding_tokens
):
    states = RequestStates(8, 64, BLOCK_SIZE, torch.device("cpu"))
    states.pad_with(99)
    rows = []
    for index, (start, num_tokens) in enumerate(shapes):
        length = start + num_tokens
        first_block = 20 * index
        blocks = range(first_block, first_block - (-length // BLOCK_SIZE))
        states.admit(str(index), range(1000 * index, 1000 * index + length), 1, blocks)
        rows.append(ScheduledRequest(str(index), start, num_tokens, (), True))
    states.flush()
    general = InputBatch.build(rows, states, BLOCK_SIZE)
    padding = [states.padding_slot] * num_padding_rows
    slots = [states.slot(row.request_id) for row in rows] + padding
    nothing = [0] * num_padding_rows
    starts = [row.start for row in rows] + nothing
    lens = [row.num_tokens for row in rows] + nothing
    num_tokens, num_rows = sum(lens), len(rows)
    header = torch.tensor([slots, starts, lens, slots])
    padded = InputBatch.padded(header, num_tokens + num_padding_tokens, states, BLOCK_SIZE)

    assert torch.equal(padded.input_ids[:num_tokens], general.input_ids)
    assert torch.equal(padded.positions[:num_tokens], general.positions)
    assert torch.equal(padded.layout.slot_mapping[:num_tokens], general.layout.slot_mapping)
    assert (padded.layout.slot_mapping[num_tokens:] == 99 * BLOCK_SIZE).all()
    for name in ("context_lens_device", "block_tables"):
        assert torch.equal(getattr(padded.layout, name)[:num_rows], getattr(general.layout, name))
    assert torch.equal(padded.layout.query_start_loc[: num_rows + 1], general.layout.query_start_loc)
    assert (padded.layout.query_start_loc[num_rows:] == num_tokens).all()
    for name in ("sampling_tokens", "next_slots", "next_positions"):
        assert torch.equal(getattr(padded, name)[:num_rows], getattr(general, name))
