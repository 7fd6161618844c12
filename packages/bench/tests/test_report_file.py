import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.report_file import require_folder


def test_a_file_in_a_folder_or_no_file_at_all_is_fine(tmp_path):
    require_folder(tmp_path / "new.json")
    require_folder(None)


def test_a_missing_folder_is_named_with_the_option(tmp_path):
    with pytest.raises(InvalidSetting, match=r"^no folder .*/missing for --plot$"):
        require_folder(tmp_path / "missing" / "x.svg", "--plot")
