import pytest

from minivllm_scheduler.request_view import RequestView, RequestViews


@pytest.fixture
def world(make_world):
    """Two requests that share their first block, after one step of each; a third waits."""
    world = make_world(16, max_num_seqs=2)
    world.add("a", range(6), 5, tenant="t")
    world.step()
    world.now = 7.0
    world.add("b", (0, 1, 2, 3, 9, 9, 9, 9, 9), 4)
    world.add("c", [1], 2)
    world.step()
    return world


def test_a_running_request_shows_how_far_it_got_and_what_it_holds(world):
    a, b = RequestViews(world.scheduler._running, world.kv)
    assert (a.request.tenant, a.arrival_time_s, b.arrival_time_s) == ("t", 0.0, 7.0)
    assert (a.num_known_tokens, a.num_computed_tokens, a.num_remaining_tokens, a.max_kv_tokens) == (
        8,
        7,
        3,
        10,
    )
    assert (a.num_blocks, a.num_exclusive_blocks, a.block_size) == (2, 1, 4)
    assert (b.num_known_tokens, b.num_computed_tokens, b.num_remaining_tokens, b.max_kv_tokens) == (
        10,
        9,
        3,
        12,
    )
    assert (b.num_blocks, b.num_exclusive_blocks) == (3, 2)


def test_a_waiting_request_holds_nothing(world):
    view = RequestView(world.scheduler._waiting.head(), world.kv)
    assert (view.num_blocks, view.num_exclusive_blocks, view.num_computed_tokens) == (0, 0, 0)


def test_nothing_can_be_changed_through_a_view(world):
    views = RequestViews(world.scheduler._running, world.kv)
    with pytest.raises(AttributeError):
        views[0].num_computed_tokens = 0
    with pytest.raises(TypeError):
        views[0] = views[1]


def test_views_are_a_sequence(world):
    views = RequestViews(world.scheduler._running, world.kv)
    assert len(views) == 2
    assert [view.request.request_id for view in views] == ["a", "b"]
    assert views[-1].request.request_id == "b"
    assert [view.request.request_id for view in views[1:]] == ["b"]
    with pytest.raises(IndexError):
        views[2]
