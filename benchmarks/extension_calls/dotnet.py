"""The AWS Message Processing Framework for .NET: a scan each second.

Source: aws/aws-dotnet-messaging, release of 2026-04-06 (AWS.Messaging 1.3.0): the loop in
`src/AWS.Messaging/Services/DefaultMessageManager.cs`, the batches in
`src/AWS.Messaging/SQS/SQSMessagePoller.cs`, and the defaults in
`src/AWS.Messaging/Configuration/SQSMessagePollerConfiguration.cs`.
"""

from __future__ import annotations

from benchmarks.extension_calls.queue import Held, Queue
from benchmarks.extension_calls.ways import Extending, Way

#: A message is extended if at most this is left of its visibility timeout, in seconds.
THRESHOLD = 5.0
#: The pause between a scan, or the answers to its calls, and the next scan, in seconds.
INTERVAL = 1.0


class DotNet(Extending):
    """Looks at all messages each second, and extends in batches those that end soon.

    It notes the new end of a visibility timeout before it calls, and waits for all answers before
    it sleeps again. The loop ends with the last message.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue, self._clock = queue, queue.clock
        self._expected_end: dict[Held, float] = {}
        self._is_running = False

    def received(self, message: Held) -> None:
        """Add it, and start the loop if it does not run."""
        self._expected_end[message] = self._clock() + self._queue.visibility_timeout
        if not self._is_running:
            self._is_running = True
            self._sleep()

    def ended(self, message: Held) -> None:
        """Remove it."""
        del self._expected_end[message]

    def _sleep(self) -> None:
        self._clock.at(self._clock() + INTERVAL, self._scan)

    def _scan(self) -> None:
        now = self._clock()
        expiring = [each for each, end in self._expected_end.items() if end - now <= THRESHOLD]
        timeout = self._queue.visibility_timeout
        for message in expiring:
            self._expected_end[message] = now + timeout
        if expiring:
            self._queue.extend_all(expiring, timeout, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._expected_end:
            self._sleep()
        else:
            self._is_running = False


DOTNET = Way("AWS .NET", lambda visibility_timeout: visibility_timeout - THRESHOLD, DotNet)
