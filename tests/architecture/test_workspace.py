"""What holds for the workspace as a whole: the lock file, the packages' papers, what may be imported where."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "packages").glob("*/pyproject.toml"))
names = pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)


def imports_of(path: Path) -> set[str]:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    return imported


def test_the_committed_lock_file_names_no_address():
    committed = subprocess.run(
        ["git", "show", "HEAD:uv.lock"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "://" not in committed.stdout


def test_the_lock_file_strips_to_itself():
    script = ROOT / "scripts" / "strip_lock.py"
    committed = subprocess.run(
        ["git", "show", "HEAD:uv.lock"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    program = (
        f"import runpy, sys; print(runpy.run_path({str(script)!r})['strip_lock'](sys.stdin.read()), end='')"
    )
    again = subprocess.run(
        [sys.executable, "-c", program], input=committed.stdout, capture_output=True, text=True, check=True
    )
    assert again.stdout == committed.stdout


@names
def test_every_package_has_its_papers(package):
    for name in (
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "tests",
        f"src/minivllm_{package.name}/py.typed",
    ):
        assert (package / name).exists(), name
    metadata = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert f"## {metadata['version']}" in (package / "CHANGELOG.md").read_text()


@names
def test_every_import_of_ours_is_declared(package):
    metadata = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    extras = metadata.get("optional-dependencies", {}).values()
    declared = {
        requirement.split(">")[0].replace("-", "_")
        for requirement in [*metadata["dependencies"], *(r for extra in extras for r in extra)]
        if requirement.startswith("minivllm-")
    }
    used = {
        name.split(".")[0]
        for path in (package / "src").rglob("*.py")
        for name in imports_of(path)
        if name.startswith("minivllm_")
    }
    assert used - {f"minivllm_{package.name}"} <= declared


def test_the_runtime_takes_no_models_or_caches_from_transformers():
    for package in ("runtime", "server"):
        for path in (ROOT / "packages" / package / "src").rglob("*.py"):
            for name in imports_of(path):
                if name.startswith("transformers"):
                    forbidden = ("modeling", "Model", "Cache", "generation")
                    assert not any(word in name for word in forbidden), f"{path.name} imports {name}"


def test_the_text_side_of_the_engine_loads_without_torch():
    program = (
        "import sys\n"
        "import minivllm_runtime.engine.output_processor, minivllm_runtime.engine.input_processor\n"
        "print([name for name in ('torch', 'triton', 'transformers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
