"""What a worker's log says of its keeper."""

from __future__ import annotations

import re

from tests.soak.member import Member

#: A keeper was lost, and another goes on with its leases.
_LOST = re.compile(r"the keeper's process .*; another starts ")
#: Not releases that are not tried again: these were never to be released.
_NEVER_RELEASED = r"\((?:kept|arrived late|undeliverable|not settled)\)"
#: A release is not tried again. One that stops a message group is logged in other words.
_LAPSING = re.compile(
    rf"message-lapsing: (?!.*{_NEVER_RELEASED}(?:$|: ))"
    r"(?:group .*? stopped .*?: )?message ([\w-]+)",
    re.MULTILINE,
)
#: After these a keeper may be lost.
_DEADLY = ("keeper-kill", "keeper-pause")


def unasked_deaths(member: Member) -> str:
    """Return what is to be said where a worker has lost more keepers than harm was done to."""
    lost = len(_LOST.findall(member.process.logs()))
    asked = sum(harm.what in _DEADLY for harm in member.harms)
    return f"{member.info.name} lost {lost} keepers, of {asked} harmed" if lost > asked else ""


def unrepeated(member: Member) -> set[tuple[str, str]]:
    """Return the worker and the message of each release that is not tried again."""
    lapsing = lapsing_messages(member.process.logs())
    return {(member.info.name, message_id) for message_id in lapsing}


def lapsing_messages(log: str) -> list[str]:
    """Return the messages of which a log says that a release is not tried again."""
    return _LAPSING.findall(log)
