"""How the keeper's cost grows with its leases, and what its calls cost beside boto3's."""

from __future__ import annotations

from benchmarks.frame.part import Part
from benchmarks.scale.measuring import measure

PART = Part(
    name="scale",
    title="How the keeper scales",
    about=(
        "One keeper holds 1,000, 10,000 and 100,000 leases of one queue, with a visibility "
        "timeout of 120 s and the default threshold of 40 s: each lease is extended every 80 s, "
        "in batches of ten. The server is another process on the same machine and confirms each "
        "call after 10 ms. The keepers run at the same time."
    ),
    measure=measure,
)
