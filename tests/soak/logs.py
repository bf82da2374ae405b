"""What a worker's log says of its keeper."""

from __future__ import annotations

import re

from tests.soak.member import Member

#: A keeper was lost, and another goes on with its leases.
_LOST = re.compile(r"the keeper's process .*; another starts ")
#: A release is not tried again. Not of what was never to be released.
_LAPSING = re.compile(
    r"message-lapsing: message (\S+) of (?!.*\((?:kept|arrived late|undeliverable|not settled)\)$)",
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
    return {
        (member.info.name, message_id) for message_id in _LAPSING.findall(member.process.logs())
    }
