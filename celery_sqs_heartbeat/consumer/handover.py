"""How another process makes a boto3 client like the one of this process.

botocore offers no public access to a client's secret key. So the other process looks for
credentials where boto3 does. We compare what it would find with the client's credentials.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore import UNSIGNED
from botocore.client import BaseClient
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError

from celery_sqs_heartbeat.sqs.clients import BrokerConfig

#: The parts of a client's configuration that are handed over. The keeper chooses the rest itself,
#: or SQS does not need it, or the endpoint's URL contains it already.
_OPTIONS = (
    "region_name",
    "signature_version",
    "connect_timeout",
    "read_timeout",
    "proxies",
    "proxies_config",
    "client_cert",
    "tcp_keepalive",
    "user_agent_extra",
    "user_agent_appid",
)
#: botocore refuses these together with a URL, wherever they are set.
_IN_THE_URL = {"use_fips_endpoint": False, "use_dualstack_endpoint": False}
_WAY_OUT = (
    "put them into the environment or a profile, or name a function that returns a "
    "boto3.Session: session='module:function'"
)


def config_of(client: Any) -> BrokerConfig:
    """Return the configuration of a boto3 client, without its credentials."""
    given = {name: getattr(client.meta.config, name, None) for name in _OPTIONS}
    return BrokerConfig(
        endpoint_url=client.meta.endpoint_url,
        region=client.meta.region_name,
        use_ssl=not client.meta.endpoint_url.startswith("http://"),
        access_key=None,
        secret_key=None,
        client_config={
            **{name: value for name, value in given.items() if value is not None},
            **_IN_THE_URL,
        },
    )


def fault_of(client: Any, session: str | None) -> str | None:
    """Return why another process can't make the same client; None if it can.

    Args:
        session: Names a function that makes the other process's session; None for boto3's
            default.
    """
    if not isinstance(client, BaseClient):
        return (
            f"sqs: its client is a {type(client).__name__}, which another process can't make: "
            "pass a boto3 client, or leave out process=True"
        )
    if session is not None or client.meta.config.signature_version is UNSIGNED:
        return None
    try:
        found = boto3.Session().get_credentials()
    except BotoCoreError as error:
        return f"process=True: another process finds no credentials ({error}): {_WAY_OUT}"
    if found is None:
        return f"process=True: another process finds no credentials for the client: {_WAY_OUT}"
    # The credentials of a role differ in each process.
    if not isinstance(found, RefreshableCredentials):
        used = _access_key(client)
        if used is not None and used != found.get_frozen_credentials().access_key:
            return f"process=True: another process finds other credentials: {_WAY_OUT}"
    return None


def _access_key(client: BaseClient) -> str | None:
    """Return the id of the key that a client signs with; None if it cannot be found.

    A signed URL contains the id. The URL is not sent.
    """
    try:
        url = client.generate_presigned_url("list_queues")
    except BotoCoreError:
        return None
    (scope,) = parse_qs(urlsplit(url).query).get("X-Amz-Credential", [""])
    return scope.partition("/")[0] or None
