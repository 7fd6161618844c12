import asyncio
import threading

import httpx
from starlette.responses import PlainTextResponse

from minivllm_server.admission import Admission


class Gate:
    """An application that answers once it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = asyncio.Event()
        self.loop = None

    async def __call__(self, scope, receive, send) -> None:
        self.loop = asyncio.get_running_loop()
        self.entered.set()
        await self.opened.wait()
        await PlainTextResponse("done")(scope, receive, send)


def test_after_closing_open_requests_finish_and_new_ones_get_503(serve_asgi):
    gate = Gate()
    admission = Admission(gate)
    url = serve_asgi(admission).url
    answers = []
    client = threading.Thread(target=lambda: answers.append(httpx.get(url, trust_env=False, timeout=30)))
    client.start()
    assert gate.entered.wait(30)

    idle = asyncio.run_coroutine_threadsafe(admission.idle(), gate.loop)
    admission.close()
    refused = httpx.post(url, content=b"x" * 100_000, trust_env=False, timeout=30)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "shutting_down"
    assert not idle.done()

    gate.loop.call_soon_threadsafe(gate.opened.set)
    client.join(30)
    assert answers[0].text == "done"
    idle.result(timeout=30)


def test_a_server_without_requests_is_idle():
    async def becomes_idle() -> bool:
        await Admission(PlainTextResponse("ok")).idle()
        return True

    assert asyncio.run(becomes_idle())
