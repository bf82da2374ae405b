"""Adapters that make a keeper's calls, as a keeper does or each by boto3."""

from __future__ import annotations

from typing import Any

from benchmarks.scale.messages import QUEUE
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.clients import BrokerConfig, new_client

TERMS = LeaseTerms.of(120)


def sqs_at(url: str, *, by_boto3: bool = False) -> BotoSqs:
    """Return a keeper's adapter, whose calls go to this endpoint."""
    config = BrokerConfig(
        endpoint_url=url,
        region="eu-west-1",
        use_ssl=False,
        access_key="AKIAEXAMPLE",
        secret_key="example",
    )
    client = new_client(config, QUEUE, TERMS.threshold)
    if by_boto3:
        client = ByBoto3(client)
    return BotoSqs(client)


class ByBoto3:
    """A client of which only the methods can be reached, so that boto3 makes each call."""

    def __init__(self, client: Any) -> None:
        self.change_message_visibility_batch = client.change_message_visibility_batch
        self.delete_message_batch = client.delete_message_batch
