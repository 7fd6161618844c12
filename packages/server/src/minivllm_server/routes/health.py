"""`GET /health`, and `HEAD` as load balancers ask it."""

from fastapi import APIRouter

from minivllm_runtime.errors import EngineDead
from minivllm_server.serving import ServingDependency

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health(serving: ServingDependency) -> dict[str, str]:
    """Answers 200 while the engine works and 503 once it is dead."""
    if not serving.engine.is_alive:
        raise EngineDead(serving.engine.error or "the engine is not running")
    return {"status": "ok"}
