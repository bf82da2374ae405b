"""What all requests for one queue have in common, and the requests made from it."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, HeadersDict

from celery_sqs_heartbeat.sqs.direct.connections import Connections

#: The format of the time in a signed request (AWS General Reference, "Signature Version 4").
_TIMESTAMP = "%Y%m%dT%H%M%SZ"


class PatternChanged(Exception):
    """boto3 would sign this request in another way. Nothing was sent."""


class DirectRequest(AWSPreparedRequest):
    """A request for handlers of `before-send`, which rarely read the headers.

    botocore's dictionary of headers costs more CPU than the signature, so it is only made for them.
    """

    def __init__(self, url: str, headers: dict[str, str], body: bytes) -> None:
        super().__init__("POST", url, None, body, False)
        self._plain = headers
        self._headers: HeadersDict | None = None

    @property
    def headers(self) -> HeadersDict:
        """The headers, whose names may be in any case."""
        if self._headers is None:
            self._headers = HeadersDict(self._plain)
        return self._headers

    @headers.setter
    def headers(self, headers: HeadersDict | None) -> None:
        self._headers = headers

    @property
    def is_plain(self) -> bool:
        """Whether no one has read, and maybe changed, the headers."""
        return self._headers is None

    def sent(self) -> AWSPreparedRequest:
        """Return the request for what sends it."""
        headers = self._plain if self._headers is None else dict(self._headers.items())
        return AWSPreparedRequest("POST", self.url, headers, self.body, False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Signing:
    """How the requests of a client are signed, in Signature Version 4.

    Attributes:
        signer: The client's own signer, which holds its credentials and renews them.
        credentials: Those of the pattern. boto3 may send other headers, or to another URL, with
            others.
        canonical: The canonical request, without its last line, the hash of the body.
        signed_at: The time in `canonical`.
        signed_headers: The names of the signed headers.
        keys: The key that signs the requests of a day, by that day.
    """

    signer: Any
    credentials: Any
    service: str
    region: str
    version: str
    canonical: str
    signed_at: str
    signed_headers: str
    keys: dict[str, bytes] = field(default_factory=dict, init=False)

    def headers(self, body: bytes, timestamp: str) -> dict[str, str]:
        """Return the headers that sign a request, except the session token.

        Raises:
            PatternChanged: The credentials were renewed, or the signer signs in another way.
            BotoCoreError: The credentials can't be renewed.
        """
        auth = self.signer.get_auth_instance(self.service, self.region, self.version)
        credentials = auth.credentials
        if type(auth) is not SigV4Auth or credentials != self.credentials:
            raise PatternChanged
        text = f"{self.canonical.replace(self.signed_at, timestamp)}\n{sha256(body).hexdigest()}"
        scope = (timestamp[:8], self.region, self.service, "aws4_request")
        text = "\n".join(
            ("AWS4-HMAC-SHA256", timestamp, "/".join(scope), sha256(text.encode()).hexdigest())
        )
        signature = hmac.digest(self._key(scope), text.encode(), "sha256").hex()
        return {
            "X-Amz-Date": timestamp,
            "Authorization": (
                f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{'/'.join(scope)}, "
                f"SignedHeaders={self.signed_headers}, Signature={signature}"
            ),
        }

    def _key(self, scope: tuple[str, ...]) -> bytes:
        day = scope[0]
        key = self.keys.get(day)
        if key is None:
            key = f"AWS4{self.credentials.secret_key}".encode()
            for part in scope:
                key = hmac.digest(key, part.encode(), "sha256")
            self.keys.clear()
            self.keys[day] = key
        return key


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestPattern:
    """What all requests of one operation for one queue have in common.

    Attributes:
        headers: The headers that are the same in each request.
        http_session: The client's own, with its connections, timeouts, proxies and certificates.
        connections: Those that take less CPU; None if only the client's own may be used.
    """

    url: str
    headers: Mapping[str, str]
    signing: Signing
    http_session: Any
    connections: Connections | None = None

    def request(self, body: bytes, timestamp: str | None = None) -> DirectRequest:
        """Return a signed request that is ready to be sent.

        Args:
            timestamp: When it is signed, in the format of the signature; None for now.

        Raises:
            PatternChanged: boto3 would sign this request in another way.
            BotoCoreError: The credentials can't be renewed.
        """
        if timestamp is None:
            timestamp = time.strftime(_TIMESTAMP, time.gmtime())
        headers = {
            **self.headers,
            **self.signing.headers(body, timestamp),
            "Content-Length": str(len(body)),
        }
        return DirectRequest(self.url, headers, body)

    def send(self, request: DirectRequest) -> Any:
        """Send a request and return the response.

        Raises:
            BotoCoreError: There is none.
        """
        # A handler may have changed where and with which headers it is sent.
        is_unchanged = request.is_plain and request.url == self.url
        ours = self.connections
        sender = ours if ours and ours.is_usable and is_unchanged else self.http_session
        return sender.send(request.sent())
