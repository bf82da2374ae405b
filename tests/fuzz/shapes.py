"""Values that might come from outside: of any shape, or almost correct."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from celery_sqs_heartbeat.leases.lease import SQS
from tests.support.environment import scaled

FUZZ = settings(
    max_examples=scaled(60, 200),
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

#: All values that JSON can hold, as Python reads it: NaN and Infinity, too.
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)

#: Error codes: known ones, prefixed ones, and unknown ones.
codes = st.sampled_from(
    (
        "ReceiptHandleIsInvalid",
        "com.amazonaws.sqs#ReceiptHandleIsInvalid",
        "AWS.SimpleQueueService.MessageNotInflight",
        "InvalidParameterValue",
        "RequestThrottled",
        "AccessDenied",
        "InternalError",
        "NeverHeardOf",
        "",
        ".#.",
    )
)
texts = st.sampled_from(
    (
        "",
        "beyond the LIMIT",
        "The receipt handle has expired",
        "Value ½ does not exist or is not available",
    )
)
errors = st.fixed_dictionaries(
    {}, optional={"Code": codes | json_values, "Message": texts | json_values}
)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for dicts of these fields, any of which may be missing."""
    return st.fixed_dictionaries({}, optional=fields)


#: Ids of entries that were sent, ids of others, and values that are not ids.
ids = (
    st.integers(0, SQS.most_entries + 1).map(str)
    | st.sampled_from(("٣", "²", "-1", "1.0", " 0", "01"))
    | json_values
)
successful = st.lists(optional(Id=ids) | json_values, max_size=12) | json_values
failed = (
    st.lists(
        optional(Id=ids, Code=codes | json_values, Message=texts | json_values, SenderFault=scalars)
        | json_values,
        max_size=12,
    )
    | json_values
)
answers = optional(Successful=successful, Failed=failed) | json_values


def _client_error(error: dict[str, Any], metadata: Any, operation: str) -> ClientError:
    response: Any = {"Error": error}
    if metadata is not None:
        response["ResponseMetadata"] = metadata
    return ClientError(response, operation)


client_errors = st.builds(
    _client_error,
    errors,
    st.none()
    | optional(HTTPStatusCode=st.sampled_from((200, 400, 403, 429, 500, 503)) | json_values),
    st.sampled_from(("ChangeMessageVisibilityBatch", "AssumeRole")),
)
exceptions: st.SearchStrategy[Exception] = client_errors | st.sampled_from(
    (
        ReadTimeoutError(endpoint_url="http://x"),
        ConnectionClosedError(endpoint_url="http://x"),
        ConnectTimeoutError(endpoint_url="http://x"),
        EndpointConnectionError(endpoint_url="http://x"),
        NoCredentialsError(),
        ParamValidationError(report="x"),
        ConnectionResetError(),
        TimeoutError(),
        KeyError("Entries"),
        ZeroDivisionError(),
        RecursionError(),
    )
)
