import os

import pytest

from minivllm_runtime.host_memory import host_memory_bytes

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
V1, V2 = "sys/fs/cgroup/memory/{}/memory.limit_in_bytes", "sys/fs/cgroup/{}/memory.max"


def root_with(folder, groups, limits):
    for path, text in {"proc/self/cgroup": groups, **limits}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {V2.format("."): "1000000\n"}, 1_000_000),
        ("0::/\n", {V2.format("."): "max\n"}, PHYSICAL),
        ("0::/\n", {V2.format("."): f"{2 * PHYSICAL}\n"}, PHYSICAL),
        ("0::/a/b\n", {V2.format("a/b"): "max\n", V2.format("a"): "7\n", V2.format("."): "9\n"}, 7),
        ("0::/a\n", {V2.format("a"): "7\n", V2.format("other"): "1\n"}, 7),
        ("4:memory:/a\n3:cpu:/\n0::/\n", {V1.format("a"): "4096\n", V1.format("."): "9000\n"}, 4096),
        ("4:cpu,memory:/\n", {V1.format("."): "9223372036854771712\n"}, PHYSICAL),
        (
            "4:memory:/elsewhere\n",
            {V1.format("."): "5000\n"},
            5000,
        ),  # a container sees its own group as the root
        ("4:cpu:/a\n", {V1.format("a"): "4096\n"}, PHYSICAL),
        ("0::/a:b\n", {V2.format("a:b"): "8\n"}, 8),
        ("", {V2.format("."): "8\n"}, PHYSICAL),
    ],
)
def test_the_smallest_limit_around_the_process_counts(tmp_path, groups, limits, expected):
    assert host_memory_bytes(root_with(tmp_path, groups, limits)) == expected


def test_without_control_groups_the_machine_is_the_limit(tmp_path):
    assert host_memory_bytes(tmp_path) == PHYSICAL


def test_this_process_has_memory():
    assert 0 < host_memory_bytes() <= PHYSICAL
