"""boto3 clients for the keeper, made from the same configuration as kombu's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import timezone
from threading import RLock
from typing import Any

import boto3
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, RefreshableCredentials
from botocore.session import get_session

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.events import MAX_CALLS
from celery_sqs_heartbeat.sqs.options import TIMEOUTS, NewSession
from celery_sqs_heartbeat.sqs.sending import guard, prepare_calls

#: The limits of the connect and read timeouts, in seconds. A call must fail early enough
#: to be repeated before its leases expire.
MIN_TIMEOUT = 0.5
MAX_TIMEOUT = 5.0
#: The part of the threshold that a timeout takes. After two calls without an answer, there is time
#: for a third. A little less than `CALL_PART`, so that botocore ends a call before its keeper does.
TIMEOUT_PART = 0.3
#: How long calls wait for the client that another one makes, in seconds. Then one makes its own,
#: because whatever the session asks may hang.
MAKING_SECONDS = 5.0
#: kombu's default for `sts_token_timeout`, in seconds.
_STS_TOKEN_SECONDS = 900
#: A role's token is refreshed this long before it expires, in seconds.
_STS_MARGIN_SECONDS = 60


def short_config(threshold: float, client_config: Mapping[str, Any] | None = None) -> Config:
    """Return a client configuration whose calls fail within a lease's margin.

    Args:
        threshold: The shortest threshold of the leases, in seconds.
        client_config: kombu's `client-config`. Its timeouts apply if they are shorter. For
            botocore, None means no timeout.
    """
    given = dict(client_config or {})
    timeout = min(max(threshold * TIMEOUT_PART, MIN_TIMEOUT), MAX_TIMEOUT)
    shortened = {
        name: timeout if (value := given.get(name)) is None else min(timeout, value)
        for name in TIMEOUTS
    }
    return Config(**given).merge(
        Config(
            **shortened,
            max_pool_connections=MAX_CALLS,
            # Without a mode AWS_RETRY_MODE applies, and "adaptive" delays calls before sending.
            retries={"total_max_attempts": 1, "mode": "standard"},
        )
    )


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """How kombu's SQS channel reaches its queues. Its repr hides fields that may contain keys.

    Attributes:
        predefined: kombu's `predefined_queues`: settings by queue name.
        sts: `sts_role_arn`, `sts_token_timeout` and `sts_token_buffer_time`, unchanged.
    """

    endpoint_url: str | None
    region: str
    use_ssl: bool
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    client_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    predefined: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    sts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of_channel(cls, channel: Any) -> BrokerConfig:
        """Read the configuration of a kombu SQS channel."""
        options = channel.transport_options
        return cls(
            endpoint_url=channel.endpoint_url,
            region=channel.region,
            use_ssl=True if channel.is_secure is None else bool(channel.is_secure),
            access_key=channel.conninfo.userid,
            secret_key=channel.conninfo.password,
            client_config=options.get("client-config") or {},
            predefined=channel.predefined_queues,
            sts={key: value for key, value in options.items() if key.startswith("sts_")},
        )


@dataclass(kw_only=True)
class _Use:
    """How some queues are reached, and the client for them.

    Attributes:
        own: What differs for a predefined queue, see `_settings_of`.
        late_at: When making the client has taken so long that it may hang, in seconds of
            `clock.now`; in the past if no one makes it.
    """

    config: BrokerConfig
    own: Mapping[str, Any] | None = field(repr=False)
    threshold: float | None
    client: Future[Any] = field(default_factory=Future, compare=False, repr=False)
    late_at: float = field(default=-math.inf, compare=False)

    @property
    def needs_client(self) -> bool:
        """Whether the next call should make the client."""
        return not self.client.done() and clock.now() >= self.late_at


class ClientPool:
    """Makes a client for all queues that are reached alike, and reuses it.

    A client takes about 9 MiB and 0.1 s of CPU, and boto3 allows threads to share it. Each has its
    own session, because sessions must not be shared. If each call made its own while there is none,
    a busy machine would make nothing but clients, and the keeper would give all calls up.
    """

    def __init__(self, new_session: NewSession | None = None) -> None:
        self._new_session = new_session
        self._uses: dict[str, _Use] = {}
        self._addresses: dict[str, str] = {}
        # Re-entrant: a signal handler may need a client, and interrupt a thread with the lock.
        self._lock = RLock()

    def use(
        self,
        config: BrokerConfig,
        queue_url: str,
        threshold: float | None,
        address: str | None = None,
    ) -> None:
        """Reach `queue_url` with `config`, with timeouts that fit `threshold` (`new_client`).

        Args:
            address: The URL at which the queue is reached from now on, if it is another one.
        """
        # A longer threshold has no longer timeouts.
        most = threshold and min(threshold, MAX_TIMEOUT / TIMEOUT_PART)
        use = _Use(config=config, own=_settings_of(config, queue_url), threshold=most)
        with self._lock:
            self._addresses[queue_url] = address or queue_url
            self._uses[queue_url] = next((each for each in self._uses.values() if each == use), use)

    def address(self, queue_url: str) -> str:
        """Return the URL at which a queue is reached."""
        return self._addresses.get(queue_url, queue_url)

    def __call__(self, queue_url: str) -> Any:
        """Return the client for a queue.

        Raises:
            KeyError: `use` was never called for that queue.
            Exception: The client can't be made. The next call tries again.
        """
        use = self._uses[queue_url]
        while True:
            with self._lock:
                if is_mine := use.needs_client:
                    use.client, use.late_at = Future(), clock.now() + MAKING_SECONDS
                client = use.client
            if is_mine:
                # Without the lock: with a role it waits for STS, and other queues must not wait.
                self._make(client, use, queue_url)
            else:
                wait([client], use.late_at - clock.now())
            if client.done():
                return client.result()

    def _make(self, client: Future[Any], use: _Use, queue_url: str) -> None:
        try:
            made = new_client(use.config, queue_url, use.threshold, self._new_session)
        except BaseException as error:
            with self._lock:
                use.client, use.late_at = Future(), -math.inf
            client.set_exception(error)
        else:
            client.set_result(made)


def _settings_of(config: BrokerConfig, queue_url: str) -> Mapping[str, Any] | None:
    """Return kombu's settings of a predefined queue without its URL; None for another queue."""
    queue = next((q for q in config.predefined.values() if q.get("url") == queue_url), None)
    return queue and {**queue, "url": None}


def new_client(
    config: BrokerConfig,
    queue_url: str,
    threshold: float | None,
    new_session: NewSession | None = None,
) -> Any:
    """Return a new boto3 SQS client for a queue, like kombu's. It is guarded (`guard`).

    Args:
        threshold: See `short_config`. None for long polls, which kombu's timeouts fit.
        new_session: Makes the client's session. If it is None, the configuration is used.
    """
    given = config.client_config
    client_config = Config(**given) if threshold is None else short_config(threshold, given)
    queue = _settings_of(config, queue_url)
    region = (queue or {}).get("region", config.region)
    if new_session is not None:
        session = new_session()
    elif queue is not None and config.sts.get("sts_role_arn"):
        session = _role_session(config.sts, region, client_config)
    else:
        session = boto3.Session(
            region_name=region,
            aws_access_key_id=(queue or {}).get("access_key_id", config.access_key),
            aws_secret_access_key=(queue or {}).get("secret_access_key", config.secret_key),
        )
    client = session.client(
        "sqs",
        use_ssl=config.use_ssl,
        endpoint_url=config.endpoint_url,
        config=client_config,
    )
    guard(client)
    if new_session is None:
        prepare_calls(client)
    return client


def _role_session(sts: Mapping[str, Any], region: str, short: Config) -> boto3.Session:
    session = get_session()
    resolver = CredentialResolver(providers=[_RoleProvider(sts, short)])
    session.register_component("credential_provider", resolver)
    return boto3.Session(botocore_session=session, region_name=region)


class _RoleProvider(CredentialProvider):
    """Assumes the role of kombu's `sts_*` options with this process's credentials."""

    METHOD = "sts-assume-role"

    def __init__(self, sts: Mapping[str, Any], short: Config) -> None:
        super().__init__()
        self._role = sts["sts_role_arn"]
        self._lifetime = int(sts.get("sts_token_timeout") or _STS_TOKEN_SECONDS)
        self._margin = max(_STS_MARGIN_SECONDS, int(sts.get("sts_token_buffer_time") or 0))
        self._short = short

    def load(self) -> RefreshableCredentials:
        # botocore refreshes the credentials under its own lock, before they expire. Its default
        # margin of 15 minutes would refresh a token that lasts 15 minutes at each call.
        return RefreshableCredentials.create_from_metadata(
            metadata=self._assume_role(),
            refresh_using=self._assume_role,
            method=self.METHOD,
            advisory_timeout=min(2 * self._margin, self._lifetime // 2),
            mandatory_timeout=min(self._margin, self._lifetime // 4),
        )

    def _assume_role(self) -> dict[str, str]:
        token = boto3.client("sts", config=self._short).assume_role(
            RoleArn=self._role,
            RoleSessionName="celery-sqs-heartbeat",
            DurationSeconds=self._lifetime,
        )["Credentials"]
        return {
            "access_key": token["AccessKeyId"],
            "secret_key": token["SecretAccessKey"],
            "token": token["SessionToken"],
            "expiry_time": token["Expiration"].astimezone(timezone.utc).isoformat(),
        }
