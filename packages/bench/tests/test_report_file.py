import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.report_file import require_folder


def test_only_a_missing_folder_is_refused_and_named_with_the_option(tmp_path):
    require_folder(None)
    require_folder(tmp_path / "new.json")
    with pytest.raises(InvalidSetting, match=r"^no folder .*/missing for --json$"):
        require_folder(tmp_path / "missing" / "x.json")
    with pytest.raises(InvalidSetting, match=r"^no folder .*/missing for --plot$"):
        require_folder(tmp_path / "missing" / "x.svg", "--plot")
