"""The page that describes the interface: whole without any other host, and readable in a real browser."""

import re
import shutil
import subprocess
from urllib.parse import urljoin

import httpx
import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
KEYED = {"api_key": ("ann:a-secret",)}


@pytest.fixture
def url(serve_script):
    """A server's whose clients need a key."""
    return serve_script("hello", settings=KEYED).url


def get(url):
    return httpx.get(url, trust_env=False, timeout=30)


def test_the_page_and_all_it_refers_to_come_from_this_server_without_a_key(url):
    page = get(f"{url}/docs")
    assert page.status_code == 200
    assert "//" not in re.sub(r"<!--.*?-->", "", page.text).replace("<!DOCTYPE", "")
    references = re.findall(r"""(?:href|src)="([^"]*)"|url: '([^']*)'""", page.text)
    addresses = {urljoin(f"{url}/docs", address) for pair in references for address in pair if address}
    assert len(addresses) == 4, addresses
    for address in addresses:
        assert address.startswith(url)
        assert get(address).status_code == 200, address


def test_the_browser_is_told_to_ask_no_other_host(url):
    policy = get(f"{url}/docs").headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "http" not in policy


@pytest.mark.parametrize("path", ["/docs/", "/docs/nothing.js", "/docs/../auth.py", "/redoc"])
def test_what_is_no_page_is_404_in_the_envelope(serve_script, path):
    answer = get(serve_script("hello").url + path)
    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}


def test_a_real_browser_shows_every_endpoint(url, tmp_path):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("needs Chromium")
    shown = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-proxy-server",
            f"--user-data-dir={tmp_path}",
            "--virtual-time-budget=20000",
            "--dump-dom",
            f"{url}/docs",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    for path in get(f"{url}/openapi.json").json()["paths"]:
        assert f'data-path="{path}"' in shown, path
