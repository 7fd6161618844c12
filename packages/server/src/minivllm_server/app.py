"""The FastAPI application: routes, error handlers and the state they share."""

import time

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_server.errors import install_error_handlers
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.metrics import ServerMetrics
from minivllm_server.protocol.error import ErrorResponse
from minivllm_server.routes import chat, completions, health, metrics, models, tokenize, version
from minivllm_server.routes.docs import install_docs
from minivllm_server.serving import Serving
from minivllm_server.settings import ServerSettings
from minivllm_server.tool_calls.formats import parser_of
from minivllm_server.version import server_version


def create_app(engine: AsyncEngine, settings: ServerSettings, metrics_folder: str | None = None) -> FastAPI:
    """Returns the application that answers with `engine`, which is started and stopped by the caller.

    `metrics_folder` is where several HTTP processes add their measurements up.
    """
    app = FastAPI(
        title="minivllm",
        version=server_version(),
        default_response_class=AsciiJSONResponse,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ErrorResponse}},
    )
    app.state.serving = Serving(
        engine=engine,
        model_names=settings.model_names,
        created=int(time.time()),
        max_choices=settings.max_num_waiting,
        max_body_bytes=settings.max_body_bytes,
        read_timeout_s=settings.read_timeout_s,
        engine_timeout_s=settings.engine_timeout_s,
        metrics=ServerMetrics(engine, settings.model_names[0], metrics_folder),
        clock=time.monotonic,
        log_prompts=settings.log_prompts,
        make_tool_parser=parser_of(settings.tool_call_format, engine.tokenizer.chat_template),
    )
    # Only says in the API document what is needed: keys are checked before any of this.
    key = [Depends(HTTPBearer(auto_error=False))] if settings.api_key or settings.api_key_file else []
    for route in (completions, chat, tokenize, models, metrics, version):
        app.include_router(route.router, dependencies=key)
    app.include_router(health.router)
    install_docs(app)
    install_error_handlers(app)
    return app
