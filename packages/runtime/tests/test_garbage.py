import gc
from contextlib import suppress

import pytest

from minivllm_runtime.garbage import collection_held_off


@pytest.fixture(params=[True, False], ids=["enabled before", "disabled before"])
def was_enabled(request):
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


def test_collection_is_as_before_also_after_a_failure(was_enabled):
    with suppress(ValueError), collection_held_off():
        assert not gc.isenabled()
        int("no number")
    assert gc.isenabled() == was_enabled
