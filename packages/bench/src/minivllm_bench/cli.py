"""The command line `minivllm-bench`."""

import sys
from collections.abc import Sequence

import typer

from minivllm_bench.command_options import command
from minivllm_bench.errors import BenchError, InvalidSetting
from minivllm_bench.kernels_command import kernels
from minivllm_bench.live.cli import CalibrateOptions, TruthOptions, calibrate_engine, truth
from minivllm_bench.offline_command import OfflineOptions, offline
from minivllm_bench.scheduler_command import scheduler
from minivllm_bench.serve.cli import serve
from minivllm_bench.serve.options import ServeOptions
from minivllm_bench.simulate.cli import simulate
from minivllm_bench.simulate.options import SimulateOptions
from minivllm_bench.soak.cli import soak
from minivllm_bench.soak.options import SoakOptions

USAGE_ERROR = 2
FAILURE = 1
INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command("offline")(command(OfflineOptions, offline))
app.command()(scheduler)
app.command()(kernels)
app.command("serve")(command(ServeOptions, serve))
app.command("soak")(command(SoakOptions, soak))
app.command("simulate")(command(SimulateOptions, simulate))
app.command("calibrate")(command(CalibrateOptions, calibrate_engine))
app.command("truth")(command(TruthOptions, truth))


@app.callback()
def bench() -> None:
    """Measure minivllm against its peers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a failure is one line on stderr.

    Args:
        arguments: In place of the process's own.

    Returns:
        The exit status: 0, 1 for a failure, 2 for a bad value, 130 when interrupted.
    """
    try:
        status = app(None if arguments is None else list(arguments), standalone_mode=False)
    except InvalidSetting as error:
        return _complain(str(error), USAGE_ERROR)
    except typer.TyperException as error:
        return _complain(error.format_message(), error.exit_code)
    except (BenchError, OSError) as error:
        return _complain(str(error), FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _complain(message: str, status: int) -> int:
    print(f"minivllm-bench: {' '.join(message.split())}", file=sys.stderr)
    return status
