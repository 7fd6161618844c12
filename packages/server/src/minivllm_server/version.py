"""The version of this package."""

from importlib.metadata import version


def server_version() -> str:
    """Returns the installed version, such as "0.1.0"."""
    return version("minivllm-server")
