from minivllm_scheduler.request import TOKEN_ID_LIMIT
from minivllm_scheduler.simulation.traffic import SAMPLED_TOKEN_ID, STOP_TOKEN_ID, FreshTokenIds


def test_no_id_is_handed_out_twice():
    ids = FreshTokenIds()
    first, second = ids.take(3), ids.take(4)
    assert (len(first), len(second)) == (3, 4)
    assert not {SAMPLED_TOKEN_ID, STOP_TOKEN_ID, *first} & {*second}
    assert not {SAMPLED_TOKEN_ID, STOP_TOKEN_ID} & {*first}


def test_ids_stay_below_the_limit():
    ids = FreshTokenIds()
    ids.take(TOKEN_ID_LIMIT - 4)
    assert ids.take(2)[-1] == TOKEN_ID_LIMIT - 1
    assert ids.take(2) == range(2, 4)
