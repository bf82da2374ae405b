"""What really happened to each message. Only the simulation can know it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Execution:
    """One run of a task. Times are the world's, in seconds. `wid` is None for a bare worker.

    Attributes:
        ended_at: None while it runs.
        is_cut_off: Whether its worker was killed or released the message while it ran. No
            journal shows its end.
    """

    wid: str | None
    started_at: float
    ended_at: float | None = None
    succeeded: bool = False
    is_cut_off: bool = False


@dataclass(eq=False, slots=True)
class Receive:
    """One delivery of a message.

    Attributes:
        is_new: Whether its execution started in it.
        mark: What would be the cause if the message were delivered again now.
        cause: What was the cause of the next delivery, or None if there was none.
    """

    wid: str | None
    count: int
    execution: Execution | None = None
    is_new: bool = False
    mark: str | None = None
    cause: str | None = None


@dataclass(eq=False, slots=True)
class History:
    """The receives of one message, in their order.

    Attributes:
        is_poisoned: Whether its task always fails.
    """

    message_id: str
    queue: str
    is_poisoned: bool = False
    receives: list[Receive] = field(default_factory=list)

    def deliver(self, wid: str | None, count: int, *, is_second: bool) -> Receive:
        """Note a delivery and its cause."""
        if self.receives:
            last = self.receives[-1]
            last.cause = "second-delivery" if is_second else last.mark or "unknown"
        receive = Receive(wid, count)
        self.receives.append(receive)
        return receive

    def pairs(self, end: float) -> Iterator[dict[str, object]]:
        """Return the duplicates that journals can show, in a world that ended at `end`."""
        first: Receive | None = None
        for receive in self.receives:
            second = receive.execution
            if second is None or receive.wid is None:
                continue
            if first is not None and receive.is_new:
                row = self._pair(first, second, end)
                if row is not None:
                    yield row
            first = receive

    def idle(self) -> tuple[int, int]:
        """Return how many receives started no task, and how many only the receive count shows."""
        shown = [each.wid is not None for each in self.receives]
        last = max((number for number, is_shown in enumerate(shown) if is_shown), default=0)
        idle = sum(each.wid is not None and not each.is_new for each in self.receives)
        return idle, shown[:last].count(False)

    def _pair(self, first: Receive, second: Execution, end: float) -> dict[str, object] | None:
        one = first.execution
        assert one is not None
        ends = [end if each.ended_at is None else each.ended_at for each in (one, second)]
        overlap = min(ends) - max(one.started_at, second.started_at)
        both = one.succeeded and second.succeeded
        if overlap <= 0 and not one.succeeded and not one.is_cut_off:
            return None
        return {
            "msg": self.message_id,
            "first_wid": one.wid,
            "second_wid": second.wid,
            "overlap": round(max(0.0, overlap), 3),
            "both_succeeded": both,
            "cause": first.cause,
        }


def pairs_of(histories: Iterable[History], end: float) -> list[dict[str, object]]:
    """Return the duplicates of all messages, in a world that ended at `end`."""
    return [pair for history in histories for pair in history.pairs(end)]


def idle_of(histories: Iterable[History]) -> dict[str, tuple[int, int]]:
    """Return `History.idle` by queue, without copies of the fleet."""
    sums: dict[str, tuple[int, int]] = {}
    for history in histories:
        idle, unseen = history.idle()
        before = sums.get(history.queue, (0, 0))
        sums[history.queue] = (before[0] + idle, before[1] + unseen)
    return sums
