"""Calls SQS about queues without changing anything. Errors become answers."""

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

#: A threshold that gives each call five seconds (`short_config`), because no lease depends on it.
_PATIENT = 10.0
#: The account of servers other than AWS.
_NO_ACCOUNT = "000000000000"
#: A receipt handle that no queue ever made.
_NO_HANDLE = {"Id": "0", "ReceiptHandle": "celery-sqs-heartbeat-doctor"}


class QueueInspector:
    """Calls SQS about the queues of one broker.

    If an endpoint can't be reached, it is not tried again, because each try may take seconds.
    """

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.time) -> None:
        self._broker = broker
        self._clock = clock
        self._down: dict[str, Answer] = {}

    def inspect(self, name: str) -> QueueFacts:
        """Return SQS's answers about a queue, including its permissions.

        Args:
            name: Celery's name of the queue.
        """
        queue = self.look(name)
        if queue.url is None or queue.found.tried not in (Tried.ALLOWED, Tried.DENIED):
            return queue
        return replace(queue, tries={**queue.tries, **self._try_harmlessly(queue.url)})

    def look(self, name: str) -> QueueFacts:
        """Return SQS's answers about a queue, without trying its permissions."""
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
        """Look up a queue without permission to list queues, to name every other denial, too."""
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
        # The queue may not exist, so only a denial is significant.
        denied = {action: each for action, each in guessed.items() if each.tried is Tried.DENIED}
        return replace(queue, tries={**tries, **denied})

    def _likely_url(self, sqs_name: str, account: object) -> str | None:
        """Return the URL that a queue most likely has, or None if it can't be guessed.

        Servers other than AWS name no account in a denial, and accept any.
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
        """Return the answer about the dead-letter queue of a FIFO queue; None if it names none.

        Both are in the same account and region (SQS Developer Guide, "Using dead-letter queues"),
        so their URLs differ only in the name. A worker needs no permission for the dead-letter
        queue, so a denial is not significant.
        """
        name = queue.dead_letter_name
        if name is None or queue.url is None or not queue.is_fifo:
            return None
        url = f"{queue.url.rpartition('/')[0]}/{name}"
        return self._call(url, "GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])

    def _try_harmlessly(self, url: str) -> dict[str, Answer]:
        """Make the worker's calls in a form that passes SQS's permission check and then fails."""
        return {
            # A receive must request 1 to 10 messages. If a server accepts 0 and still returns
            # messages, VisibilityTimeout 0 makes them visible again at once.
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
            # Any error is an answer: the call was not possible.
            answer = of_error(error, operation, endpoint, asked_at, self._clock())
            if answer.tried is Tried.UNREACHABLE and endpoint:
                self._down[endpoint] = answer
            return answer
        return of_payload(payload, asked_at, self._clock())
