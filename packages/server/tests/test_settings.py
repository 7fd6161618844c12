from dataclasses import fields

import pytest
from pydantic import ValidationError

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.errors import InvalidParameter
from minivllm_server.settings import EngineSettings, ServerSettings


def test_defaults_are_those_of_the_engine():
    assert EngineSettings().engine_config() == EngineConfig()


def test_every_field_of_the_engine_can_be_set():
    assert set(EngineSettings.model_fields) == {field.name for field in fields(EngineConfig)}


def test_a_variable_sets_what_no_flag_sets(monkeypatch):
    monkeypatch.setenv("MINIVLLM_PORT", "8123")
    monkeypatch.setenv("MINIVLLM_DTYPE", "float32")
    monkeypatch.setenv("MINIVLLM_ENABLE_PREFIX_CACHING", "false")
    monkeypatch.setenv("MINIVLLM_NUM_BLOCKS", "")
    settings = ServerSettings(port="9000")
    assert settings.port == 9000
    assert settings.engine_config() == EngineConfig(dtype="float32", enable_prefix_caching=False)


def test_flags_are_strings():
    config = EngineSettings(num_blocks="64", max_num_seqs="4", model="some/folder").engine_config()
    assert config == EngineConfig(num_blocks=64, max_num_seqs=4, model="some/folder")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("port", "65536"),
        ("port", "-1"),
        ("port", "http"),
        ("dtype", "int4"),
        ("device", "tpu"),
        ("max_body_bytes", "0"),
        ("drain_timeout_s", "-1"),
        ("drain_timeout_s", "nan"),
        ("write_timeout_s", "0"),
        ("read_timeout_s", "inf"),
        ("engine_timeout_s", "0"),
        ("engine_timeout_s", "inf"),
        ("served_model_name", ""),
        ("served_model_name", "a,,b"),
        ("requests_per_minute", "0"),
        ("trusted_proxy", "proxy.example"),
        ("scheduling_policy", "random"),
        ("cors_allow_origin", ""),
        ("cors_allow_origin", "example.com"),
        ("cors_allow_origin", "https://example.com/"),
        ("cors_allow_origin", "https://Example.com"),
        ("cors_allow_origin", "https://*.example.com"),
        ("otlp_endpoint", ""),
        ("otlp_endpoint", "collector:4318"),
        ("otlp_endpoint", "http:///v1/traces"),
        ("otlp_endpoint", "http://[collector"),
    ],
)
def test_a_bad_value_is_refused_by_name(name, bad):
    with pytest.raises(ValidationError) as caught:
        ServerSettings(**{name: bad})
    assert caught.value.errors()[0]["loc"] == (name,)


def test_ranges_of_the_engine_are_the_engines():
    with pytest.raises(InvalidParameter, match="block_size must be at least 1, got 0"):
        EngineSettings(block_size="0").engine_config()
    with pytest.raises(InvalidParameter, match="model must not be empty"):
        EngineSettings(model="").engine_config()


@pytest.mark.parametrize("origin", ["*", "null", "https://example.com", "http://[::1]:3000", "app://x"])
def test_what_browsers_send_is_an_origin(origin):
    assert ServerSettings(cors_allow_origin=[origin]).cors_allow_origin == (origin,)


@pytest.mark.parametrize("kind", [EngineSettings, ServerSettings])
@pytest.mark.parametrize(
    ("name", "nearest"),
    [("MINIVLLM_API_KEYSS", "MINIVLLM_API_KEYS"), ("MINIVLLM_NUM_BLOKCS", "MINIVLLM_NUM_BLOCKS")],
)
@pytest.mark.parametrize("value", ["x", ""])
def test_an_unknown_variable_is_refused_with_the_nearest_one(monkeypatch, kind, name, nearest, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=f"{name} is no setting; the nearest is {nearest}"):
        kind()


def test_every_command_takes_the_variables_of_all(monkeypatch):
    monkeypatch.setenv("MINIVLLM_API_KEYS", "a")
    monkeypatch.setenv("MINIVLLM_PORT", "1")
    assert EngineSettings() == EngineSettings(model="smollm2")


@pytest.mark.parametrize("variable", ["MINIVLLM_API_KEY", "MINIVLLM_API_KEYS", "MINIVLLM_API_KEY_FILE"])
def test_an_empty_variable_does_not_open_the_server(monkeypatch, variable):
    monkeypatch.setenv(variable, "")
    with pytest.raises(ValidationError, match=f"{variable} is empty"):
        ServerSettings()
    assert ServerSettings(api_key=["a"]).key_ring() is not None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ("m",)),
        ({"served_model_name": "a"}, ("a",)),
        ({"served_model_name": "a, b"}, ("a", "b")),
        ({"served_model_name": ["a", "b"]}, ("a", "b")),
    ],
)
def test_the_model_is_served_under_its_own_name_unless_others_are_given(given, names):
    assert ServerSettings(model="m", **given).model_names == names


@pytest.mark.parametrize("variable", ["MINIVLLM_API_KEY", "MINIVLLM_API_KEYS"])
def test_keys_come_from_a_flag_a_variable_or_a_file(monkeypatch, tmp_path, variable):
    path = tmp_path / "keys"
    path.write_text("carl:c\n")
    monkeypatch.setenv(variable, "ann:a, bob:b")
    assert [key.name for key in ServerSettings().key_ring().keys] == ["ann", "bob"]
    assert [key.name for key in ServerSettings(api_key=["x:y"]).key_ring().keys] == ["x"]
    both = ServerSettings(api_key_file=str(path))
    assert [key.name for key in both.key_ring().keys] == ["ann", "bob", "carl"]


def test_keys_without_a_name_are_called_by_their_place(tmp_path):
    path = tmp_path / "keys"
    path.write_text("x\ny\n")
    keys = ServerSettings(api_key=["a", "ann:b", "c"], api_key_file=str(path)).key_ring().keys
    assert [key.name for key in keys] == ["key1", "ann", "key3", "line1", "line2"]


def test_a_variable_of_another_program_is_no_key(monkeypatch):
    monkeypatch.setenv("API_KEY", "ann:a")
    assert ServerSettings().key_ring() is None


def test_limits_without_a_key_contradict():
    with pytest.raises(InvalidParameter, match="limit API keys"):
        ServerSettings(tokens_per_minute="5").key_ring()


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, "fcfs"),
        ({"api_key": ["a"]}, "fcfs"),
        ({"api_key": ["a", "b"]}, "fair"),
        ({"api_key": ["a", "b"], "scheduling_policy": "fcfs"}, "fcfs"),
        ({"scheduling_policy": "priority"}, "priority"),
    ],
)
def test_several_keys_share_fairly_unless_told_otherwise(given, policy):
    assert ServerSettings(**given).engine_config().scheduling_policy == policy
