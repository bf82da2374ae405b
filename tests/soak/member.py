"""One worker of the soak, with its keepers, and what its log reports about them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import random
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.soak.link import Link
from tests.soak.records import QUEUES, Harm, WorkerInfo
from tests.soak.workers import FLUSH_SECONDS, SOFT_SECONDS
from tests.support.workers import ProcessWorker, launch

POOLS = ["prefork", "prefork", "threads", "solo"]
if importlib.util.find_spec("gevent"):
    POOLS.append("gevent")
#: With 0, a worker may hold any number of messages.
PREFETCH_MULTIPLIERS = [0, 1, 1, 2, 2, 4, 4]
#: With "adaptive", botocore pauses before calls unless the product prevents it. Without a timeout,
#: it waits for an answer indefinitely.
RETRY_MODES = ["standard", "standard", "adaptive"]
CLIENT_CONFIGS: list[dict[str, Any]] = [{}, {}, {"read_timeout": None}]
#: A keeper was lost, and another continues its leases.
_LOST = re.compile(r"the keeper's process .*; another starts ")
#: Causes with which a message was never meant to be released.
_NEVER_RELEASED = r"\((?:kept|arrived late|not settled)\)"
#: A release is not tried again. A release that stops a message group has another wording.
_LAPSING = re.compile(
    rf"message-lapsing: (?!.*{_NEVER_RELEASED}(?:$|: ))"
    r"(?:group .*? stopped .*?: )?message ([\w-]+)",
    re.MULTILINE,
)


@dataclass(eq=False, kw_only=True)
class Member:
    """A worker with its link, and what was done to it.

    Attributes:
        break_file: A file. When it exists, the worker loses its connection.
        is_soft: Whether SIGQUIT starts a soft shutdown.
        asked_to_exit_at: When its shutdown was requested, or infinity.
        paused: The standstill that it is in, if any.
        keepers: All keepers that it has had, which may outlive it.
    """

    info: WorkerInfo
    process: ProcessWorker
    link: Link
    break_file: Path
    is_soft: bool
    asked_to_exit_at: float = math.inf
    has_quit: bool = False
    paused: Harm | None = None
    harms: list[Harm] = field(default_factory=list)
    keepers: list[psutil.Process] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        """Whether it consumes or has consumed."""
        return "ready." in self.process.logs()

    @property
    def is_leaving(self) -> bool:
        """Whether its shutdown was requested."""
        return self.asked_to_exit_at < math.inf

    def pool_pids(self) -> list[int]:
        """Return the ids of its pool's live processes."""
        if self.info.pool != "prefork":
            return []
        return [child.pid for child in _children(self.process.pid) if not _leads(child)]

    def new_keepers(self) -> list[psutil.Process]:
        """Find the keepers that are new. A keeper is the only child that leads its own session."""
        known = {keeper.pid for keeper in self.keepers}
        new = [
            child
            for child in _children(self.process.pid)
            if child.pid not in known and _leads(child)
        ]
        self.keepers += new
        return new

    def living_keepers(self) -> list[psutil.Process]:
        """Return the keepers that are alive, the latest last."""
        return [keeper for keeper in self.keepers if lives(keeper)]

    def unasked_deaths(self) -> str:
        """Return a fault if it has lost more keepers than the soak has harmed, else ""."""
        lost = len(_LOST.findall(self.process.logs()))
        asked = sum(harm.what in ("keeper-kill", "keeper-pause") for harm in self.harms)
        return f"{self.info.name} lost {lost} keepers, of {asked} harmed" if lost > asked else ""


def unrepeated_messages(log: str) -> list[str]:
    """Return the messages whose release is not tried again, according to a log."""
    return _LAPSING.findall(log)


def start_member(
    name: str,
    link: Link,
    folder: Path,
    ledger: Path,
    chance: random.Random,
    *,
    pool: str | None = None,
    queues: list[str] | None = None,
) -> Member:
    """Start a worker. Choices that the caller does not make are random."""
    pool = pool or chance.choice(POOLS)
    conf: dict[str, Any] = {
        "worker_prefetch_multiplier": chance.choice(PREFETCH_MULTIPLIERS),
        "worker_soft_shutdown_timeout": chance.choice(SOFT_SECONDS),
        "worker_cancel_long_running_tasks_on_connection_loss": chance.random() < 0.25,
        "sqs_heartbeat_flush_timeout": FLUSH_SECONDS,
        # Shorter than every visibility timeout: the audit takes longer ones for extensions.
        "sqs_heartbeat_release_delay": [0, 1, 2],
        "sqs_heartbeat_on_lost": chance.choice(["warn", "warn", "revoke", "terminate"]),
        "broker_transport_options": {
            "region": "us-east-1",
            "is_secure": False,
            "wait_time_seconds": 1,
            "client-config": chance.choice(CLIENT_CONFIGS),
        },
        "sqs_heartbeat_journal": str(folder / "journal"),
    }
    concurrency = 1 if pool == "solo" else chance.randint(1, 4)
    queues = queues or chance.choice([[*QUEUES], chance.sample([*QUEUES], 2)])
    arguments = ["-P", pool, "-c", str(concurrency), "-Q", ",".join(queues)]
    retry_mode = chance.choice(RETRY_MODES)
    break_file = folder / f"break-{name}"
    link.proxy.start()
    process = launch(
        name,
        app="tests.soak.proj",
        args=["--heartbeat-sqs", *arguments],
        env={
            "CELERY_BROKER_URL": link.proxy.broker_url,
            "AWS_RETRY_MODE": retry_mode,
            "SOAK_LEDGER": str(ledger),
            "SOAK_WORKER": name,
            "SOAK_CONF": json.dumps(conf),
            "PROJ_BREAK": str(break_file),
        },
        log_dir=folder,
    )
    info = WorkerInfo(
        name=name,
        pool=pool,
        began=time.monotonic(),
        cancels=conf["worker_cancel_long_running_tasks_on_connection_loss"],
        on_lost=conf["sqs_heartbeat_on_lost"],
        log=str(folder / f"{name}-1.log"),
        settings=" ".join(
            [f"AWS_RETRY_MODE={retry_mode}", *arguments, *(f"{k}={v}" for k, v in conf.items())]
        ),
    )
    return Member(
        info=info,
        process=process,
        link=link,
        break_file=break_file,
        is_soft=conf["worker_soft_shutdown_timeout"] > 0,
    )


def lives(process: psutil.Process) -> bool:
    """Return whether a process has not ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def left_of(group: int) -> list[int]:
    """Return the ids of the live processes of a process group."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and lives(process):
                left.append(process.pid)
    return left


def _children(pid: int) -> list[psutil.Process]:
    try:
        return [child for child in psutil.Process(pid).children() if lives(child)]
    except psutil.NoSuchProcess:
        return []


def _leads(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == process.pid
    except ProcessLookupError:
        return False
