"""Plain HTTP on loopback, and the simulated SQS's calls besides its API."""

from __future__ import annotations

import requests


def direct_session() -> requests.Session:
    """Return a session that goes through no web proxy."""
    session = requests.Session()
    session.trust_env = False
    return session


def advance(server_url: str, seconds: float) -> None:
    """Move the clock of a simulated SQS forward."""
    with direct_session() as session:
        answer = session.post(f"{server_url}/_advance", json={"seconds": seconds})
        answer.raise_for_status()
