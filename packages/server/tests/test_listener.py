import socket

import pytest

from minivllm_server.listener import AddressError, bind, url_of


def test_a_bound_port_has_a_url_and_refuses_connections_until_served():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=30).close()


def test_ipv6_urls_have_brackets():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listener = bind("::1", 0)
    except AddressError:
        pytest.skip("no IPv6 loopback here")
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            AddressError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"
        ):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["300.1.1.1", "192.0.2.1", "é..é", "x" * 300])
def test_an_address_of_no_interface_is_named(host):
    with pytest.raises(AddressError, match=f"cannot listen on {host}"):
        bind(host, 0)
