"""Times in which something could not be done, and calculations with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.soak.table import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A time in which something could not be done, and why."""

    why: Cause
    start: float
    end: float


def free(start: float, end: float, blocks: Iterable[Block]) -> float:
    """Return how many seconds between two times no block covers."""
    left, at = 0.0, start
    for block in sorted(blocks, key=lambda block: block.start):
        if block.start > at:
            left += max(0.0, min(block.start, end) - at)
        at = max(at, block.end)
        if at >= end:
            return left
    return left + max(0.0, end - at)


def after(at: float, blocks: Iterable[Block]) -> float:
    """Return the first time from `at` on that no block covers."""
    for block in sorted(blocks, key=lambda block: block.start):
        if block.start <= at:
            at = max(at, block.end)
    return at


def lasting(start: float, seconds: float, blocks: Iterable[Block]) -> float:
    """Return when so many seconds that no block covers have passed since `start`."""
    at = start
    for block in sorted(blocks, key=lambda block: block.start):
        if block.end <= at:
            continue
        if block.start >= at + seconds:
            break
        seconds -= max(0.0, block.start - at)
        at = max(at, block.end)
    return at + seconds


def since_when(end: float, seconds: float, blocks: Iterable[Block]) -> float:
    """Return the time from which so many seconds that no block covers lead up to `end`."""
    mirrored = [replace(block, start=-block.end, end=-block.start) for block in blocks]
    return -lasting(-end, seconds, mirrored)


def longest_overlap(start: float, end: float, blocks: Iterable[Block]) -> Block | None:
    """Return the block that covers most of the time between two times, if any does."""

    def covered(block: Block) -> float:
        return min(end, block.end) - max(start, block.start)

    overlapping = [block for block in blocks if covered(block) > 0]
    return max(overlapping, key=covered, default=None)
