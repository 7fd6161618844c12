import re
from pathlib import Path

from minivllm_scheduler import Request

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python|text)\n(.*?)```", README, re.DOTALL)
EXAMPLE, PRINTED, POLICIES, RECORDINGS, SIMULATION, SIMULATED = BLOCKS


def run(example):
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    return names


def test_the_example_does_what_it_says(capsys):
    run(EXAMPLE)
    assert capsys.readouterr().out == PRINTED


def test_the_policies_are_asked():
    names = run(POLICIES)
    scheduler = names["scheduler"]
    for request_id, num_tokens in (("long", 9), ("short", 2)):
        scheduler.add(
            [Request(request_id=request_id, prompt_token_ids=range(num_tokens), max_tokens=4)], now=0.0
        )
    assert [row.request_id for row in scheduler.schedule(0.0).rows] == ["short", "long"]
    assert scheduler.stats().total_policy_faults == 0


def test_a_recording_is_replayed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run(EXAMPLE + RECORDINGS)
    assert capsys.readouterr().out.splitlines()[-1] == "None"
    assert (tmp_path / "run.jsonl").read_text().startswith('{"event":"setup","schema":1,')


def test_the_simulation_finds_what_it_says(capsys):
    run(SIMULATION)
    assert capsys.readouterr().out == SIMULATED
