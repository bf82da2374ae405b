"""From its start, a keeper survives the signals that end its worker."""

from __future__ import annotations

import os
import signal
import socket

from celery_sqs_heartbeat.current.sharing import share_table, shared_descriptor, unshare_table
from celery_sqs_heartbeat.link.child import KeeperProcess
from celery_sqs_heartbeat.link.deliveries import delivery_sockets
from celery_sqs_heartbeat.link.watching import signals_held_back
from tests.support.waiting import wait_until

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)


def test_signals_that_arrive_before_a_keeper_can_ignore_them_do_not_end_it() -> None:
    share_table(8)
    ours, theirs = socket.socketpair()
    inlet, outlet = delivery_sockets()
    with theirs, inlet, outlet:
        child = KeeperProcess(theirs.fileno(), outlet.fileno(), shared_descriptor())
    for number in ENDING:
        os.kill(child.pid, number)
    # It exits normally because this end of its link is closed.
    ours.close()
    wait_until(child.has_ended)
    unshare_table()
    assert child.describe_end() == "exit status 0"


def test_this_process_gets_blocked_signals_afterwards() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        with signals_held_back():
            # Sent to this thread: another thread of the test runner could take a signal that is
            # sent to the process.
            signal.raise_signal(signal.SIGUSR1)
            assert got == []
        assert got == [signal.SIGUSR1]
        assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(signal.SIGUSR1, before)
