"""Numbers of requests, rows or tokens, as a command line lists them."""

from minivllm_bench.errors import InvalidSetting


def parse_sizes(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 from a comma-separated list, in its order.

    Args:
        option: Whose value it is; named in the error.
        text: Such as "1,8,64".

    Raises:
        InvalidSetting: An entry is not a whole number of at least 1, or is named twice.
    """
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        if not (entry.isascii() and entry.isdecimal() and int(entry) >= 1):
            raise InvalidSetting(f"{option} names {entry!r}, it must be a whole number of at least 1")
        if entries.count(entry) > 1:
            raise InvalidSetting(f"{option} names {entry} twice")
    return tuple(int(entry) for entry in entries)
