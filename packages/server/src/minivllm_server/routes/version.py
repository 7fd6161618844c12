"""`GET /version`."""

from fastapi import APIRouter

from minivllm_server.version import server_version

router = APIRouter()


@router.get("/version")
async def read_version() -> dict[str, str]:
    """Answers the version of the server package."""
    return {"version": server_version()}
