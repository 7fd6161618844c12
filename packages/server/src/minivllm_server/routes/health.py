"""`GET /health`, and `HEAD` as load balancers ask it."""

from fastapi import APIRouter

from minivllm_runtime.errors import EngineDead
from minivllm_server.serving import ServingDependency

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health(serving: ServingDependency) -> dict[str, str]:
    """Answers 200 while the engine works, and 503 once it is dead or has not answered for too long."""
    engine = serving.engine
    if not engine.is_alive:
        raise EngineDead(engine.error or "the engine is not running")
    silence_s = engine.silence_s()
    if silence_s > serving.engine_timeout_s:
        raise EngineDead(
            f"the engine has not answered for {silence_s:.0f} s; it has {serving.engine_timeout_s:g} s for a step"
        )
    return {"status": "ok"}
