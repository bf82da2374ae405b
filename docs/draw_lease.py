"""Draws docs/lease.svg: one message's lease over time, as the policy really plans it.

Run it after a change of the policy or of the picture:

    python docs/draw_lease.py
"""

from __future__ import annotations

from pathlib import Path

from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.events import Outcome
from celery_sqs_heartbeat.leases.lease import LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive

TARGET = Path(__file__).with_name("lease.svg")
TERMS = LeaseTerms.of(30)
TASK_SECONDS = 64.0
WIDTH, LEFT, TOP, SCALE = 760, 104, 46, 6.4
ROW = 26

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .soft { fill: #57606a; font-size: 12px }
  .task { fill: #2da44e } .hidden { fill: #54aeff } .stock { fill: #ff8182 }
  .again { fill: #cf222e } .line { stroke: #57606a; stroke-width: 1 }
  .mark { stroke: #0550ae; stroke-width: 2 } .grid { stroke: #d0d7de; stroke-width: 1 }
  .page { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 }
    text { fill: #e6edf3 } .soft { fill: #9198a1 } .grid { stroke: #3d444d }
    .line { stroke: #9198a1 } .mark { stroke: #79c0ff }
    .task { fill: #3fb950 } .hidden { fill: #388bfd } .stock { fill: #f85149 }
    .again { fill: #ff7b72 }
  }
"""


def plan() -> list[tuple[float, float]]:
    """Return when each visibility timeout begins and ends, in seconds from the receive."""
    book = LeaseBook(jitter=lambda: 0.5)
    receive = Receive(
        queue_url="q",
        message_id="m",
        receipt_handle="h",
        receive_count=1,
        hidden_for=TERMS.visibility_timeout,
        sent_at=0.0,
        arrived_at=0.0,
    )
    book.receive(receive, terms=TERMS)
    spans = [(0.0, float(TERMS.visibility_timeout))]
    while (now := book.agenda.next_due(0.0)) < TASK_SECONDS:
        (call,) = book.plan(now, room=1)
        book.apply_results(call, [Outcome.DONE], now)
        spans.append((now, now + call.entries[0].timeout))
    return spans


def draw() -> str:
    """Return the picture as SVG."""
    spans = plan()
    parts: list[str] = []
    bottom = TOP + ROW * (len(spans) + 3) + 6
    for second in range(0, 101, 10):
        line = f'<line class="grid" x1="{x(second)}" x2="{x(second)}" y1="{TOP}" y2="{bottom}"/>'
        place = f'x="{x(second)}" y="{TOP - 8}" text-anchor="middle"'
        parts += [line, f'<text class="soft" {place}>{second} s</text>']
    parts += [bar("task", 0, "task", 0, TASK_SECONDS, f"a task of {TASK_SECONDS:.0f} s")]
    for row, (begin, end) in enumerate(spans, 1):
        what = "receive" if row == 1 else "extend"
        last = row == len(spans)
        shown = TASK_SECONDS if last else end
        note = "" if last else f"hidden for {TERMS.visibility_timeout} s"
        parts.append(bar("hidden", row, what, begin, shown, note))
        parts.append(tick(begin, row))
    row = len(spans)
    parts.append(tick(TASK_SECONDS, row))
    parts.append(
        f'<text x="{x(TASK_SECONDS) + 8}" y="{y(row) + 15}">delete, until SQS confirms it</text>'
    )
    row += 2
    parts.append(bar("stock", row, "without it", 0, 30, "hidden for 30 s"))
    parts.append(bar("again", row, "", 30, 60, "a second worker runs it"))
    parts.append(bar("again", row, "", 60, 90, "and a third"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 8}" role="img" '
        f'aria-labelledby="title">\n<title id="title">A lease over time: visibility timeout '
        f"{TERMS.visibility_timeout} s, extended when less than {TERMS.threshold:.0f} s are left"
        f"</title>\n<style>{STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{bottom + 8}" rx="6"/>\n'
        f'<text x="8" y="18">One message under --heartbeat-sqs: visibility timeout '
        f"{TERMS.visibility_timeout} s, extended when less than {TERMS.threshold:.0f} s are left"
        f"</text>\n{body}\n</svg>\n"
    )


def x(second: float) -> float:
    """Return where a second is, in pixels from the left."""
    return round(LEFT + second * SCALE, 1)


def y(row: int) -> float:
    """Return where a row begins, in pixels from the top."""
    return TOP + 6 + row * ROW


def bar(kind: str, row: int, label: str, begin: float, end: float, text: str) -> str:
    """Return a labelled bar from one second to another."""
    width = round((end - begin) * SCALE, 1)
    return (
        f'<text class="soft" x="8" y="{y(row) + 15}">{label}</text>'
        f'<rect class="{kind}" x="{x(begin)}" y="{y(row)}" width="{width}" '
        f'height="{ROW - 6}" rx="3"/>'
        f'<text x="{x(begin) + 8}" y="{y(row) + 15}" style="fill:#fff">{text}</text>'
    )


def tick(second: float, row: int) -> str:
    """Return the mark of a call to SQS."""
    return (
        f'<line class="mark" x1="{x(second)}" x2="{x(second)}" '
        f'y1="{y(row) - 3}" y2="{y(row) + ROW - 3}"/>'
    )


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
