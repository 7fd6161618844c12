import subprocess

import pytest

from minivllm_bench.machine import parse_cpuinfo, read_git, read_machine

X86 = """processor\t: 0
model name\t: AMD EPYC 9554
flags\t\t: fpu avx2 avx512_bf16

processor\t: 1
model name\t: Other
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16\n"


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text("1\n")
    (tmp_path / "uv.lock").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_the_first_cpu_speaks_for_all():
    assert parse_cpuinfo(X86) == ("AMD EPYC 9554", {"fpu", "avx2", "avx512_bf16"})
    assert parse_cpuinfo(ARM) == (None, {"fp", "asimd", "bf16"})
    assert parse_cpuinfo("") == (None, set())


def test_a_clean_checkout_has_a_commit_and_no_changes(checkout):
    commit, dirty = read_git(checkout / "package" / "code.py")
    assert len(commit) == 40
    assert not dirty


@pytest.mark.parametrize("path", ["package/code.py", "package/new.py", "new.py"])
def test_a_changed_or_new_file_anywhere_makes_a_checkout_dirty(checkout, path):
    (checkout / path).write_text("2\n")
    assert read_git(checkout / "package" / "code.py")[1]


def test_a_completed_lock_file_does_not(checkout):
    (checkout / "uv.lock").write_text("2\n")
    assert not read_git(checkout / "package" / "code.py")[1]


def test_a_file_that_no_checkout_tracks_has_no_commit(checkout, tmp_path_factory):
    (checkout / "installed.py").write_text("1\n")
    assert read_git(checkout / "installed.py") == (None, False)
    assert read_git(tmp_path_factory.mktemp("bare") / "code.py") == (None, False)


def test_this_machine_is_described():
    machine = read_machine()
    assert machine.cpu_model
    assert machine.num_cpus >= 1
    assert machine.memory_bytes > 2**27
    assert machine.versions["minivllm-bench"]
