"""`POST /tokenize` and `POST /detokenize`."""

from fastapi import APIRouter

from minivllm_server.json_request import JSONRoute
from minivllm_server.protocol.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from minivllm_server.serving import ServingDependency

router = APIRouter(route_class=JSONRoute)


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, serving: ServingDependency) -> TokenizeResponse:
    """Encodes a text or a conversation as a request for text would."""
    serving.resolve_model(body.model)
    engine = serving.engine
    if body.prompt is not None:
        token_ids = await engine.tokenize(
            body.prompt, add_special_tokens=body.add_special_tokens is not False
        )
    else:
        token_ids = await engine.encode_chat(
            [message.to_template() for message in body.messages or ()],
            [tool.to_template() for tool in body.tools] if body.tools else None,
            body.chat_template_kwargs,
        )
    return TokenizeResponse(tokens=list(token_ids), count=len(token_ids), max_model_len=engine.max_model_len)


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, serving: ServingDependency) -> DetokenizeResponse:
    """Decodes token ids."""
    serving.resolve_model(body.model)
    return DetokenizeResponse(prompt=await serving.engine.detokenize(body.tokens))
