"""An event loop that the test runs, with polls that the test answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Timer:
    """A call that is due later."""

    call: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """The part of kombu's event loop that a channel uses."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], object]] = deque()
        self._later: list[Timer] = []
        self.readers: dict[Any, Callable[[], object]] = {}
        self.writers: dict[Any, Callable[[], object]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to call now."""
        return not self._soon

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self._soon.append(lambda: call(*args))

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(lambda: call(*args))
        if seconds:
            self._later.append(timer)
        else:
            self._soon.append(timer.call)
        return timer

    def add_reader(self, file: Any, call: Callable[[], object]) -> None:
        self.readers[file] = call

    def tick(self) -> None:
        """Call what is due now."""
        while self._soon:
            self._soon.popleft()()

    def tick_later(self) -> None:
        """Call what is due now, and what was due later before that."""
        timers, self._later = self._later, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.call()
        self.tick()


class _Curl:
    """Keeps the options of one request."""

    def __init__(self) -> None:
        self.options: dict[int, Any] = {}

    def setopt(self, option: int, value: Any) -> None:
        self.options[option] = value


@dataclass
class SentPoll:
    """A receive that a channel has requested. `asked` are its parameters."""

    asked: dict[str, Any]
    request: Any
    callback: Any
    _curl: _Curl = field(default_factory=_Curl)

    def send(self) -> None:
        """Send it: a connection is free."""
        self.request.on_prepare(self._curl)

    def is_aborted(self) -> bool:
        """Return whether curl must end it without an answer."""
        return bool(self.option("XFERINFOFUNCTION")(0, 0, 0, 0))

    def option(self, name: str) -> Any:
        """Return an option that it was sent with."""
        import pycurl

        return self._curl.options[getattr(pycurl, name)]

    def answer(self, answer: Any) -> None:
        """Answer it as kombu does."""
        self.callback(answer)

    def fail(self, error: Exception) -> None:
        """Answer it with an error."""
        self.callback.throw(error)


class FakePolls:
    """Kombu's connection for the polls of an event loop, and its HTTP client.

    Attributes:
        loop: The event loop.
        sent: Every poll, in order.
        error: Raised when a poll is signed, if set.
    """

    def __init__(self, channel: Any) -> None:
        self.loop = FakeLoop()
        self.sent: list[SentPoll] = []
        self.error: Exception | None = None
        self._httpclient = self
        self._shown_by = self
        self.max_clients = 10
        channel.hub = self.loop
        channel.asynsqs = lambda queue=None: self

    def receive_message(self, queue: str, url: str, *, callback: Any, **asked: Any) -> None:
        # Called on the view of this object that the channel makes for one request.
        if self._shown_by.error is not None:
            raise self._shown_by.error
        request = SimpleNamespace(on_prepare=None)
        self._httpclient.add_request(request)
        self.sent.append(SentPoll(asked, request, callback))

    def add_request(self, request: Any) -> None:
        """Accept a request, as the HTTP client does."""

    def open(self) -> SentPoll:
        """Make the channel poll, and return the poll."""
        before = len(self.sent)
        self.loop.tick()
        (poll,) = self.sent[before:]
        return poll
