from minivllm_runtime.config import EngineConfig
from minivllm_server.doctor import LIBRARIES, OUR_PACKAGES, examine


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
