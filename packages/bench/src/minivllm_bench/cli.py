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

app = typer.Typer(
    epilog="minivllm-bench COMMAND --help lists the options of a command.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("offline", short_help="Compare engines on whole batches.")(command(OfflineOptions, offline))
app.command(short_help="Time the scheduler and the block allocator alone.")(scheduler)
app.command(short_help="Time a decoder's operations on a CUDA device.")(kernels)
app.command("serve", short_help="Put servers of the OpenAI API under load.")(command(ServeOptions, serve))
app.command("soak", short_help="Let clients of every kind loose on a server.")(command(SoakOptions, soak))
app.command("simulate", short_help="Run the scheduler on a virtual clock.")(
    command(SimulateOptions, simulate)
)
app.command("calibrate", short_help="Fit a cost model for simulate to this machine.")(
    command(CalibrateOptions, calibrate_engine)
)
app.command("truth", short_help="Compare a simulation with the real run.")(command(TruthOptions, truth))


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Measure minivllm against its peers."""
    if context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")
        raise typer.Exit(USAGE_ERROR)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a failure is one line on stderr.

    Args:
        arguments: In place of the process's own.

    Returns:
        The exit status: 0, 1 for a failure, 2 for a bad value, 130 for Ctrl-C where the command line library took it.

    Raises:
        KeyboardInterrupt: Ctrl-C elsewhere.
    """
    try:
        status = app(None if arguments is None else list(arguments), standalone_mode=False)
    except InvalidSetting as error:
        return _complain(str(error), USAGE_ERROR)
    except typer.TyperException as error:
        return _complain(f"{error.format_message().rstrip('.')}; try --help", error.exit_code)
    except (BenchError, OSError) as error:
        return _complain(str(error), FAILURE)
    return status if isinstance(status, int) else 0


def _complain(message: str, status: int) -> int:
    print(f"minivllm-bench: {' '.join(message.split())}", file=sys.stderr)
    return status
