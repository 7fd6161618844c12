import re
import shlex
from pathlib import Path

import pytest
import typer

from minivllm_bench.cli import app

README = Path(__file__).parents[1] / "README.md"
PAGES = sorted((README.parent / "docs").glob("*.md"))
COMMANDS = typer.main.get_command(app).commands
PAGE_OF = {"truth": "calibrate"}


def options_of(command):
    """Its options as users write them; of a switch the positive form."""
    return {parameter.opts[0] for parameter in COMMANDS[command].params}


def documented(page):
    """The options in the first column of the page's tables, by the command that owns them."""
    found, owner = {}, page.stem
    for line in page.read_text().splitlines():
        if heading := re.match(r"\| option(?: of `(\w+)`)?[^|]*\|", line):
            owner = heading[1] or page.stem
        elif line.startswith("| `--"):
            cell = line.split("|")[1].replace("[no-]", "")
            found.setdefault(owner, set()).update(re.findall(r"`(--[a-z-]+)`", cell))
    return found


def test_the_examples_run():
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(README), "exec"), {})


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_that_the_readme_points_to_and_that_names_its_options(command):
    page = README.parent / "docs" / f"{PAGE_OF.get(command, command)}.md"
    assert f"`{command}`" in README.read_text()
    assert documented(page)[command] == options_of(command)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page):
    text = page.read_text().replace("\\\n", " ")
    lines = [
        shlex.split(line) for line in re.findall(r"^ {4}uv run minivllm-bench (.*)$", text, re.MULTILINE)
    ]
    assert lines
    for command, *arguments in lines:
        assert {word.replace("--no-", "--") for word in arguments if word.startswith("--")} <= options_of(
            command
        )
