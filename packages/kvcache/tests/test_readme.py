import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_prints_what_the_readme_says():
    text = README.read_text(encoding="utf-8")
    example, printed = (
        re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL).group(1) for kind in ("python", "text")
    )
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (printed, "")
