"""Names settings as an app's users write them: with a namespace prefix in Django projects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.settings import PREFIX

_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def naming(app: Any) -> Callable[[str], str]:
    """Return a function that puts the app's namespace before each setting named in a text.

    `task_acks_late` becomes `CELERY_TASK_ACKS_LATE`. With a namespace, Celery reads no other name.
    """
    namespace = getattr(app, "namespace", None)
    if not namespace:
        return str

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        is_setting = name.startswith(PREFIX) or name in app.conf
        return f"{namespace}_{name.upper()}" if is_setting else name

    return lambda text: _NAME.sub(rename, text)
