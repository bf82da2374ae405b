"""A bench for message groups: workers on simulated queues, on a clock that the test moves.

The code that takes messages from SQS to a task and back is the package's own, from the channel to
the keeper. The bench simulates the event loop, the link between the processes, the pool and SQS. At
every start of a task, it checks that the earlier messages of the group are deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kombu import Producer

from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.testing import FakeClock, SimulatedSqs
from celery_sqs_heartbeat.testing.message import SimulatedMessage
from celery_sqs_heartbeat.testing.queue import QueueOptions
from tests.conformance.group_worker import OpenPoll, Request, TaskFailed, Worker
from tests.conformance.network import Carrier, Network, SentCall

FIFO = "work.fifo"
#: How often the event loops turn, in seconds.
TURN = 0.1
#: How long a poll waits for a message, in seconds. A lease counts from its question.
LONGEST_POLL = 0.5
#: The first moment, in seconds.
BEGIN = 1000.0


@dataclass
class Job:
    """What happens to one message's task.

    Attributes:
        takes: For how long it runs, in seconds.
        fails: How often it fails before it succeeds.
        acks_early: Whether its message is acked at its start.
    """

    group: str
    queue: str
    takes: float
    fails: int
    acks_early: bool


class GroupBench:
    """Queues, workers and the tasks of messages. Messages are identified by their names.

    Times in seconds; the first moment is 0.

    Args:
        timeout: Visibility timeout of the queues.
        queues: Their names.
        max_receive_count: Of their redrive policy, if they have one.
        options: For kombu's transport.
        settings: Those of the package, without their prefix.

    Attributes:
        starts: When each task began, and which.
        ends: When each succeeded, and which.
        deletes: The messages in the order in which SQS deleted them.
        change_answer: Changes the answer of a receive, before its worker gets it.
    """

    def __init__(
        self,
        clock: FakeClock,
        *,
        timeout: int = 30,
        workers: int = 1,
        processes: int = 4,
        prefetch: int = 16,
        queues: tuple[str, ...] = (FIFO,),
        max_receive_count: int | None = None,
        options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock
        self.sqs = SimulatedSqs(clock)
        self.dead = self.sqs.new_queue("dead.fifo", QueueOptions())
        urls = {
            name: self.sqs.new_queue(
                name,
                QueueOptions(
                    visibility_timeout=timeout,
                    max_receive_count=max_receive_count,
                    dead_letters=self.dead if max_receive_count else None,
                ),
            ).url
            for name in queues
        }
        self.starts: list[tuple[float, str]] = []
        self.ends: list[tuple[float, str]] = []
        self.deletes: list[str] = []
        self.change_answer: Callable[[dict[str, Any]], object] = lambda answer: None
        self.sqs.on_delete = lambda message: self.deletes.append(self._name(message))
        self._jobs: dict[str, Job] = {}
        self._names: dict[str, str] = {}
        self._handles: dict[str, str] = {}
        self._messages: dict[str, SimulatedMessage] = {}
        self._carrier = Carrier(
            clock,
            self.sqs,
            self._handles.__getitem__,
            before_arrival=lambda call: None,
            after_answer=lambda: None,
        )
        if max_receive_count is None:
            # Messages must wait, as they do in the compared projects.
            settings = {"fifo_batch": 10, **settings}
        conf = {f"sqs_heartbeat_{name}": value for name, value in settings.items()}
        self.workers = [
            Worker(
                clock=clock,
                sqs=self.sqs,
                urls=urls,
                read=BotoSqs(self.sqs).queue_attributes,
                settings=read_settings(conf.get),
                processes=processes,
                prefetch=prefetch,
                options=options or {},
            )
            for _ in range(workers)
        ]

    @property
    def now(self) -> float:
        """The time."""
        return self.clock() - BEGIN

    # -- What happens -----------------------------------------------------------------

    def send(
        self,
        *names: str,
        group: str = "A",
        queue: str = FIFO,
        takes: float = 1.0,
        fails: int = 0,
        acks_early: bool = False,
    ) -> None:
        """Send messages, as kombu does."""
        producer = Producer(self.workers[0].channel)
        for name in names:
            self._jobs[name] = Job(group, queue, takes, fails, acks_early)
            before = set(self.sqs.queues[queue].messages)
            fifo = {"MessageDeduplicationId": name} if queue.endswith(".fifo") else {}
            headers = {"id": name, "task": "t"}
            producer.publish({}, routing_key=queue, headers=headers, MessageGroupId=group, **fifo)
            (new,) = self.sqs.queues[queue].messages.keys() - before
            self._names[new] = name
            self._messages[name] = self.sqs.queues[queue].messages[new]

    def run(self, until: float) -> None:
        """Let time pass, and do all that the workers do meanwhile."""
        while self.now < until:
            for worker in self.workers:
                self._turn(worker)
            self.clock.advance(TURN)

    def run_until_empty(self, limit: float = 1000.0) -> None:
        """Let time pass until every message is deleted, or a dead letter."""
        while any(queue.messages for queue in self.sqs.queues.values() if queue is not self.dead):
            assert self.now < limit, f"after {limit} s only these were deleted: {self.deletes}"
            self.run(self.now + TURN)
        self.run(self.now + 1)

    def stall(self, seconds: float) -> None:
        """Let time pass while only tasks run."""
        self.clock.advance(seconds)

    def at(self, time: float, job: Callable[[], object]) -> None:
        """Do something at that time."""
        self.clock.at(BEGIN + time, lambda: (job(), None)[1])

    def through(self, network: Network) -> None:
        """Use this network for the keepers' calls from now on."""
        self._carrier.network = network

    # -- What was seen ----------------------------------------------------------------

    def started(self, group: str | None = None) -> list[str]:
        """Return the messages whose tasks began, of one group or of all."""
        return self._of(group, [name for _, name in self.starts])

    def ended(self, group: str | None = None) -> list[str]:
        """Return those whose tasks succeeded."""
        return self._of(group, [name for _, name in self.ends])

    def deleted(self, group: str | None = None) -> list[str]:
        """Return those that SQS has deleted."""
        return self._of(group, self.deletes)

    def buried(self) -> list[str]:
        """Return the dead letters."""
        return [self._names[each] for each in self.dead.messages]

    def start_of(self, name: str, nth: int = 0) -> float:
        """Return when a message's task began, for the first time or a later one."""
        return [at for at, each in self.starts if each == name][nth]

    def end_of(self, name: str) -> float:
        """Return when a message's task succeeded."""
        return next(at for at, each in self.ends if each == name)

    def message(self, name: str) -> SimulatedMessage:
        """Return the message as SQS has it."""
        return self._messages[name]

    def asked(self, action: str) -> list[tuple[float, str]]:
        """Return when each such action was sent, and for which message, in order."""
        return [
            (call.at - BEGIN, ask.name)
            for call in self.calls
            for ask in call.asks
            if ask.action == action
        ]

    def name_of(self, message: dict[str, Any]) -> str:
        """Return the name of a message as a receive brings it."""
        return self._names[message["MessageId"]]

    @property
    def calls(self) -> list[SentCall]:
        """Every call that the keepers have made."""
        return self._carrier.sent

    def close(self) -> None:
        """Leave nothing behind."""
        for worker in self.workers:
            worker.close()

    # -- One turn ---------------------------------------------------------------------

    def _turn(self, worker: Worker) -> None:
        for _ in range(3):
            for call, settle in worker.step():
                self._carrier.dispatch(call, settle)
            self.clock.advance(0)
        worker.receive(partial(self._receive, worker))
        while request := worker.take_next():
            self._start(worker, request)

    def _receive(self, worker: Worker, poll: OpenPoll) -> dict[str, Any] | None:
        asked, now = poll.asked, self.clock()
        queue = self.sqs.queue(asked["QueueUrl"])
        if not worker.is_receiving or not any(True for _ in queue.available(now)):
            return {} if now >= poll.since + LONGEST_POLL else None
        # The bench's messages have no attributes, and no message comes later.
        left_out = {"MessageAttributeNames", "WaitTimeSeconds"}
        answer: dict[str, Any] = self.sqs.receive_message(
            **{name: asked[name] for name in asked.keys() - left_out}
        )
        for message in answer.get("Messages", ()):
            self._handles[message["ReceiptHandle"]] = self._names[message["MessageId"]]
        self.change_answer(answer)
        return answer

    def _start(self, worker: Worker, request: Request) -> None:
        name, job = request.id, self._jobs[request.id]
        self.starts.append((self.now, name))
        left = self.sqs.queues[job.queue].messages.values()
        own = self._messages[name]
        ahead = [
            self._name(each)
            for each in left
            if each.group_id == own.group_id and each.sequence_number < own.sequence_number
        ]
        assert not ahead, f"{name} begins, and {ahead} are not deleted"
        if job.acks_early:
            request.acknowledge()
        self.clock.at(self.clock() + job.takes, lambda: self._end(worker, request, job))

    def _end(self, worker: Worker, request: Request, job: Job) -> None:
        error = None
        if job.fails:
            job.fails -= 1
            error = TaskFailed(request.id)
        else:
            self.ends.append((self.now, request.id))
        worker.end_task(request, error)

    def _name(self, message: SimulatedMessage) -> str:
        return self._names[message.message_id]

    def _of(self, group: str | None, names: list[str]) -> list[str]:
        return [each for each in names if group is None or self._jobs[each].group == group]
