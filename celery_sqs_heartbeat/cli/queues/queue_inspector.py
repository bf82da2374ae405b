"""Asks SQS about queues, in ways that change nothing. No error leaves it: each is an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from botocore import xform_name

from celery_sqs_heartbeat.cli.app.offline_broker import Broker
from celery_sqs_heartbeat.cli.queues.queue_facts import Answer, QueueFacts, Tried
from celery_sqs_heartbeat.cli.queues.sqs_answers import of_error, of_payload, whether_permitted
from celery_sqs_heartbeat.sqs.clients import new_client

#: Gives each call five seconds (`short_config`): no lease depends on them.
_PATIENT = 10.0
#: What servers other than AWS have for an account.
_NO_ACCOUNT = "000000000000"
#: No queue ever made such a handle.
_NO_HANDLE = {"Id": "0", "ReceiptHandle": "celery-sqs-heartbeat-doctor"}


class QueueInspector:
    """Asks SQS about the queues of one broker.

    An endpoint that can't be reached is not tried again: each try may take seconds.
    """

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.time) -> None:
        self._broker = broker
        self._clock = clock
        self._down: dict[str, Answer] = {}

    def inspect(self, name: str) -> QueueFacts:
        """Return what SQS says of a queue, and what it permits there.

        Args:
            name: As Celery knows the queue.
        """
        queue = self.look(name)
        if queue.url is None or queue.found.tried not in (Tried.ALLOWED, Tried.DENIED):
            return queue
        return replace(queue, tries={**queue.tries, **self._try_harmlessly(queue.url)})

    def look(self, name: str) -> QueueFacts:
        """Return what SQS says of a queue."""
        sqs_name = self._broker.sqs_name(name)
        return replace(self._look(name, sqs_name), sqs_name=sqs_name)

    def _look(self, name: str, sqs_name: str) -> QueueFacts:
        url = self._broker.predefined_url(name)
        if url is not None:
            return self._look_at(name, url, {})
        if self._broker.config.predefined:
            return QueueFacts(name=name, found=Answer(tried=Tried.NO_QUEUE))
        listed = self._call("", "ListQueues", QueueNamePrefix=sqs_name)
        tries = {"sqs:ListQueues": listed}
        urls: Any = listed.payload.get("QueueUrls") or ()
        url = next((each for each in urls if each.rsplit("/", 1)[-1] == sqs_name), None)
        if url is None and listed.tried is Tried.DENIED:
            return self._look_unlisted(name, sqs_name, tries)
        if url is not None:
            return self._look_at(name, url, tries)
        missing = Answer(tried=Tried.NO_QUEUE, skew=listed.skew)
        found = missing if listed.tried is Tried.ALLOWED else listed
        return QueueFacts(name=name, is_predefined=False, found=found, tries=tries)

    def _look_unlisted(self, name: str, sqs_name: str, tries: Mapping[str, Answer]) -> QueueFacts:
        """Look at a queue whose URL may not be listed, so that all that is denied is named."""
        answer = self._call("", "GetQueueUrl", QueueName=sqs_name)
        if answer.tried is Tried.NO_QUEUE:
            return QueueFacts(name=name, is_predefined=False, found=answer, tries=tries)
        url = answer.payload.get("QueueUrl")
        if url is not None:
            return self._look_at(name, str(url), tries)
        listed = tries["sqs:ListQueues"]
        url = self._likely_url(sqs_name, listed.payload.get("Account"))
        queue = QueueFacts(name=name, is_predefined=False, found=listed, tries=tries)
        if url is None:
            return queue
        looked = self._look_at(name, url, {})
        guessed = {**looked.tries, **self._try_harmlessly(url)}
        # Of a queue that may not be there only a denial says anything.
        denied = {action: each for action, each in guessed.items() if each.tried is Tried.DENIED}
        return replace(queue, tries={**tries, **denied})

    def _likely_url(self, sqs_name: str, account: object) -> str | None:
        """Return the URL that a queue most likely has, if that is known.

        Servers other than AWS name no account in a denial, and have any.
        """
        endpoint = self._broker.config.endpoint_url
        if account is None and endpoint is None:
            return None
        try:
            endpoint = new_client(self._broker.config, "", _PATIENT).meta.endpoint_url
        except Exception:
            return None
        return f"{str(endpoint).rstrip('/')}/{account or _NO_ACCOUNT}/{sqs_name}"

    def _look_at(self, name: str, url: str, tries: Mapping[str, Answer]) -> QueueFacts:
        found = self._call(url, "GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        attributes: Any = found.payload.get("Attributes") or {}
        if found.tried is not Tried.NO_QUEUE:
            tries = {**tries, "sqs:GetQueueAttributes": found}
        queue = QueueFacts(
            name=name,
            url=url,
            is_predefined=bool(self._broker.config.predefined),
            found=found,
            attributes={str(key): str(value) for key, value in attributes.items()},
            tries=tries,
        )
        return replace(queue, dead_letters=self._look_for_dead_letters(queue))

    def _look_for_dead_letters(self, queue: QueueFacts) -> Answer | None:
        """Ask for the dead-letter queue of a FIFO queue; None where it names none.

        It is of the same account and region (SQS Developer Guide, "Using dead-letter queues"), so
        its URL differs in the name alone. A worker needs no permission for it: a denial says
        nothing.
        """
        name = queue.dead_letter_name
        if name is None or queue.url is None or not queue.is_fifo:
            return None
        url = f"{queue.url.rpartition('/')[0]}/{name}"
        return self._call(url, "GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])

    def _try_harmlessly(self, url: str) -> dict[str, Answer]:
        """Make the worker's calls so that SQS refuses them after it has permitted them."""
        return {
            # One to ten may be asked for. A server that is not so strict shows what it
            # takes at once again.
            "sqs:ReceiveMessage": whether_permitted(
                self._call(
                    url,
                    "ReceiveMessage",
                    QueueUrl=url,
                    MaxNumberOfMessages=0,
                    VisibilityTimeout=0,
                    WaitTimeSeconds=0,
                )
            ),
            "sqs:ChangeMessageVisibility": whether_permitted(
                self._call(
                    url,
                    "ChangeMessageVisibilityBatch",
                    QueueUrl=url,
                    Entries=[{**_NO_HANDLE, "VisibilityTimeout": 0}],
                )
            ),
            "sqs:DeleteMessage": whether_permitted(
                self._call(url, "DeleteMessageBatch", QueueUrl=url, Entries=[_NO_HANDLE])
            ),
        }

    def _call(self, url: str, operation: str, **request: Any) -> Answer:
        endpoint = ""
        asked_at = self._clock()
        try:
            client = new_client(self._broker.config, url, _PATIENT)
            endpoint = client.meta.endpoint_url
            if endpoint in self._down:
                return self._down[endpoint]
            payload = getattr(client, xform_name(operation))(**request)
        except Exception as error:
            # Whatever it is: the answer is that SQS can't be asked.
            answer = of_error(error, operation, endpoint, asked_at, self._clock())
            if answer.tried is Tried.UNREACHABLE and endpoint:
                self._down[endpoint] = answer
            return answer
        return of_payload(payload, asked_at, self._clock())
