"""The README's example prints what such an engine must."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_example_runs():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    program = re.search(r"```python\n(.*?)```", readme, flags=re.S)[1]
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    france, numbers = result.stdout.splitlines()
    assert france == "' Paris.' stop 5"
    assert re.fullmatch(r"' 5, 6,?' length 11", numbers)
