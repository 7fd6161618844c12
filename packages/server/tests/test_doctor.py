import pytest

from minivllm_runtime.config import EngineConfig
from minivllm_server.doctor import LIBRARIES, OUR_PACKAGES, examine

from .test_cli import needs_smollm2


def findings_of(**config):
    return {finding.subject: finding for finding in examine(EngineConfig(**config))}


def test_versions_devices_and_model_are_told(tmp_path):
    findings = findings_of(model=str(tmp_path))
    assert {*OUR_PACKAGES, *LIBRARIES, "system", "cpu", "model"} <= set(findings)
    assert "GiB free" in findings["cpu"].text


def test_a_model_of_a_hub_is_not_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = findings_of(model="someone/nothing")["model"]
    assert (model.is_good, model.text) == (
        True,
        "someone/nothing: not on this machine; a hub is asked for it when it is loaded",
    )


def test_a_model_that_cannot_be_served_is_a_bad_sign(tmp_path):
    model = findings_of(model=str(tmp_path))["model"]
    assert not model.is_good
    assert str(tmp_path) in model.text


@needs_smollm2
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_model_len": 100_000}, "max_model_len (100000)"),
        ({"num_blocks": 10**11}, "num_blocks (100000000000)"),
        ({"num_blocks": 64, "max_model_len": 2048}, "max_model_len (2048)"),
        ({"load_format": "dummy"}, "load_format dummy"),
    ],
)
def test_settings_that_do_not_fit_are_a_bad_sign(settings, named):
    model = findings_of(**settings)["model"]
    assert not model.is_good
    assert named in model.text
