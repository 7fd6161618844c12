"""Making very many objects at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_held_off() -> Iterator[None]:
    """Keeps the garbage collector from walking the lists of a large JSON text again and again while they are made.

    For all threads: keep what is done meanwhile short.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
