"""Reads and checks the address that a server listens on, as users write it."""

from __future__ import annotations

import ipaddress

_WAY_OUT = "must be 'HOST:PORT', as '127.0.0.1:9808' or '[::1]:9808'"

_MAX_PORT = 65_535


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of "HOST:PORT"; an IPv6 address is in brackets.

    Raises:
        ValueError: It is not an address; the message says how to write one.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(_WAY_OUT)
    if not host or not colon or not (port.isascii() and port.isdigit()):
        raise ValueError(_WAY_OUT)
    if int(port) > _MAX_PORT:
        raise ValueError(f"has a port above {_MAX_PORT}, the highest port")
    return host, int(port)


def url_of(host: str, port: int) -> str:
    """Return the URL by which this machine reaches a server that listens on a host and a port.

    If the host means all addresses, the URL has the loopback address.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        return f"http://127.0.0.1:{port}" if address.version == 4 else f"http://[::1]:{port}"
    return f"http://{address}:{port}" if address.version == 4 else f"http://[{address}]:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
