"""When the status page needs a token."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.observe.status.http import token_fault

TOKEN = "a-long-and-random-text"


@pytest.mark.parametrize(
    ("host", "token", "fault"),
    [
        ("127.0.0.1", None, None),
        ("::1", None, None),
        ("localhost", None, None),
        ("127.0.0.1", TOKEN, None),
        ("0.0.0.0", TOKEN, None),
        ("0.0.0.0", "with blanks between", "visible ASCII characters"),
        ("0.0.0.0", None, "other machines can reach"),
        ("::", None, "other machines can reach"),
        ("worker.example", None, "other machines can reach"),
        ("localhost.example", None, "other machines can reach"),
        ("0.0.0.0", "", "at least 16"),
        ("127.0.0.1", "short", "at least 16"),
        ("127.0.0.1", f" {TOKEN}", "visible ASCII characters"),
        ("127.0.0.1", f"{TOKEN}\r\nX: y", "ASCII characters"),
        ("127.0.0.1", "schlüssel-schlüssel", "ASCII characters"),
    ],
)
def test_a_token_is_needed_where_other_machines_can_connect(
    host: str, token: str | None, fault: str | None
) -> None:
    found = token_fault(host, token)
    assert found is None if fault is None else fault in (found or "")
