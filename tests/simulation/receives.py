"""The receives of each message, and why some of them led to no execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from tests.simulation.outage import EXCUSE as HANGING
from tests.simulation.truth import MessageTruth, Receive

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The cause of a receive whose answer has reached no process.
NOT_ARRIVED = "its answer did not arrive"
#: The cause of a receive whose lease was lost before its task started.
LOST = "lost before its start"
#: Causes that may make dead letters of messages that have never run: the documentation says so.
_KNOWN = frozenset({GROUP_STOPPED})
#: Causes that the death of a keeper may have, says the documentation: SQS put the message into an
#: open poll, or a release that SQS has not answered may end the lease.
_LOST_TO_DEATHS = (NOT_ARRIVED, ReceivedAs.RELEASED.value)


class Receives:
    """Notes every receive: SQS counts it, so each one that leads to no execution needs a cause."""

    def __init__(self, world: World) -> None:
        self._world = world

    def note_answer(self, message: Mapping[str, Any]) -> None:
        """Note that SQS has returned a message."""
        truth = self._world.truth[message["MessageId"]]
        truth.receives[message["ReceiptHandle"]] = Receive(cause=NOT_ARRIVED)

    def note_arrival(self, message: Mapping[str, Any], worker: str, receipt: ReceivedAs) -> None:
        """Note what a keeper of a worker has taken a message for."""
        receive = self._world.truth[message["MessageId"]].receives[message["ReceiptHandle"]]
        receive.worker = worker
        receive.cause = "" if receipt is ReceivedAs.NEW else receipt.value

    def note_start(self, truth: MessageTruth, receipt_handle: str) -> None:
        """Note that the task of a receive starts."""
        truth.receives[receipt_handle].is_run = True

    def explain(self, message_id: str, worker: str, cause: str, *, is_guess: bool = False) -> None:
        """Note why what a worker has received of a message may lead to no execution.

        A receive keeps its first cause: what is said later is about a later receive.

        Args:
            is_guess: Whether a cause that is noted later is the better one.
        """
        for receive in self._world.truth[message_id].receives.values():
            if receive.worker == worker and (receive.is_guessed or not receive.cause):
                receive.cause, receive.is_guessed = cause, is_guess

    def check(self) -> None:
        """Check at the end that every receive has led to an execution, or has a cause."""
        for truth in self._world.truth.values():
            idle = list(_causes_of_idle(truth))
            if "" in idle:
                self._world.fail(
                    f"11: {truth.message_id} was received {len(truth.receives)} times, and "
                    f"{idle.count('')} of them led to no execution, without a cause"
                )
            self._world.tally.idle_receives.update(idle)
            self._check_dead_letter(truth, Counter(idle))

    def _check_dead_letter(self, truth: MessageTruth, idle: Counter[str]) -> None:
        """Check that in a calm world no message is a dead letter because it was not executed."""
        world = self._world
        most = world.profile.max_receive_count or 0
        if not world.profile.is_calm or truth.message_id not in world.dead_letters.messages:
            return
        *_, last = truth.receives.values()
        if (
            truth.executions + sum(idle[each] for each in _LOST_TO_DEATHS) < most
            and not truth.is_poison
            and not idle.keys() & _KNOWN
            # A message of a FIFO queue can't be sent again behind the others of its group.
            and not (world.profile.is_fifo and last.is_cold and not last.is_run)
            # After 12 hours, SQS delivers a message again at each timeout while its task runs.
            and not truth.excuses & {HANGING, "capped"}
        ):
            causes = ", ".join(f"{count} x {cause}" for cause, count in idle.most_common())
            world.fail(
                f"11: {truth.message_id} is a dead letter after {truth.executions} executions: "
                f"{causes}"
            )


def _causes_of_idle(truth: MessageTruth) -> Iterator[str]:
    return (each.cause for each in truth.receives.values() if not each.is_run)
