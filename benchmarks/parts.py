"""The parts of the benchmarks, by name."""

from __future__ import annotations

from importlib import import_module

from benchmarks.frame.part import Part

#: Where each part is, in the order of the page. A part is imported when it is run, because its
#: libraries are heavy.
PARTS: dict[str, str] = {
    "extension-calls": "benchmarks.extension_calls.part",
    "throughput": "benchmarks.throughput.part",
    "overhead": "benchmarks.overhead.part",
    "scale": "benchmarks.scale.part",
    "starvation": "benchmarks.starvation.part",
    "recovery": "benchmarks.recovery.part",
    "pipeline": "benchmarks.pipeline.part",
}


def find(name: str) -> Part:
    """Return a part.

    Raises:
        KeyError: No part has that name.
    """
    part = import_module(PARTS[name]).PART
    assert isinstance(part, Part)
    return part
