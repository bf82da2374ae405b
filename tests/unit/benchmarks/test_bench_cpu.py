"""The CPU times that the part `overhead` reads."""

from __future__ import annotations

import os
import threading
import time

import pytest

from benchmarks.overhead import cpu
from benchmarks.overhead.usage import Cpu


def use_cpu(seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass


def test_a_process_has_the_cpu_of_all_its_threads_even_of_ended_ones() -> None:
    own, before = time.process_time(), cpu.process_seconds(os.getpid())
    thread = threading.Thread(target=use_cpu, args=(0.05,))
    thread.start()
    thread.join()
    used = cpu.process_seconds(os.getpid()) - before
    assert 0.05 <= used <= time.process_time() - own


def test_the_first_thread_has_only_its_own_cpu() -> None:
    before = cpu.first_thread_seconds(os.getpid())
    thread = threading.Thread(target=use_cpu, args=(0.2,))
    thread.start()
    thread.join()
    assert cpu.first_thread_seconds(os.getpid()) - before < 0.1


def test_a_kernel_without_scheduler_statistics_knows_the_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_path: object) -> str:
        raise FileNotFoundError

    exact = cpu.first_thread_seconds(os.getpid())
    monkeypatch.setattr("pathlib.Path.read_text", missing)
    assert cpu.first_thread_seconds(os.getpid()) == pytest.approx(exact, abs=0.1, rel=0.1)


def test_the_cpu_of_a_turn_is_what_each_process_used_meanwhile() -> None:
    start, end = Cpu(consumer=1, worker=2, keeper=3), Cpu(consumer=2, worker=4, keeper=6)
    assert end - start == Cpu(consumer=1, worker=2, keeper=3)
