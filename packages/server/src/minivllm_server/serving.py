"""What every route needs: the engine, the names of the model and a few limits."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_server.errors import ApiError
from minivllm_server.exchange import Exchange
from minivllm_server.metrics import ServerMetrics
from minivllm_server.rate_limit import Clock
from minivllm_server.tool_calls.parser import MakeParser


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The state of a server, fixed while it runs.

    Attributes:
        engine: Generates; started.
        model_names: What a request's `model` may be; the first is the default.
        created: Unix time at which serving began.
        max_choices: Most `n × prompts` of one request: the length of the waiting queue.
        max_body_bytes: Larger bodies are refused.
        read_timeout_s: Within so long the body of a request must have come.
        engine_timeout_s: An engine that does not answer for longer counts as dead.
        metrics: What is measured.
        clock: The server's clock.
        log_prompts: Whether what clients ask is logged.
        make_tool_parser: Makes what finds tool calls in a text; None: nobody knows how the model writes them.
    """

    engine: AsyncEngine
    model_names: tuple[str, ...]
    created: int
    max_choices: int
    max_body_bytes: int
    read_timeout_s: float
    engine_timeout_s: float
    metrics: ServerMetrics
    clock: Clock
    log_prompts: bool
    make_tool_parser: MakeParser | None

    def resolve_model(self, name: str | None) -> str:
        """Returns the served name for the name a client sent, None for the default.

        Raises:
            ApiError: 404, the model is not served here.
        """
        if name is None:
            return self.model_names[0]
        if name not in self.model_names:
            raise ApiError(
                404,
                f"the model {name[:64]!r} does not exist; served here: {', '.join(self.model_names)}",
                param="model",
                code="model_not_found",
            )
        return name

    def note_prompt(self, exchange: Exchange, prompt: object) -> None:
        """Puts what a client asks into the log of its request, if that is wanted."""
        if self.log_prompts:
            exchange.details["prompt"] = prompt


async def serving_of(request: Request) -> Serving:
    """Returns the state that `create_app` put into the application."""
    serving: Serving = request.app.state.serving
    return serving


ServingDependency = Annotated[Serving, Depends(serving_of)]
