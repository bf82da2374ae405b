"""How another process makes a boto3 client as this one has it.

botocore has no public way to a client's secret key. So the other process looks for credentials
where boto3 does; what it would find is compared with what the client has.
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

#: What is handed over of a client's configuration. The rest is the keeper's own choice, or of no
#: use for SQS, or in the endpoint's URL already.
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
#: botocore refuses these beside a URL, wherever they are set.
_IN_THE_URL = {"use_fips_endpoint": False, "use_dualstack_endpoint": False}
_WAY_OUT = (
    "put them into the environment or a profile, or name a function of yours that returns a "
    "boto3.Session: session='module:function'"
)


def config_of(client: Any) -> BrokerConfig:
    """Return what a boto3 client is made by, but for its credentials."""
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
    """Return why another process can't do as a client does; None where it can.

    Args:
        session: Names a function that makes the other process's session; None for boto3's own.
    """
    if not isinstance(client, BaseClient):
        return (
            f"sqs: has a {type(client).__name__} for a client, which another process can't make: "
            "give a client of boto3's, or leave out process=True"
        )
    if session is not None or client.meta.config.signature_version is UNSIGNED:
        return None
    try:
        found = boto3.Session().get_credentials()
    except BotoCoreError as error:
        return f"process=True: another process finds no credentials ({error}): {_WAY_OUT}"
    if found is None:
        return f"process=True: another process finds no credentials for the client: {_WAY_OUT}"
    # Those of a role are other ones in each process.
    if not isinstance(found, RefreshableCredentials):
        used = _access_key(client)
        if used is not None and used != found.get_frozen_credentials().access_key:
            return f"process=True: another process finds other credentials: {_WAY_OUT}"
    return None


def _access_key(client: BaseClient) -> str | None:
    """Return the id of the key that a client signs with; None where it does not show.

    A signed URL has it in it. None is sent.
    """
    try:
        url = client.generate_presigned_url("list_queues")
    except BotoCoreError:
        return None
    (scope,) = parse_qs(urlsplit(url).query).get("X-Amz-Credential", [""])
    return scope.partition("/")[0] or None
