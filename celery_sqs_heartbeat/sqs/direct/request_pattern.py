"""What all requests for one queue have in common, and the requests made from it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, HeadersDict

#: The format of the time in a signed request (AWS General Reference, "Signature Version 4").
_TIMESTAMP = "%Y%m%dT%H%M%SZ"
#: What boto3 sends of its retries: the keeper repeats calls itself.
FIRST_ATTEMPT = "attempt=1"


class PatternChanged(Exception):
    """boto3 would sign this request in another way. Nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Signing:
    """How the requests of a client are signed.

    Attributes:
        signer: The client's own signer, which holds its credentials and renews them.
        options: How the signer is asked for SigV4's implementation: service, region, version.
        canonical: SigV4's canonical request, without its last line, the hash of the body.
        signed_at: The time in `canonical`.
        token: The session token in `canonical`; None if the credentials have none.
        signed_headers: The names of the signed headers.
    """

    signer: Any
    options: Mapping[str, Any]
    canonical: str
    signed_at: str
    token: str | None
    signed_headers: str

    def headers(self, body: bytes, timestamp: str) -> dict[str, str]:
        """Return the headers that sign a request.

        Raises:
            PatternChanged: The signer signs in another way now.
            BotoCoreError: The credentials can't be renewed.
        """
        auth = self.signer.get_auth_instance(**self.options)
        token = getattr(auth.credentials, "token", None)
        if type(auth) is not SigV4Auth or not auth.credentials or bool(token) != bool(self.token):
            raise PatternChanged
        moment = SimpleNamespace(context={"timestamp": timestamp})
        text = self.canonical.replace(self.signed_at, timestamp)
        if self.token and token:
            text = text.replace(self.token, token)
        text = auth.string_to_sign(moment, f"{text}\n{hashlib.sha256(body).hexdigest()}")
        return {
            "X-Amz-Date": timestamp,
            **({"X-Amz-Security-Token": token} if token else {}),
            "Authorization": (
                f"AWS4-HMAC-SHA256 Credential={auth.scope(moment)}, "
                f"SignedHeaders={self.signed_headers}, Signature={auth.signature(text, moment)}"
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestPattern:
    """What all requests of one operation for one queue have in common.

    Attributes:
        headers: The headers that are the same in each request.
        http_session: The client's own, with its connections, timeouts, proxies and certificates.
    """

    url: str
    headers: Mapping[str, str]
    signing: Signing
    http_session: Any

    def request(self, body: bytes, timestamp: str | None = None) -> AWSPreparedRequest:
        """Return a signed request that is ready to be sent.

        Args:
            timestamp: When it is signed, in SigV4's format; None for now.

        Raises:
            PatternChanged: boto3 would sign this request in another way.
            BotoCoreError: The credentials can't be renewed.
        """
        if timestamp is None:
            timestamp = time.strftime(_TIMESTAMP, time.gmtime())
        headers = HeadersDict(
            {
                **self.headers,
                **self.signing.headers(body, timestamp),
                "amz-sdk-invocation-id": str(uuid4()),
                "amz-sdk-request": FIRST_ATTEMPT,
                "Content-Length": str(len(body)),
            }
        )
        return AWSPreparedRequest("POST", self.url, headers, body, False)
