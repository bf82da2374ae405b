"""Draws docs/architecture.svg: where the parts run, the path of a message, who may import whom.

Run it after a change of the parts or of the picture:

    python docs/draw_architecture.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

TARGET = Path(__file__).with_name("architecture.svg")
WIDTH, HEIGHT = 800, 632
#: Each may import those before it. Those that stand together do not import each other.
ORDER = (
    ("common",),
    ("leases",),
    ("settings", "current"),
    ("sqs",),
    ("journal",),
    ("observe",),
    ("keeper",),
    ("receiving",),
    ("link",),
    ("transport", "consumer"),
    ("worker",),
    ("cli", "contrib"),
)
TITLE = "Where the parts run, and the path of a message"

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 } .name { font-weight: 600 }
  .soft { fill: #57606a; font-size: 12px } .tiny { font-size: 11px }
  .middle { text-anchor: middle } .end { text-anchor: end }
  .page { fill: #ffffff } .process { fill: #f6f8fa; stroke: #8c959f }
  .part { fill: #ddf4ff; stroke: #54aeff } .outside { fill: #fff8c5; stroke: #d4a72c }
  .dashed { stroke-dasharray: 4 3 }
  .path { stroke: #0550ae; stroke-width: 2; fill: none; marker-end: url(#tip) }
  .back { stroke: #57606a; stroke-width: 1.5; fill: none; marker-end: url(#soft-tip) }
  #tip path { fill: #0550ae } #soft-tip path { fill: #57606a }
  .step { fill: #0550ae } .number { fill: #ffffff; font-weight: 600; font-size: 12px }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9198a1 }
    .page { fill: #0d1117 } .process { fill: #161b22; stroke: #656c76 }
    .part { fill: #10233d; stroke: #388bfd } .outside { fill: #2c2304; stroke: #9e6a03 }
    .path { stroke: #79c0ff } .back { stroke: #9198a1 }
    #tip path { fill: #79c0ff } #soft-tip path { fill: #9198a1 }
    .step { fill: #79c0ff } .number { fill: #0d1117 }
  }
"""


def draw() -> str:
    """Return the picture as SVG."""
    parts = [
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        text(12, 24, TITLE, "title"),
        box("outside", 12, 38, 776, 36),
        text(400, 61, "SQS", "name middle"),
        *worker(),
        *keeper(),
        *link(),
        *path(),
        *imports(518),
    ]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="title">\n<title id="title">{TITLE}: received from SQS by the keeper, '
        "leased, handed over to the worker, run, done or failed, reported to the keeper, deleted "
        f"or released by it</title>\n<style>{STYLE}</style>\n<defs>{tip('tip')}"
        f"{tip('soft-tip')}</defs>\n{body}\n</svg>\n"
    )


def worker() -> list[str]:
    """Return the worker's process with what is in it."""
    return [
        box("process", 12, 122, 330, 376),
        text(24, 143, "worker", "name"),
        text(88, 143, "Celery's process, and its pool", "soft"),
        *part(26, 158, 302, 108, "transport/", "has room, delivers, settles"),
        *part(26, 296, 302, 80, "worker/", "step, requests, losses"),
        box("outside dashed", 26, 426, 302, 54),
        text(38, 449, "your task", "name"),
        text(38, 468, "in a process of the pool", "soft"),
        *part(214, 433, 106, 40, "current/", "asks the board"),
    ]


def keeper() -> list[str]:
    """Return the keeper's process with what is in it."""
    return [
        box("process", 468, 122, 320, 376),
        text(480, 143, "keeper", "name"),
        text(544, 143, "a small process beside it", "soft"),
        *part(482, 158, 292, 46, "sqs/", "calls, and what answers mean"),
        *part(482, 226, 204, 46, "receiving/", "polls, leases, hands over"),
        *part(482, 294, 292, 98, "keeper/", "makes the ticks and the calls"),
        *part(536, 336, 226, 48, "leases/", "what is held, wanted, confirmed"),
        *part(482, 404, 140, 42, "journal/", "to a folder, S3"),
        *part(634, 404, 140, 42, "observe/", "page, metrics"),
        box("outside dashed", 482, 454, 292, 36),
        text(494, 476, "board", "name"),
        text(546, 476, "shared memory, read by current/", "soft"),
    ]


def link() -> list[str]:
    """Return the link between the two."""
    return [
        box("part", 347, 196, 116, 196),
        text(405, 215, "link/", "name middle"),
    ]


def path() -> list[str]:
    """Return the numbered path of a message, and the answers along it."""
    return [
        arrow("path", 537, 74, 537, 156),
        *step(1, 537, 98, "received", side=-1),
        arrow("path", 620, 204, 620, 224),
        arrow("path", 620, 272, 620, 292),
        *step(2, 638, 283, "leased"),
        arrow("path", 482, 252, 330, 252),
        *step(3, 359, 239, "handed over"),
        arrow("path", 120, 266, 120, 294),
        arrow("path", 76, 376, 76, 424),
        *step(4, 76, 400, "run"),
        arrow("path", 190, 426, 190, 378),
        *step(5, 190, 400, "done or failed"),
        arrow("path", 328, 316, 480, 316),
        *step(6, 375, 303, "reported"),
        arrow("back", 482, 360, 330, 360),
        text(405, 354, "events", "soft middle"),
        arrow("path", 736, 294, 736, 206),
        arrow("path", 736, 158, 736, 76),
        *step(7, 736, 98, "deleted or released", side=-1),
        text(722, 117, "extended until then", "soft end"),
        arrow("back", 482, 464, 322, 464),
        arrow("back", 552, 392, 552, 402),
        arrow("back", 704, 392, 704, 402),
    ]


def imports(top: int) -> list[str]:
    """Return the strip of who may import whom."""
    wide, gap, high = 58, 7.27, 40
    parts = [
        text(
            12,
            top + 6,
            "Imports: each part may import those to its left, never one to its right",
            "soft",
        )
    ]
    for place, names in enumerate(ORDER):
        left = 12 + place * (wide + gap)
        parts.append(box("part", left, top + 16, wide, high))
        first = top + 16 + high / 2 + 4 - 8 * (len(names) - 1)
        for line, name in enumerate(names):
            parts.append(text(left + wide / 2, first + 16 * line, name, "tiny middle"))
        if place:
            parts.append(text(left - gap / 2, top + 40, "<", "soft tiny middle"))
    apart = top + 68
    parts += [
        text(12, apart + 20, "Apart:", "soft"),
        box("part", 60, apart, 350, 32),
        text(72, apart + 20, "pipeline", "name"),
        text(142, apart + 20, "knows the journal's contract, no more", "soft"),
        box("part", 422, apart, 366, 32),
        text(434, apart + 20, "testing", "name"),
        text(496, apart + 20, "an SQS and a clock, for users' tests, too", "soft"),
    ]
    return parts


def box(kind: str, left: float, top: float, wide: float, high: float) -> str:
    """Return a rectangle."""
    return (
        f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}" rx="5"/>'
    )


def part(left: float, top: float, wide: float, high: float, name: str, what: str) -> list[str]:
    """Return a folder of the package with what it is for."""
    return [
        box("part", left, top, wide, high),
        text(left + 10, top + 18, name, "name"),
        text(left + 10, top + 34, what, "soft"),
    ]


def text(left: float, base: float, words: str, kind: str) -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{left:g}" y="{base:g}">{escape(words, quote=False)}</text>'


def step(number: int, x: float, y: float, words: str, *, side: int = 1) -> list[str]:
    """Return a step of the path, with its words on the right of its number, or -1: on the left."""
    return [
        f'<circle class="step" cx="{x:g}" cy="{y:g}" r="9"/>',
        text(x, y + 4, str(number), "number middle"),
        text(x + 14 * side, y + 4, words, "end" if side < 0 else ""),
    ]


def arrow(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    """Return an arrow from one place to another."""
    return f'<path class="{kind}" d="M {x:g} {y:g} L {to_x:g} {to_y:g}"/>'


def tip(name: str) -> str:
    """Return the head of an arrow."""
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z"/></marker>'
    )


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
