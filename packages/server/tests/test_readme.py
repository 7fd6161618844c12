import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_streams_from_a_server(serve_script, capsys, monkeypatch):
    server = serve_script("hello world", settings={"served_model_name": "smollm2"}, prompt_len=24)
    monkeypatch.setenv("NO_PROXY", "*")
    (example,) = blocks("python")
    exec(example.replace("http://127.0.0.1:8000", server.url), {})
    assert capsys.readouterr().out == "hello wo"
