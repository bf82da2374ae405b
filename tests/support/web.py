"""Plain HTTP on loopback."""

from __future__ import annotations

import requests


def direct_session() -> requests.Session:
    """Return a session that goes through no web proxy."""
    session = requests.Session()
    session.trust_env = False
    return session
