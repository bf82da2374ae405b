"""The keeper's clients reach SQS as kombu's own clients do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue, SimpleQueue
from typing import Any

import boto3
import pytest
from kombu import Connection

from celery_sqs_heartbeat.sqs import clients
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, ClientPool, new_client, short_config
from tests.support.aws import FakeSts, serving_sts
from tests.support.insides import credentials_of
from tests.support.waiting import PATIENCE

URL, OTHER = "http://127.0.0.1:1/1/q", "https://far/1/far"
PREDEFINED = {"q": {"url": URL}}


def config_of(url: str, **options: Any) -> BrokerConfig:
    """Return the configuration of a kombu channel."""
    connection = Connection(url, transport_options={"predefined_queues": PREDEFINED, **options})
    return BrokerConfig.of_channel(connection.transport.Channel(connection.transport))


def test_a_client_takes_over_the_configuration_of_a_kombu_channel() -> None:
    given = {"client-config": {"connect_timeout": 0.2, "proxies": {"http": "x"}}}
    options = {"region": "eu-west-3", "is_secure": False, **given}
    client = new_client(config_of("sqs://key:se%2Fcret@127.0.0.1:1234", **options), URL, 10)
    assert client.meta.endpoint_url == "http://127.0.0.1:1234"
    assert client.meta.region_name == "eu-west-3"
    credentials, config = credentials_of(client), client.meta.config
    assert (credentials.access_key, credentials.secret_key) == ("key", "se/cret")
    assert (config.connect_timeout, config.read_timeout) == (0.2, 3)
    assert config.proxies == {"http": "x"}
    without_host = new_client(config_of("sqs://k:s@", region="eu-west-3"), URL, 10)
    assert without_host.meta.endpoint_url == "https://sqs.eu-west-3.amazonaws.com"


def test_a_predefined_queue_has_its_own_keys_and_region() -> None:
    own = {"region": "us-west-2", "access_key_id": "far-key", "secret_access_key": "far-secret"}
    predefined = {**PREDEFINED, "far": {"url": OTHER, **own}}
    config = config_of("sqs://k:s@", region="eu-west-3", predefined_queues=predefined)
    for url, region, key in ((OTHER, "us-west-2", "far-key"), (URL, "eu-west-3", "k")):
        client = new_client(config, url, threshold=10)
        assert (client.meta.region_name, credentials_of(client).access_key) == (region, key)


@pytest.mark.parametrize(
    ("threshold", "given", "expected"),
    [
        (0.2, {}, 0.5),
        (4, {}, 1.2),
        (100, {"read_timeout": 60}, 5),
        pytest.param(4, {"read_timeout": None, "connect_timeout": None}, 1.2, id="none"),
    ],
)
def test_timeouts_fit_the_threshold(
    threshold: float, given: dict[str, Any], expected: float
) -> None:
    config: Any = short_config(threshold, given)
    assert config.read_timeout == config.connect_timeout == expected


@pytest.mark.parametrize("given", [{}, {"retries": {"mode": "adaptive", "max_attempts": 4}}])
def test_boto3_never_repeats_the_keepers_calls_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    client = new_client(config_of("sqs://k:s@", **{"client-config": given}), URL, threshold=10)
    assert client.meta.config.retries == {"total_max_attempts": 1, "mode": "standard"}


def test_a_client_is_reused_until_the_configuration_changes() -> None:
    pool = ClientPool()
    pool.use(config_of("sqs://k:s@"), URL, 10)
    client = pool(URL)
    assert pool.address(URL) == URL
    pool.use(config_of("sqs://k:s@"), URL, 10)
    assert pool(URL) is client
    pool.use(config_of("sqs://x:s@"), URL, 10)
    assert credentials_of(pool(URL)).access_key == "x"


@pytest.mark.parametrize(
    ("threshold", "own", "is_shared"),
    [
        # Longer timeouts than the longest have no effect.
        (30, {}, True),
        (10, {}, False),
        (20, {"region": "eu-west-3"}, False),
        (20, {"access_key_id": "x", "secret_access_key": "y"}, False),
    ],
)
def test_queues_that_are_reached_alike_share_a_client(
    threshold: float, own: dict[str, str], is_shared: bool
) -> None:
    predefined, pool = {**PREDEFINED, "other": {"url": OTHER, **own}}, ClientPool()
    for url, each in ((URL, 20), (OTHER, threshold)):
        pool.use(config_of("sqs://k:s@", predefined_queues=predefined), url, each)
    assert (pool(OTHER) is pool(URL)) is is_shared


class Sessions:
    """Makes sessions, each only after it was let go."""

    def __init__(self) -> None:
        self.asked: Queue[SimpleQueue[Exception | None]] = Queue()

    def __call__(self) -> boto3.Session:
        go_on: SimpleQueue[Exception | None] = SimpleQueue()
        self.asked.put(go_on)
        if error := go_on.get(timeout=PATIENCE):
            raise error
        return boto3.Session("a", "b", region_name="us-east-1")


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def slow_pool(sessions: Sessions) -> ClientPool:
    pool = ClientPool(sessions)
    pool.use(config_of("sqs://a:b@"), URL, 10)
    return pool


def test_calls_that_find_no_client_make_one_together(
    slow_pool: ClientPool, sessions: Sessions
) -> None:
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(slow_pool, URL) for _ in range(8)]
        sessions.asked.get(timeout=PATIENCE).put(None)
        (client,) = {call.result(PATIENCE) for call in calls}
    assert sessions.asked.empty()
    assert slow_pool(URL) is client


def test_after_a_client_could_not_be_made_the_next_call_tries_again(
    slow_pool: ClientPool, sessions: Sessions
) -> None:
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(slow_pool, URL)
        sessions.asked.get(timeout=PATIENCE).put(RuntimeError("the vault is closed"))
        assert isinstance(call.exception(PATIENCE), RuntimeError)
        call = threads.submit(slow_pool, URL)
        sessions.asked.get(timeout=PATIENCE).put(None)
        assert call.result(PATIENCE) is slow_pool(URL)


def test_a_client_that_takes_too_long_is_made_again(
    slow_pool: ClientPool, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAKING_SECONDS", 0.0)
    with ThreadPoolExecutor(8) as threads:
        hanging = threads.submit(slow_pool, URL)
        go_on = sessions.asked.get(timeout=PATIENCE)
        monkeypatch.setattr(clients, "MAKING_SECONDS", PATIENCE)
        other = threads.submit(slow_pool, URL)
        sessions.asked.get(timeout=PATIENCE).put(None)
        assert slow_pool(URL) is other.result(PATIENCE)
        go_on.put(None)
        assert hanging.result(PATIENCE) is not other.result()
    assert slow_pool(URL) is other.result()


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSts]:
    with serving_sts() as sts:
        # On a busy machine, it may take long to answer.
        monkeypatch.setattr(clients, "MAX_TIMEOUT", PATIENCE)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield sts


def role_client() -> Any:
    role = {"sts_role_arn": "arn:aws:iam::1:role/worker", "sts_token_timeout": 900}
    return new_client(config_of("sqs://k:s@", **role), URL, threshold=2 * PATIENCE)


def test_a_role_is_assumed_for_predefined_queues_and_its_token_is_reused(sts: FakeSts) -> None:
    credentials = credentials_of(role_client())
    keys = {credentials.get_frozen_credentials().access_key for _ in range(3)}
    assert keys == {"role-key-1"}
    (request,) = sts.served
    assert "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fworker" in request
    assert "DurationSeconds=900" in request


def test_a_roles_token_is_refreshed_before_it_ends(sts: FakeSts) -> None:
    sts.seconds = 30
    credentials = credentials_of(role_client())
    sts.seconds = 900
    assert credentials.get_frozen_credentials().access_key == "role-key-2"
    assert credentials.get_frozen_credentials().access_key == "role-key-2"
