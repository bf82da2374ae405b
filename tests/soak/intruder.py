"""Another user of the machine, who sets traps in the journal that the workers share."""

from __future__ import annotations

import datetime
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

from celery_sqs_heartbeat.journal.reading import closed_segments, unpack

#: A line in the format of a journal. A worker that closes it as a segment gives it away.
SECRET = b'{"v":1,"ts":1,"secret":"not yours"}\n'


def _link_folder(place: Path, secret: Path) -> None:
    place.parent.rmdir()
    place.parent.symlink_to(secret.parent)


#: Ways to make a name in a journal lead to a secret or to nowhere.
TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda place, secret: place.symlink_to(secret),
    "hard link": lambda place, secret: place.hardlink_to(secret),
    "pipe": lambda place, secret: os.mkfifo(place),
    "linked folder": _link_folder,
    "linked draft": lambda place, secret: (
        place.write_bytes(b'{"v":1,"ts":1}\n'),
        place.with_name(".seg-1.jsonl.zst").symlink_to(secret),
    )[0],
}


class Intruder:
    """Sets one trap at a time.

    Attributes:
        journal: The folder that the workers write to.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.journal = folder / "journal"
        self._secrets = folder / "secrets"
        self._chance = chance
        self._numbers = itertools.count(1)

    def strike(self) -> str:
        """Set a trap where the next worker looks for segments to close. Return its kind."""
        name = f"intruder{next(self._numbers)}"
        secret = self._secrets / name / "seg-1.jsonl.open"
        secret.parent.mkdir(parents=True)
        secret.write_bytes(SECRET)
        day = datetime.datetime.now(datetime.timezone.utc).date()
        place = self.journal / f"dt={day}" / f"worker={name}" / secret.name
        place.parent.mkdir(parents=True)
        what = self._chance.choice([*TRAPS])
        TRAPS[what](place, secret)
        return f"trap: {what}"

    def surprises(self) -> list[str]:
        """Return a fault for each trap that worked."""
        kept = [path.read_bytes() for path in self._secrets.rglob("*") if path.is_file()]
        own = [path for path in closed_segments(self.journal) if not path.parent.is_symlink()]
        told = [path for path in own if SECRET in unpack(path)]
        faults = [f"a secret was given away in {path}" for path in told]
        if len(kept) != next(self._numbers) - 1 or set(kept) - {SECRET}:
            faults.append(f"{self._secrets} was changed")
        if not any("intruder" not in path.parent.name for path in own):
            faults.append("no worker has written a journal")
        return faults
