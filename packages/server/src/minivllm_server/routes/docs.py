"""`GET /docs`: the interface, described by itself. All of the page comes from this server: it needs no internet."""

from typing import Final

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

_POLICY: Final = "default-src 'self' 'unsafe-inline'; img-src 'self' data:"
"""Whatever Swagger UI may want of another host, the browser does not ask for it."""


def install_docs(app: FastAPI) -> None:
    """Makes `app` serve the page, and below it the files of Swagger UI that `fastapi_offline` carries."""
    app.add_api_route("/docs", _show_docs, include_in_schema=False)
    app.mount("/docs", StaticFiles(packages=[("fastapi_offline", "static")]))


async def _show_docs(request: Request) -> HTMLResponse:
    # Relative addresses also hold behind a proxy that serves all of this below a path of its own.
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=request.app.title,
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )
    page.headers["content-security-policy"] = _POLICY
    return page
