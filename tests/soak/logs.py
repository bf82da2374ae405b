"""Reads what a worker's log reports about its keeper."""

from __future__ import annotations

import re

from tests.soak.member import Member

#: A keeper was lost, and another continues its leases.
_LOST = re.compile(r"the keeper's process .*; another starts ")
#: Causes with which a message was never meant to be released.
_NEVER_RELEASED = r"\((?:kept|arrived late|not settled)\)"
#: A release is not tried again. A release that stops a message group has another wording.
_LAPSING = re.compile(
    rf"message-lapsing: (?!.*{_NEVER_RELEASED}(?:$|: ))"
    r"(?:group .*? stopped .*?: )?message ([\w-]+)",
    re.MULTILINE,
)
#: The kinds of harm after which a keeper may be lost.
_DEADLY = ("keeper-kill", "keeper-pause")


def unasked_deaths(member: Member) -> str:
    """Return a fault if a worker has lost more keepers than the soak has harmed, else ""."""
    lost = len(_LOST.findall(member.process.logs()))
    asked = sum(harm.what in _DEADLY for harm in member.harms)
    return f"{member.info.name} lost {lost} keepers, of {asked} harmed" if lost > asked else ""


def unrepeated(member: Member) -> set[tuple[str, str]]:
    """Return the worker and the message of each release that is not tried again."""
    lapsing = unrepeated_messages(member.process.logs())
    return {(member.info.name, message_id) for message_id in lapsing}


def unrepeated_messages(log: str) -> list[str]:
    """Return the messages whose release is not tried again, according to a log."""
    return _LAPSING.findall(log)
