"""Runs keepers of several sizes side by side, and compares their costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.frame.part import Findings, Picture, Size, Spread, Table, digits
from benchmarks.frame.pictures import line_chart
from benchmarks.scale.keeping import CYCLE, SAFE_SECONDS, Kept
from benchmarks.scale.messages import HANDLE_LENGTH

#: Seconds from a call's arrival at the server to its answer.
_LATENCY = 0.01
_DIRECT, _BOTO3 = "direct", "boto3"
_NAMES = {_DIRECT: "the keeper's calls", _BOTO3: "every call by boto3"}
#: By size: leases, seconds of a round, rounds.
_PLANS: dict[Size, tuple[Sequence[int], float, int]] = {
    Size.FULL: ((1_000, 10_000, 100_000), 10.0, 3),
    Size.TINY: ((1_000, 5_000), 3.0, 1),
}

#: The leases whose memory is traced. Tracing makes a book several times as slow.
_TRACED_LEASES = 10_000
#: By size: the calls of a round and the rounds of the comparison of calls alone.
_CALLS = {Size.FULL: ("200", "15"), Size.TINY: ("20", "2")}
_CALL_RATIO = "CPU of a call, by boto3 to the keeper's"
#: The bytes of a receipt handle, a message id and a task id.
_TEXTS = sum(map(sys.getsizeof, ("h" * HANDLE_LENGTH, "i" * 36, "t" * 36)))

Round = dict[tuple[int, str], Kept]


def measure(size: Size) -> Findings:
    """Measure what leases and their calls cost a keeper."""
    sizes, seconds, rounds = _PLANS[size]
    with serving(0.0) as port:
        calls = _compare_calls(port, size)
    with serving(_LATENCY) as port:
        measured = _rounds(port, sizes, seconds, rounds)
    return Findings(
        tables=[
            _call_table(calls),
            _cost_table(measured, sizes),
            _keeping_table(measured, sizes),
            _memory_table(measured, sizes, _bytes_per_lease(_TRACED_LEASES)),
        ],
        ratios={_CALL_RATIO: [by_boto3 / ours for ours, by_boto3 in calls]}
        | _ratios(measured, sizes),
        pictures=[_picture(measured, sizes)],
        notes=_notes(measured, sizes),
    )


@contextmanager
def serving(latency: float) -> Iterator[int]:
    """Run the server in a process of its own, and yield its port."""
    command = [sys.executable, "-m", "benchmarks.scale.server", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.terminate()


def _compare_calls(port: int, size: Size) -> list[tuple[float, float]]:
    command = [sys.executable, "-m", "benchmarks.scale.calling", str(port), *_CALLS[size]]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [(ours, by_boto3) for ours, by_boto3 in json.loads(done.stdout)]


def _call_table(calls: Sequence[tuple[float, float]]) -> Table:
    ours, by_boto3 = zip(*calls, strict=True)
    rows = [["CPU ms", str(Spread.of(ours)), str(Spread.of(by_boto3))]]
    return Table(
        "Calls of ten entries, one after another, answered at once", ["", *_NAMES.values()], rows
    )


def _rounds(port: int, sizes: Sequence[int], seconds: float, rounds: int) -> list[Round]:
    """Run all keepers at the same time, so that each meets the same load of the machine."""
    running: dict[tuple[int, str], subprocess.Popen[str]] = {}
    for leases in sizes:
        for path in (_DIRECT, _BOTO3):
            command = [sys.executable, "-m", "benchmarks.scale.keeping"]
            command += [str(port), str(leases), str(seconds), str(rounds), path]
            running[leases, path] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
    outputs: dict[tuple[int, str], Any] = {}
    for process in running.values():
        assert process.stdout is not None
        process.stdout.readline()
    for process in running.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for key, process in running.items():
        outputs[key] = json.loads(process.communicate()[0])
    return [
        {key: Kept(**output[index]) for key, output in outputs.items()} for index in range(rounds)
    ]


def _share(kept: Kept, leases: int) -> float:
    """Return the share of a core, in percent, at the rate that this many leases need."""
    return 100 * kept.cpu / kept.extended * leases / CYCLE


def _each(
    measured: Sequence[Round], leases: int, path: str, value: Callable[[Kept], float]
) -> Spread:
    return Spread.of([value(each[leases, path]) for each in measured])


def _cost_table(measured: Sequence[Round], sizes: Sequence[int]) -> Table:
    rows = []
    for leases in sizes:
        shares = [
            str(_each(measured, leases, path, lambda kept: _share(kept, leases)))  # noqa: B023
            for path in (_DIRECT, _BOTO3)
        ]
        per_call = [
            str(_each(measured, leases, path, lambda kept: 1000 * kept.cpu / kept.calls))
            for path in (_DIRECT, _BOTO3)
        ]
        rows.append([f"{leases:,}", *shares, *per_call])
    columns = [
        "leases",
        *(f"% of a core, {_NAMES[path]}" for path in (_DIRECT, _BOTO3)),
        *(f"CPU ms a call, {_NAMES[path]}" for path in (_DIRECT, _BOTO3)),
    ]
    return Table("CPU of the keeper's process", columns, rows)


def _keeping_table(measured: Sequence[Round], sizes: Sequence[int]) -> Table:
    rows = []
    for leases in sizes:
        all_kept = [each[leases, path] for each in measured for path in (_DIRECT, _BOTO3)]
        rows.append(
            [
                f"{leases:,}",
                digits(sum(kept.extended for kept in all_kept)),
                digits(sum(kept.late for kept in all_kept)),
                digits(sum(kept.expired for kept in all_kept)),
                digits(min(kept.least_left for kept in all_kept)),
            ]
        )
    columns = [
        "leases",
        "extensions",
        f"with less than {SAFE_SECONDS:.0f} s left",
        "expired leases",
        "least that was left, s",
    ]
    return Table("Extensions, of both kinds of keepers", columns, rows)


def _memory_table(measured: Sequence[Round], sizes: Sequence[int], traced: float) -> Table:
    rows = [
        [
            f"{leases:,}",
            str(_each(measured, leases, _DIRECT, lambda kept: kept.resident)),
            digits(traced),
            digits(_TEXTS),
        ]
        for leases in sizes
    ]
    columns = ["leases", "growth of the process", "records of the book", "texts from SQS"]
    return Table("Memory, bytes a lease", columns, rows)


def _bytes_per_lease(leases: int) -> float:
    command = [sys.executable, "-m", "benchmarks.scale.memory", str(leases)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _ratios(measured: Sequence[Round], sizes: Sequence[int]) -> dict[str, list[float]]:
    most, fewer = sizes[-1], sizes[-2]

    def per_extension(kept: Kept) -> float:
        return kept.cpu / kept.extended

    return {
        f"CPU of {most:,} leases, every call by boto3 to the keeper's calls": [
            per_extension(each[most, _BOTO3]) / per_extension(each[most, _DIRECT])
            for each in measured
        ],
        f"CPU of an extension, {most:,} leases to {fewer:,}": [
            per_extension(each[most, _DIRECT]) / per_extension(each[fewer, _DIRECT])
            for each in measured
        ],
    }


def _picture(measured: Sequence[Round], sizes: Sequence[int]) -> Picture:
    lines = {
        _NAMES[path]: [
            (leases, _each(measured, leases, path, lambda kept: _share(kept, leases)).median)  # noqa: B023
            for leases in sizes
        ]
        for path in (_DIRECT, _BOTO3)
    }
    return line_chart(
        "scale",
        lines,
        alt="The CPU of a keeper grows in proportion to the number of its leases.",
        across="leases",
        up="CPU, % of a core",
        log_across=True,
        log_up=True,
    )


def _notes(measured: Sequence[Round], sizes: Sequence[int]) -> list[str]:
    most = sizes[-1]
    share = _each(measured, most, _DIRECT, lambda kept: _share(kept, most))
    return [
        f"Each round lasts {measured[0][most, _DIRECT].seconds:.0f} s, not a whole visibility "
        f"timeout. The leases were received at even distances over {CYCLE:.0f} s, so their "
        f"extensions come at the rate that they always have: {most / CYCLE:,.0f} a second for "
        f"{most:,} leases, in {share} % of a core.",
        "The keeper's process of a worker also talks to the worker, writes the board in shared "
        "memory, and may write a journal and serve metrics. That is not measured here. Real calls "
        "go through TLS, which costs both kinds of calls the same.",
        f"Receipt handles have {HANDLE_LENGTH} characters here. The growth of the process is that "
        "of the receives. `records of the book` is what Python allocates for a lease once it was "
        f"extended, measured with {_TRACED_LEASES:,} leases. `texts from SQS` are its handle and "
        "its ids.",
    ]
