import pytest

from minivllm_server.setting_names import SettingNames

SETTINGS = ("device", "max_num_seqs", "max_num_seqs_more", "num_blocks")


@pytest.mark.parametrize(
    ("message", "subject", "told"),
    [
        (
            "max_num_seqs must be at least 1, got 0",
            "max_num_seqs",
            "--max-num-seqs must be at least 1, got 0",
        ),
        (
            "num_blocks (1) is below max_num_seqs (2)",
            "num_blocks",
            "MINIVLLM_NUM_BLOCKS (1) is below --max-num-seqs (2)",
        ),
        (
            "device is cuda, but there is no CUDA device",
            "device",
            "--device is cuda, but there is no CUDA device",
        ),
        ("no device for max_num_seqs_more", None, "no device for --max-num-seqs-more"),
        ("the prompt and max_tokens are too long", "max_tokens", "the prompt and --max-tokens are too long"),
        ("max_tokens is not known here", None, "max_tokens is not known here"),
        ("cannot read num_blocks/file or 'num_blocks'", None, "cannot read num_blocks/file or 'num_blocks'"),
        ("line 3 is not num_blocks=N", None, "line 3 is not num_blocks=N"),
    ],
)
def test_messages_name_settings_as_the_user_gave_them(message, subject, told):
    assert SettingNames(SETTINGS, {"num_blocks"}).in_message(message, subject) == told
