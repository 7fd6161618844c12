import subprocess
from pathlib import Path

import pytest

from minivllm_kernels.cpu import library
from minivllm_kernels.errors import CpuKernelsUnavailable


@pytest.fixture(autouse=True)
def _needs_the_kernels(ops):
    """Skips where they cannot run; this also compiles them once."""


def test_a_second_load_compiles_nothing(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: pytest.fail("compiled again"))
    assert library.load_library().linear


def test_without_a_compiler_the_reason_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CpuKernelsUnavailable, match="gcc"):
        library.load_library()


def test_a_home_that_cannot_be_written_is_no_obstacle(monkeypatch, tmp_path):
    home = tmp_path / "file instead of a folder"
    home.write_text("")
    monkeypatch.setenv("HOME", str(home))
    assert library.load_library().linear


def test_compiles_into_the_home_and_leaves_one_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    library.load_library()
    left = [path.name for path in Path(tmp_path, ".cache", "minivllm").iterdir()]
    assert len(left) == 1
    assert left[0].endswith(".so")


def test_no_warning_in_the_sources(tmp_path):
    flags = [*library._FLAGS, "-fopenmp", "-c", "-o", str(tmp_path / "compiled.o")]
    for source in library._SOURCES:
        command = ["gcc", *flags, str(library._SOURCE_FOLDER / source)]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stderr == ""
