"""The status page of one keeper."""

from __future__ import annotations

import logging

from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.observe.observers import Watched
from celery_sqs_heartbeat.observe.polled import Polled
from celery_sqs_heartbeat.observe.recorder import Recorder
from celery_sqs_heartbeat.observe.status.http import Guard, Request, Response, token_fault
from celery_sqs_heartbeat.observe.status.listener import Listener
from celery_sqs_heartbeat.observe.status.pages import Exposer, Pages
from celery_sqs_heartbeat.settings import PREFIX
from celery_sqs_heartbeat.settings.address import parse_address

logger = logging.getLogger(__name__)

#: The settings of the status page.
ADDRESS_SETTING = f"{PREFIX}status"
TOKEN_SETTING = f"{PREFIX}status_token"


class StatusServer:
    """Serves `/`, `/livez`, `/readyz`, `/healthz`, `/metrics`, `/leases` and `/events`.

    Args:
        address: `host:port`. Without a token, a loopback address.
        token: The token that all data needs.
        metrics: Shown under `/metrics`; see `Metrics`.
        recorder: An observer of the same keeper.
        name: The worker's name, for the page's title.
        polled: How SQS answers the polls of the worker's queues, if that is known.

    Raises:
        ConfigurationError: The address is invalid, or other machines can reach it and there is no
            valid token.
    """

    def __init__(
        self,
        keeper: Watched,
        address: str,
        token: str | None = None,
        metrics: Exposer | None = None,
        *,
        recorder: Recorder,
        name: str = "",
        polled: Polled | None = None,
    ) -> None:
        try:
            self._host, self._port = parse_address(address)
        except ValueError as error:
            raise ConfigurationError([f"{ADDRESS_SETTING}={address!r}: {error}"]) from None
        if fault := token_fault(self._host, token):
            # Not the token itself, because this is logged.
            given = "None" if token is None else "..."
            raise ConfigurationError(
                [f"{TOKEN_SETTING}={given} with {ADDRESS_SETTING}={address!r}: {fault}"]
            )
        self._guard = Guard(self._host, token)
        self._pages = Pages(keeper, recorder, metrics, name, polled)
        self._listener: Listener | None = None

    @property
    def port(self) -> int | None:
        """The port that it listens at; None if it does not listen."""
        return self._listener.port if self._listener else None

    def start(self) -> None:
        """Start to listen. If the address can't be used, only log that."""
        if self._listener is not None:
            return
        try:
            listener = Listener(self._host, self._port, self._answer)
            listener.start()
        except OSError as error:
            logger.error(  # noqa: TRY400
                "sqs-heartbeat: no status page: %s=%s can't be used (%s). The worker continues "
                "without it. Each worker on a host needs its own port; port 0 takes any free one",
                ADDRESS_SETTING,
                self._shown_host(self._port),
                error,
            )
            return
        self._listener = listener
        logger.info("sqs-heartbeat: status page at http://%s/", self._shown_host(self.port))

    def stop(self) -> None:
        """Stop listening. Does nothing if it does not listen."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def _answer(self, request: Request) -> Response:
        self._guard.check(request)
        return self._pages.answer(request)

    def _shown_host(self, port: int | None) -> str:
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"
