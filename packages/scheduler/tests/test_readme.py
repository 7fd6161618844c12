import re
from pathlib import Path


def test_the_example_does_what_it_says(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    example, printed = re.findall(r"```(?:python|text)\n(.*?)```", readme, re.DOTALL)[:2]
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed
