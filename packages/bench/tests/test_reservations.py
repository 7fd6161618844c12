import dataclasses

import pytest

from minivllm_bench.machine import read_machine
from minivllm_bench.reservations import caption, checkout_reservations, repeat_reservations


@pytest.mark.parametrize(
    ("commit", "dirty", "reasons"),
    [
        ("0123", False, ()),
        ("0123", True, ("the checkout has uncommitted changes",)),
        (None, False, ("not run from a checkout",)),
    ],
)
def test_figures_count_if_their_code_is_known(commit, dirty, reasons):
    machine = dataclasses.replace(read_machine(), git_commit=commit, git_dirty=dirty)
    assert checkout_reservations(machine) == reasons


def test_fewer_than_three_repeats_do_not_count():
    assert repeat_reservations(3) == ()
    assert repeat_reservations(2) == ("2 of at least 3 repeats",)


def test_a_caption_has_a_line_for_each_reason():
    assert caption("a machine", ()) == "a machine"
    lines = caption("a machine", ("it burnt", "it sank")).splitlines()
    assert lines == [
        "a machine",
        "These figures do not count: it burnt.",
        "These figures do not count: it sank.",
    ]
