"""Tries the journal's place and the status page's address like a worker. Leaves nothing behind."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from celery_sqs_heartbeat.cli.doctor.place_facts import Place, PlaceFacts
from celery_sqs_heartbeat.cli.page_requests import serves_health
from celery_sqs_heartbeat.journal.folder import Root, create, write_all
from celery_sqs_heartbeat.journal.shipping import new_shipping_client, own_spool
from celery_sqs_heartbeat.observe.status import StatusServer
from celery_sqs_heartbeat.settings import Settings
from celery_sqs_heartbeat.settings.address import Destination, parse_address, parse_target, url_of

#: Bytes to write, to see whether the file system has space.
_SAMPLE = bytes(65_536)


def probe_places(settings: Settings) -> PlaceFacts:
    """Return what a worker with these settings would find on this machine."""
    page, page_why = _probe_page(settings.status)
    if settings.journal is None:
        return PlaceFacts(page=page, page_why=page_why)
    target = parse_target(settings.journal)
    space = None
    if isinstance(target, Destination):
        journal, why, space = _probe_folder(own_spool(target).top, is_private=True)
        if journal is Place.USABLE:
            journal, why = _probe_bucket(target)
    else:
        journal, why, space = _probe_folder(target, is_private=False)
    return PlaceFacts(journal=journal, journal_why=why, space=space, page=page, page_why=page_why)


def _probe_folder(path: Path, *, is_private: bool) -> tuple[Place, str, int | None]:
    try:
        if os.path.lexists(path):
            _write_in(path, is_private=is_private)
        else:
            _make_in(_nearest(path.absolute()))
        status = os.statvfs(_nearest(path.absolute()))
    except OSError as error:
        return Place.UNUSABLE, _reason(error), None
    return Place.USABLE, "", status.f_bavail * status.f_frsize


def _nearest(path: Path) -> Path:
    """Return the path itself or the nearest parent that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _write_in(path: Path, *, is_private: bool) -> None:
    name = Path(f".doctor-{os.getpid()}-{os.urandom(4).hex()}")
    place = Root(path, is_private=is_private).located(name)
    with create(place) as file:
        try:
            write_all(file, _SAMPLE)
        finally:
            place.unlink()


def _make_in(parent: Path) -> None:
    """Make a folder in the deepest existing parent, and remove it."""
    os.rmdir(tempfile.mkdtemp(prefix=".sqs-heartbeat-doctor-", dir=parent))


def _probe_bucket(target: Destination) -> tuple[Place, str]:
    """List one name in the bucket. Only a write would show whether writes are permitted.

    HeadBucket needs less, but its answer does not distinguish a wrong key, a missing permission
    and a bucket of another account.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        new_shipping_client().list_objects_v2(Bucket=target.bucket, Prefix=target.prefix, MaxKeys=1)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code"))
        if code == "AccessDenied":
            # A worker does not need s3:ListBucket.
            return Place.UNTRIED, ""
        return Place.NO_BUCKET, "there is no such bucket" if code == "NoSuchBucket" else code
    except (BotoCoreError, OSError, ValueError) as error:
        return Place.NO_BUCKET, type(error).__name__
    return Place.UNTRIED, ""


def _probe_page(address: str | None) -> tuple[Place, str]:
    if address is None:
        return Place.USABLE, ""
    host, port = parse_address(address)
    try:
        StatusServer(host, port, {}).server_close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE and serves_health(url_of(host, port)):
            return Place.OURS, ""
        return Place.UNUSABLE, _reason(error)
    return Place.USABLE, ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
