"""Reads and checks what users write of places: of a server, its token, and of a journal."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ADDRESS = "must be 'HOST:PORT', as '127.0.0.1:9808' or '[::1]:9808'"

_MAX_PORT = 65_535
#: The fewest characters of a token: shorter ones can be guessed by trial.
SHORTEST_TOKEN = 16

#: The prefix of a place on S3, as users write it.
S3 = "s3://"
_TARGET = "must be a folder, or s3://BUCKET/PREFIX"


def parse_address(text: Any) -> tuple[str, int]:
    """Return the host and the port of "HOST:PORT"; an IPv6 address is in brackets.

    Raises:
        ValueError: It is not an address; the message says how to write one.
    """
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(_ADDRESS)
    if not host or not colon or not (port.isascii() and port.isdigit()):
        raise ValueError(_ADDRESS)
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


def token_fault(value: Any) -> str | None:
    """Return the fault of a secret text that is sent in a header, or None."""
    sendable = isinstance(value, str) and all("!" <= character <= "~" for character in value)
    if not sendable or len(value) < SHORTEST_TOKEN:
        return f"must be at least {SHORTEST_TOKEN} visible ASCII characters that no one can guess"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The S3 place of segments: `PREFIX/dt=.../worker=.../seg-N.jsonl.zst`, always the same."""

    bucket: str
    prefix: str

    def key(self, path: Path) -> str:
        """Return the key of a segment, by its path below the spool."""
        return "/".join(filter(None, (self.prefix, path.as_posix())))


def parse_target(target: Any) -> Path | Destination:
    """Return the folder or the S3 prefix that a setting names.

    Raises:
        ValueError: It names neither; the message says how to write one.
    """
    if not isinstance(target, str) or not target.strip():
        raise ValueError(_TARGET)
    if not target.startswith(S3):
        if "://" in target:
            raise ValueError(_TARGET)
        return Path(target).expanduser()
    bucket, _, prefix = target.removeprefix(S3).rstrip("/").partition("/")
    parts = (bucket, *prefix.split("/")) if prefix else (bucket,)
    # Each part is also the name of a folder in the spool.
    if not all(part.strip(".") for part in parts):
        raise ValueError(_TARGET)
    return Destination(bucket=bucket, prefix=prefix)
