"""`GET /v1/models` and `GET /v1/models/{name}`."""

from fastapi import APIRouter

from minivllm_server.protocol.model_list import ModelCard, ModelList
from minivllm_server.serving import Serving, ServingDependency

router = APIRouter()


@router.get("/v1/models")
async def list_models(serving: ServingDependency) -> ModelList:
    """Lists every name the model is served under."""
    return ModelList(data=[_card(name, serving) for name in serving.model_names])


@router.get("/v1/models/{name:path}")
async def retrieve_model(name: str, serving: ServingDependency) -> ModelCard:
    """Describes the model; 404 if it is not served here."""
    return _card(serving.resolve_model(name), serving)


def _card(name: str, serving: Serving) -> ModelCard:
    return ModelCard(id=name, created=serving.created, max_model_len=serving.engine.max_model_len)
