"""Counterexamples as timelines: who did what when, roles as columns, time downwards."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape

from tilewright.base.expr import Expr
from tilewright.diag import Location
from tilewright.protocol import ops
from tilewright.protocol.model import Step

SCREEN = 160
"""Characters that a line of a table may have."""


@dataclass(frozen=True)
class TimelineRow:
    """One event: its column, text and source line; ``tone`` is 'step', 'async' or 'fail'."""

    time: int
    column: str
    text: str
    tone: str
    where: str = ""


@dataclass(frozen=True)
class Timeline:
    """A schedule that breaks ``rule``. ``sizes`` are the trip counts it happens at."""

    code: str
    obligation: str
    detail: str
    sizes: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[TimelineRow, ...]
    locations: tuple[Location, ...] = ()
    missing: str = ""
    """The order that is missing, where it is one between two ops."""

    def text(self) -> str:
        """Plain text, one line an event: a table, or where that is too wide for a screen a list."""
        width = {c: max([len(c), *(len(r.text) for r in self.rows if r.column == c)]) for c in self.columns}
        head = " time | " + " | ".join(c.ljust(width[c]) for c in self.columns)
        lines = [head, "-" * len(head)]
        for row in self.rows:
            cells = [(row.text if c == row.column else "").ljust(width[c]) for c in self.columns]
            lines.append(f"{row.time:5} | " + " | ".join(cells).rstrip())
        if len(head) > SCREEN:
            name = max(map(len, self.columns))
            lines = [f"{row.time:5} | {row.column:{name}} | {row.text}" for row in self.rows]
        lines.append(f"  {self.detail}")
        return "\n".join(lines)

    def json(self) -> str:
        """A JSON object with the fields of this class."""
        return json.dumps(asdict(self), indent=1)

    def chrome_trace(self) -> str:
        """Chrome/Perfetto trace events, one unit of time an event."""
        events: list[dict[str, object]] = []
        for i, c in enumerate(self.columns):
            events.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": i, "args": {"name": c}})
        for r in self.rows:
            lane = self.columns.index(r.column)
            events.append({"name": r.text, "cat": r.tone, "ph": "X", "ts": r.time, "dur": 1, "pid": 1, "tid": lane})
        return json.dumps({"traceEvents": events})

    def svg(self) -> str:
        """A drawing: a lane per role, a box per event; colours follow the reader's light or dark setting."""
        lane, row, left, top = 210, 24, 44, 40
        width, height = left + lane * len(self.columns) + 8, top + row * (len(self.rows) + 2)
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" '
            f'font-size="11" role="img" aria-label="{escape(self.detail, quote=True)}">',
            "<style>.l{stroke:#8886}.step{fill:#4a7dbd33;stroke:#4a7dbd}.async{fill:#d9902f33;stroke:#d9902f}"
            ".fail{fill:#d0404033;stroke:#d04040;stroke-width:2}text{fill:#222}"
            "@media(prefers-color-scheme:dark){text{fill:#eee}}</style>",
        ]
        for i, c in enumerate(self.columns):
            x = left + lane * i
            out.append(f'<line class="l" x1="{x}" y1="{top}" x2="{x}" y2="{height - row}"/>')
            out.append(f'<text x="{x + 4}" y="{top - 14}" font-weight="bold">{escape(c)}</text>')
        for i, r in enumerate(self.rows):
            x, y = left + lane * self.columns.index(r.column), top + row * i
            out.append(f'<text x="4" y="{y + 15}">{r.time}</text>')
            out.append(
                f'<g><title>{escape(r.text)} {escape(r.where)}</title><rect class="{r.tone}" x="{x + 3}" y="{y + 2}" '
                f'width="{lane - 8}" height="{row - 5}" rx="3"/><text x="{x + 8}" y="{y + 15}">'
                f"{escape(r.text[:32])}</text></g>"
            )
        out.append(f'<text x="4" y="{height - 8}">{escape(self.detail[:140])}</text></svg>')
        return "\n".join(out)


def describe(step: Step, env: tuple[tuple[str, int], ...]) -> str:
    """An op in a few words, with its indices worked out."""
    values = dict(env)

    def number(e: Expr) -> str:
        return str(e.evaluate(values)) if e.symbols <= values.keys() else str(e)

    def word(part: str | Expr | ops.Slot | ops.Region) -> str:
        match part:
            case ops.Slot():
                return f"{part.barrier}[{number(part.index)}]" + (
                    f"@{number(part.cta)}" if part.cta is not None else ""
                )
            case ops.Region():
                return f"{part.buffer}+{number(part.begin)}" + (f"@{number(part.cta)}" if part.cta is not None else "")
            case Expr():
                return number(part)
            case str():
                return part

    return "".join(map(word, step.op.brief))
