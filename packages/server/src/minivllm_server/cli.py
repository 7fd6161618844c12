"""The `minivllm` command."""

import asyncio
import errno
import socket
import sys
import threading
from contextlib import closing, suppress
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from minivllm_runtime.errors import MinivllmError
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.api_processes import ApiProcessFailed
from minivllm_server.listener import AddressError, bind, url_of
from minivllm_server.loading import describe_engine, load_engine, load_engine_process
from minivllm_server.logs import configure_logging
from minivllm_server.optional_tracing import optional_tracing
from minivllm_server.options import InvalidOption, OptionValue, settings_from, with_options_of
from minivllm_server.setting_names import variable_of
from minivllm_server.settings import EngineSettings, ServerSettings
from minivllm_server.terminal import OutputFailed, announce, discard_output, tolerate_any_encoding, write
from minivllm_server.version import server_version

USAGE_ERROR = 2
FAILURE = 1
_ENDING_TIMEOUT_S = 15.0
"""How long an HTTP process may take to end once the time for its open requests is over."""

_VARIABLES = (
    f"Each option is also a variable: --max-num-seqs 8 is {variable_of('max_num_seqs')}=8. "
    "There several values are separated by commas."
)
_SOME_VARIABLES = f"From --model on, each option is also a variable: --dtype is {variable_of('dtype')}."

app = typer.Typer(
    help="minivllm: an LLM inference engine.",
    epilog="minivllm COMMAND --help lists the options of a command.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> int:
    """Runs the command line; whatever a user can mend is one line on stderr.

    Returns:
        The exit status: 0, 1 for a failure, 2 for a bad value, 130 for Ctrl-C where the command line library took it.

    Raises:
        KeyboardInterrupt: Ctrl-C elsewhere.
    """
    tolerate_any_encoding()
    try:
        status: int | None = app(standalone_mode=False)
    except typer.TyperException as error:
        return _complain(f"{error.format_message().rstrip('.')}; try --help", USAGE_ERROR)
    except InvalidOption as error:
        return _complain(str(error), USAGE_ERROR)
    except (MinivllmError, AddressError, ApiProcessFailed, OutputFailed) as error:
        return _complain(str(error), FAILURE)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EPIPE, errno.EIO}:
            raise
        # From the command line library's own help and messages.
        discard_output()
        return _complain(f"cannot write the output: {error.strerror}", FAILURE)
    return status or 0


@app.callback(invoke_without_command=True)
def show_help_or_version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Handles a command line without a command."""
    if version:
        write(f"minivllm {server_version()}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        write(f"{context.get_help()}\n")
        raise typer.Exit(USAGE_ERROR)


@app.command(epilog=_VARIABLES)
@with_options_of(ServerSettings)
def serve(**options: OptionValue) -> None:
    """Serve a model with the OpenAI API."""
    with settings_from(ServerSettings, options) as settings:
        configure_logging(settings.log_format, settings.log_level)
        engine_config = settings.engine_config()
        listener = bind(settings.host, settings.port)
        if settings.api_processes > 1:
            with listener:
                _serve_in_processes(settings, listener)
            return
        with listener, optional_tracing(settings.otlp_endpoint) as trace:
            _begin_to_import_web_stack()
            engine = load_engine(engine_config, Console(stderr=True))
            from minivllm_server.server import serve_engine

            announce(describe_engine(engine, settings.model))
            asyncio.run(
                serve_engine(
                    engine,
                    listener,
                    settings,
                    on_ready=lambda _server: announce(
                        f"minivllm is ready at {url_of(listener)} (Ctrl-C stops it)"
                    ),
                    trace=trace,
                )
            )


def _serve_in_processes(settings: ServerSettings, listener: socket.socket) -> None:
    from minivllm_server.api_processes import ApiProcesses, Assignment, Shared
    from minivllm_server.ledger import make_ledger
    from minivllm_server.shared_ledger import LedgerServer

    engine = load_engine_process(settings.engine_config(), Console(stderr=True))
    with (
        closing(engine),
        TemporaryDirectory(prefix="minivllm-") as folder,
        LedgerServer(make_ledger(settings), f"{folder}/ledger") as ledger,
    ):
        announce(describe_engine(engine, settings.model))
        assignment = Assignment(
            settings.model_dump(mode="json"),
            engine.address,
            listener.fileno(),
            Shared(folder, ledger.address),
        )
        stop_timeout_s = settings.drain_timeout_s + _ENDING_TIMEOUT_S
        ApiProcesses(assignment, settings.api_processes, stop_timeout_s=stop_timeout_s).serve(
            on_ready=lambda: announce(
                f"minivllm is ready at {url_of(listener)} with {settings.api_processes} HTTP processes "
                "(Ctrl-C stops it)"
            )
        )


@app.command(epilog=_SOME_VARIABLES)
@with_options_of(EngineSettings)
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue.", metavar="PROMPT")],
    chat: Annotated[
        bool, typer.Option("--chat", help="Put the text into the model's chat template.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to generate.", metavar="INTEGER")] = 64,
    temperature: Annotated[
        float, typer.Option(help="0 takes the most probable token.", metavar="NUMBER")
    ] = 0.0,
    top_p: Annotated[
        float, typer.Option(help="Mass of the most probable tokens to draw from.", metavar="NUMBER")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal texts.", metavar="INTEGER")] = None,
    **options: OptionValue,
) -> None:
    """Continue a text in the terminal."""
    with settings_from(EngineSettings, options) as settings:
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
        engine = load_engine(settings.engine_config(), Console(stderr=True), max_tokens=max_tokens)
        from minivllm_server.generate import generate_text

        generated = asyncio.run(generate_text(engine, prompt, params, chat=chat, write=write))
        write(f"\n\n{generated.num_tokens} tokens, {generated.tokens_per_s:.1f} tokens/s\n")


@app.command(epilog=_SOME_VARIABLES)
@with_options_of(EngineSettings)
def chat(
    system: Annotated[
        str | None, typer.Option(help="What the model is told before everything else.", metavar="TEXT")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens of an answer; unset: all the room.", metavar="INTEGER")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="0 takes the most probable token.", metavar="NUMBER")
    ] = 0.7,
    top_p: Annotated[
        float, typer.Option(help="Mass of the most probable tokens to draw from.", metavar="NUMBER")
    ] = 0.95,
    seed: Annotated[
        int | None, typer.Option(help="Equal seeds give equal answers.", metavar="INTEGER")
    ] = None,
    **options: OptionValue,
) -> None:
    """Talk to a model in the terminal."""
    with settings_from(EngineSettings, options) as settings:
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
        engine = load_engine(settings.engine_config(), Console(stderr=True), max_tokens=max_tokens)
        from minivllm_server.chat_command import converse

        converse(engine, params, system=system, write=write)


@app.command(epilog=_VARIABLES)
@with_options_of(EngineSettings)
def doctor(**options: OptionValue) -> None:
    """Check versions, devices, memory and the model."""
    with settings_from(EngineSettings, options) as settings:
        from minivllm_server.doctor import examine

        is_well = True
        for finding in examine(settings.engine_config()):
            is_well &= finding.is_good
            write(f"{'  ' if finding.is_good else '! '}{finding.subject:<20}{finding.text}\n")
    if not is_well:
        raise typer.Exit(FAILURE)


def _begin_to_import_web_stack() -> None:
    """Imports the web framework in a thread while the model is loaded, most of which needs no interpreter."""
    threading.Thread(target=_import_web_stack, daemon=True).start()


def _import_web_stack() -> None:
    with suppress(Exception):  # it fails where the process ends meanwhile; the main thread imports it again
        import_module("minivllm_server.server")


def _complain(message: str, status: int) -> int:
    one_line = " ".join(message.split())
    with suppress(OSError):
        print(f"minivllm: error: {one_line}", file=sys.stderr, flush=True)
    return status
