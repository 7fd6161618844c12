"""`GET /metrics`."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from minivllm_server.serving import ServingDependency

router = APIRouter()


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def read_metrics(serving: ServingDependency) -> Response:
    """Answers what was measured, in Prometheus' text format."""
    return Response(generate_latest(await serving.metrics.collected()), media_type=CONTENT_TYPE_LATEST)
