"""Makes a pattern from a call that boto3 has made, if boto3 makes all such calls by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest

from celery_sqs_heartbeat.sqs.direct.request_body import body_of
from celery_sqs_heartbeat.sqs.direct.request_pattern import PatternChanged, RequestPattern, Signing
from celery_sqs_heartbeat.sqs.direct.watching import Watched

#: Headers with the same value in each request.
_SAME = frozenset(
    {"content-type", "user-agent", "x-amz-security-token", "x-amz-target", "x-amzn-query-mode"}
)
#: How the names of the headers begin in which boto3 counts its retries. SQS ignores them.
_RETRIES = "amz-sdk-"


class NoPattern(Exception):
    """The calls of this client can't be made from a pattern. The message is the reason."""


def learn(watched: Watched, params: Mapping[str, Any]) -> RequestPattern:
    """Return the pattern of a call that boto3 has made.

    The pattern must make the same request again, byte for byte, and with the same signature.

    Args:
        params: The parameters of the call.

    Raises:
        NoPattern: It does not.
    """
    request = watched.request
    if watched.wrapper is not None:
        raise NoPattern(f"{watched.wrapper} instruments boto3")
    if request is None or watched.http_session is None or request.body != body_of(params):
        raise NoPattern("boto3 does not send it in SQS's JSON protocol")
    headers = _texts(request)
    same = {name: value for name, value in headers.items() if name.lower() in _SAME}
    pattern = RequestPattern(
        url=request.url,
        headers=same,
        signing=_signing_of(watched, headers, same),
        http_session=watched.http_session,
    )
    try:
        again = pattern.request(request.body, headers.get("X-Amz-Date"))
    except PatternChanged as error:
        raise NoPattern("its credentials changed meanwhile") from error
    if different := _names_of_differences(headers, _texts(again)):
        raise NoPattern(f"boto3 sends other headers: {', '.join(different)}")
    return pattern


def _signing_of(watched: Watched, headers: Mapping[str, str], same: Mapping[str, str]) -> Signing:
    asked, request = watched.signing, watched.request
    if "request_signer" not in asked:
        raise NoPattern("it is not signed by boto3's signer")
    version = asked["signature_version"]
    if not isinstance(version, str):
        raise NoPattern("it is not signed")
    context = asked["request"].context.get("signing") or {}
    service = context.get("signing_name") or asked["signing_name"]
    region = context.get("region") or asked["region_name"]
    auth = asked["request_signer"].get_auth_instance(service, region, version)
    if type(auth) is not SigV4Auth:
        raise NoPattern(f"it is signed by {type(auth).__name__}")
    signed_at = headers.get("X-Amz-Date", "")
    signed = {**same, "X-Amz-Date": signed_at}
    unsigned = AWSRequest(request.method, request.url, signed, request.body)
    return Signing(
        signer=asked["request_signer"],
        credentials=auth.credentials,
        service=service,
        region=region,
        version=version,
        canonical=auth.canonical_request(unsigned).rpartition("\n")[0],
        signed_at=signed_at,
        signed_headers=auth.signed_headers(auth.headers_to_sign(unsigned)),
    )


def _texts(request: AWSPreparedRequest) -> dict[str, str]:
    return {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }


def _names_of_differences(ours: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    def values(headers: Mapping[str, str]) -> set[tuple[str, str]]:
        lower = {(name.lower(), value) for name, value in headers.items()}
        return {each for each in lower if not each[0].startswith(_RETRIES)}

    return sorted({name for name, _ in values(ours) ^ values(others)})
