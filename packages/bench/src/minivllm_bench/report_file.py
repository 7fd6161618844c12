"""The files that a command writes: looked for before the work, so that no result is lost for want of a folder."""

from pathlib import Path

from minivllm_bench.errors import InvalidSetting


def require_folder(path: Path | None, option: str = "--json") -> None:
    """Refuse a file that could not be written.

    Args:
        path: What `option` names; None if it is not given.
        option: As on the command line.

    Raises:
        InvalidSetting: the file's folder does not exist.
    """
    if path is not None and not path.parent.is_dir():
        raise InvalidSetting(f"no folder {path.parent} for {option}")
