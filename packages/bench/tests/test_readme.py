import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run():
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(README), "exec"), {})
