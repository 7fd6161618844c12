"""The socket the server listens on, bound before anything slow happens."""

import socket


class AddressError(OSError):
    """The address cannot be listened on; the message is one line that says why."""


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket bound to `host` and `port` (0: a free one), not yet listening.

    Raises:
        AddressError: The port is taken, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressError(f"cannot listen on {host}: {error.strerror}") from error
    except UnicodeError as error:  # the codec of host names refuses it before anybody is asked
        raise AddressError(f"cannot listen on {host}: not a host name") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise AddressError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Returns the URL under which a bound socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"
