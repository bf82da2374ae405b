"""What a worker uses on this machine, tried like a worker does, and the doctor's rules about it.

Nothing is left behind.
"""
# ruff: noqa: D403, D415 - the docstrings of rules are what people read.

from __future__ import annotations

import enum
import errno
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from celery_sqs_heartbeat.cli.app import AppFacts
from celery_sqs_heartbeat.cli.findings import Found, when
from celery_sqs_heartbeat.cli.pages import serves_health
from celery_sqs_heartbeat.cli.queues import QueueFacts
from celery_sqs_heartbeat.journal.folder import Root, create, write_all
from celery_sqs_heartbeat.journal.shipping import new_shipping_client, own_spool
from celery_sqs_heartbeat.observe.status import StatusServer
from celery_sqs_heartbeat.settings import PREFIX, Settings
from celery_sqs_heartbeat.settings.address import Destination, parse_address, parse_target, url_of
from celery_sqs_heartbeat.worker.versions import is_tested

#: SQS refuses calls whose signature's time differs by more than this, in seconds (AWS reference
#: guide, "Troubleshoot Signature Version 4 signing": five minutes).
SIGNATURE_SECONDS = 300
#: The smallest difference that can be measured, in seconds: the Date header has whole seconds,
#: and answers take time.
SKEW_SECONDS = 5
#: A busy worker's journal fills this many bytes in a few hours.
LITTLE_SPACE = 256 << 20
#: Bytes to write, to see whether the file system has space.
_SAMPLE = bytes(65_536)


class Place(enum.Enum):
    """Whether a worker on this machine can write or listen at a place."""

    USABLE = "usable"
    UNUSABLE = "unusable"
    #: A worker already serves its status page there.
    OURS = "ours"
    #: S3 does not let us use the bucket.
    NO_BUCKET = "no bucket"
    #: Usable, as far as can be known without a write.
    UNTRIED = "untried"


class Probed(NamedTuple):
    """How a place was found.

    Attributes:
        space: Bytes that its file system has left for this user, if it is a folder.
    """

    place: Place = Place.USABLE
    why: str = ""
    space: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The state of the journal's place, of the status page's address, and of the clock.

    Attributes:
        is_answered: Whether SQS answered any call.
        skew: How many seconds the clock is ahead of SQS's; None if no answer has the time.
    """

    journal: Probed = field(default_factory=Probed)
    page: Probed = field(default_factory=Probed)
    is_answered: bool = True
    skew: float | None = 0.0


def read_machine(settings: Settings, queues: Iterable[QueueFacts]) -> MachineFacts:
    """Return what a worker with these settings would find on this machine.

    Args:
        queues: SQS's answers about the queues, which contain the time.
    """
    answers = [answer for each in queues for answer in (each.found, *each.tries.values())]
    skews = [answer.skew for answer in answers if answer.skew is not None]
    return MachineFacts(
        journal=_probe_journal(settings.journal),
        page=_probe_page(settings.status),
        is_answered=any(answer.has_come for answer in answers),
        # A slow answer makes the clock seem ahead, so the smallest difference is the most exact.
        skew=min(skews, key=abs, default=None),
    )


def _probe_journal(journal: str | None) -> Probed:
    if journal is None:
        return Probed()
    target = parse_target(journal)
    if not isinstance(target, Destination):
        return _probe_folder(Root(target.absolute()))
    spool = _probe_folder(own_spool(target))
    return _probe_bucket(target, spool.space) if spool.place is Place.USABLE else spool


def _probe_folder(root: Root) -> Probed:
    # The folder itself, or the nearest parent that exists.
    above = (root.folder, *root.folder.parents)
    nearest = next(each for each in above if os.path.lexists(each))
    try:
        if nearest.is_relative_to(root.top):
            root.check(nearest)
        if nearest == root.folder:
            place = nearest / f".doctor-{os.getpid()}-{os.urandom(4).hex()}"
            with create(place) as file:
                try:
                    write_all(file, _SAMPLE)
                finally:
                    place.unlink()
        else:
            os.rmdir(tempfile.mkdtemp(prefix=".sqs-heartbeat-doctor-", dir=nearest))
        status = os.statvfs(nearest)
    except OSError as error:
        return _unusable(error)
    return Probed(space=status.f_bavail * status.f_frsize)


def _unusable(error: OSError) -> Probed:
    return Probed(Place.UNUSABLE, error.strerror or str(error))


def _probe_bucket(target: Destination, space: int | None) -> Probed:
    """List one name in the bucket. Only a write would show whether writes are permitted.

    HeadBucket needs less, but its answer does not distinguish a wrong key, a missing permission
    and a bucket of another account.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        new_shipping_client().list_objects_v2(Bucket=target.bucket, Prefix=target.prefix, MaxKeys=1)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code"))
        # A worker does not need s3:ListBucket.
        if code != "AccessDenied":
            why = "there is no such bucket" if code == "NoSuchBucket" else code
            return Probed(Place.NO_BUCKET, why, space)
    except (BotoCoreError, OSError, ValueError) as error:
        return Probed(Place.NO_BUCKET, type(error).__name__, space)
    return Probed(Place.UNTRIED, space=space)


def _probe_page(address: str | None) -> Probed:
    if address is None:
        return Probed()
    host, port = parse_address(address)
    try:
        StatusServer(host, port, {}).server_close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE and serves_health(url_of(host, port)):
            return Probed(Place.OURS)
        return _unusable(error)
    return Probed()


def e501(machine: MachineFacts) -> list[Found]:
    """this machine's clock is wrong

    SQS refuses calls that are signed with a time more than 5 minutes in the past or in the future.

    Fix: Set the clock. chrony or systemd-timesyncd keeps it right.
    """
    skew = machine.skew or 0
    return when(abs(skew) > SIGNATURE_SECONDS, value=_side(skew))


def w502(machine: MachineFacts) -> list[Found]:
    """this machine's clock differs from SQS's

    ETAs are off, and from a difference of 5 minutes SQS refuses every call. Leases do not depend on
    this clock.

    Fix: Set the clock. chrony or systemd-timesyncd keeps it right.
    """
    skew = machine.skew or 0
    return when(SKEW_SECONDS < abs(skew) <= SIGNATURE_SECONDS, value=_side(skew))


def _side(skew: float) -> str:
    return f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"


def p503(machine: MachineFacts) -> list[Found]:
    """this machine's clock is right

    It agrees with the time in SQS's answers.
    """
    return when(machine.skew is not None and abs(machine.skew) <= SKEW_SECONDS)


def i504(machine: MachineFacts) -> list[Found]:
    """this machine's clock could not be checked

    No answer from SQS contained the time.
    """
    return when(machine.is_answered and machine.skew is None)


def p505(installed: AppFacts) -> list[Found]:
    """the versions are tested together

    The tests run on Celery and kombu 5.5 to 5.7.
    """
    return when(_are_tested(installed), value=_versions(installed))


def w505(installed: AppFacts) -> list[Found]:
    """these versions are not tested with celery-sqs-heartbeat

    The heartbeat changes parts of Celery and kombu that may change between versions.

    Fix: Use Celery and kombu 5.5 to 5.7, or a newer celery-sqs-heartbeat.
    """
    return when(not _are_tested(installed), value=_versions(installed))


def _are_tested(app: AppFacts) -> bool:
    return all(is_tested(app.versions[name]) for name in ("celery", "kombu"))


def _versions(app: AppFacts) -> str:
    installed = [f"{name} {version}" for name, version in app.versions.items()]
    return ", ".join([*installed, f"pool {app.pool}"])


def e506(app: AppFacts, machine: MachineFacts) -> list[Found]:
    """the journal can't be written

    The worker runs without a journal and drops the records.

    Fix: Correct sqs_heartbeat_journal, or give the worker's user write permission there.
    """
    return _journal(machine.journal.place is Place.UNUSABLE, app, machine.journal.why)


def w507(app: AppFacts, machine: MachineFacts) -> list[Found]:
    """there is little space for the journal

    When the file system is full, the worker drops journal records.

    Fix: Remove old days of the journal, or choose a larger file system.
    """
    space = machine.journal.space
    is_little = space is not None and space < LITTLE_SPACE
    return _journal(is_little, app, f"{(space or 0) >> 20} MiB left")


def e508(app: AppFacts, machine: MachineFacts) -> list[Found]:
    """the journal's bucket can't be used

    Segments wait in the folder for temporary files. Beyond 1 GiB the oldest are lost.

    Fix: Correct sqs_heartbeat_journal, boto3's region and credentials, or the S3 endpoint.
    """
    return _journal(machine.journal.place is Place.NO_BUCKET, app, machine.journal.why)


def _journal(is_found: bool, app: AppFacts, why: str) -> list[Found]:
    return when(is_found, PREFIX + "journal", f"{app.settings.journal} ({why})")


def i509(app: AppFacts, machine: MachineFacts) -> list[Found]:
    """the permission to write to the journal's bucket was not tried

    Trying s3:PutObject would write an object.

    Fix: Make sure that the worker's role has s3:PutObject on the prefix.
    """
    return when(machine.journal.place is Place.UNTRIED, PREFIX + "journal", app.settings.journal)


def e510(app: AppFacts, machine: MachineFacts) -> list[Found]:
    """the status page's address can't be used

    The worker runs without the page and without metrics for Prometheus.

    Fix: Choose a free port of this machine, or 127.0.0.1 as the host. Port 0 takes any free port.
    """
    value = f"{app.settings.status} ({machine.page.why})"
    return when(machine.page.place is Place.UNUSABLE, PREFIX + "status", value)


def i511(app: AppFacts, machine: MachineFacts) -> list[Found]:
    """a worker already serves its status page there

    The port is used by a worker with the heartbeat, probably this app's own.

    Fix: Nothing, if it is the only one. Each worker on a host needs its own port.
    """
    return when(machine.page.place is Place.OURS, PREFIX + "status", app.settings.status)
