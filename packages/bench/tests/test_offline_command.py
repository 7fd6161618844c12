import pytest

from minivllm_bench.cli import main

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engines", "sglang"], "'sglang'"),
        (["--engines", "hf,hf"], "hf is named twice"),
        (["--engines", "hf,"], "empty engine name"),
        (["--engines", "vllm"], "--vllm-python"),
        (["--engines", "nano-vllm"], "--nano-vllm-python"),
        (["--temperature", "-1"], "--temperature"),
        (["--workloads", "decode_b0"], "'decode_b0'"),
        (["--workloads", ""], "empty workload name"),
        (["--repeats", "0"], "--repeats"),
        (["--output-len", "0"], "--output-len"),
        (["--input-len", "-4"], "--input-len"),
        (["--num-threads", "0"], "--num-threads"),
        (["--seed", "x"], "--seed"),
        (["--dtype", "int3"], "int3"),
        (["--device", "tpu"], "tpu"),
        (["--json", "no/such/folder/x.json"], "no/such/folder"),
        (["--bogus"], "--bogus"),
    ],
)
def test_a_bad_value_is_one_line_and_status_2(arguments, named, capsys):
    assert main(["offline", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minivllm-bench: ")
    assert err.count("\n") == 1
    assert named in err


def test_a_missing_model_is_one_line_and_status_1(capsys):
    assert main(["offline", "--engines", "hf", "--model", "/no/such/model", "--dtype", "float32"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "minivllm-bench: no folder /no/such/model"
