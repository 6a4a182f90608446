"""Pictures of a pipeline: roles and engines over time, and the contents of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from tilewright.jit.critical import CriticalMark, repeated, traced
from tilewright.jit.pipeline import PipelineTimeline, SharedBlock
from tilewright.protocol.cycle import CriticalCycle
from tilewright.protocol.timed import Activity, TimedRun, TimelineSpan
from tilewright.viz.layout_picture import COLOURS

WIDTH, LEFT, LANE, GAP = 860, 132, 22, 6
CRITICAL = "#d6336c"
"""Legible on light and on dark background."""
_GLYPH = 6.6
_MERGED = (Activity.ISSUE,)
"""Drawn as marks: too short for a box with text."""


def timeline_picture(run: TimedRun, marks: Sequence[CriticalMark] = ()) -> str:
    """The timeline: lanes downwards, cycles to the right. Colour is the pipeline stage, grey is waiting; a vertical
    line marks where a barrier wait ends. ``marks`` of a critical cycle are joined, with the prices of its edges in a
    lane of their own."""
    scale = WIDTH / max(run.cycles, 1.0)
    height = 30 + (len(run.lanes) + bool(marks)) * (LANE + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
        f'viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-size="11" role="img">',
        f"<title>{len(run.lanes)} lanes over {run.cycles:.0f} cycles</title>",
    ]
    top = {lane: 24 + i * (LANE + GAP) for i, lane in enumerate(run.lanes)}
    parts += _axis(run.cycles, scale, height)
    for lane, y in top.items():
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end" fill="#555">{escape(lane)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE}" fill="none" stroke="#8884"/>')
    for span in run.spans:
        if span.lane in top:
            parts += _span(span, scale, top[span.lane])
    if marks:
        parts += _circle(marks, scale, top, 24 + len(run.lanes) * (LANE + GAP))
    return "\n".join([*parts, "</svg>"])


def _circle(marks: Sequence[CriticalMark], scale: float, top: Mapping[str, int], own: int) -> Iterator[str]:
    """The edges between the events of a critical cycle, over the lanes; their prices below, in a lane of their own from
    ``own`` on."""
    yield f'<text x="{LEFT - 8}" y="{own + 15}" text-anchor="end" fill="{CRITICAL}">critical cycle</text>'
    for one, other in pairwise(marks):
        x, to = LEFT + one.when * scale, LEFT + other.when * scale
        title = f"<title>{escape(one.what)}, then {escape(other.what)}: {other.cycles:.0f} cycles at least</title>"
        ys = [top[m.lane] + (LANE - 2 if one.lane == other.lane else LANE // 2) for m in (one, other)]
        yield (
            f'<line x1="{x:.5g}" y1="{ys[0]}" x2="{to:.5g}" y2="{ys[1]}" stroke="{CRITICAL}" stroke-width="2.5">'
            f"{title}</line>"
        )
        yield (
            f'<rect x="{x:.5g}" y="{own}" width="{max(to - x, 0.6):.4g}" height="{LANE - 6}" fill="{CRITICAL}" '
            f'fill-opacity="0.25" stroke="{CRITICAL}" stroke-width="0.6">{title}</rect>'
        )
        label = f"{other.cycles:.0f}"
        if to - x > _GLYPH * len(label) + 4:
            middle = (x + to) / 2
            yield f'<text x="{middle:.5g}" y="{own + 12}" text-anchor="middle" fill="{CRITICAL}">{label}</text>'


def critical_tables(critical: tuple[CriticalCycle, ...] | str) -> Iterator[str]:
    """What bounds each loop: the events of its critical cycle with price and source line, or the reason why it is not
    known."""
    if isinstance(critical, str):
        yield f"<p>What bounds its loops is not known: {escape(critical)}.</p>"
        return
    for cycle in critical:
        around = "" if cycle.iterations == 1 else f", {cycle.iterations} iterations once around"
        yield f"<p>The loop over {escape(cycle.counter)} takes {cycle.cycles:.0f} cycles an iteration or more{around}. "
        yield "Its critical cycle, each event with the cycles since the one before:</p>"
        yield '<div class="wide"><table><tr><th>who</th><th>has done</th><th>line</th><th>cycles</th>'
        yield "<th>iterations on</th></tr>"
        for part in repeated(cycle):
            link = part.link
            times = "" if part.count == 1 else f"{part.count} x "
            where = "" if link.where is None else f"{Path(link.where.file).name}:{link.where.line}"
            text = "" if link.where is None else link.where.text
            yield f'<tr><td class="of">{escape(link.who)}</td><td>{times}{escape(link.what)}</td>'
            yield f"<td>{escape(where)} <code>{escape(text)}</code></td><td>{part.cycles:.0f}</td>"
            yield f"<td>{part.iterations}</td></tr>"
        yield "</table></div>"


def _axis(cycles: float, scale: float, height: int) -> Iterator[str]:
    step = next(s for s in (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 10**9) if cycles / s <= 12)
    for mark in range(0, int(cycles) + 1, step):
        x = LEFT + mark * scale
        yield f'<line x1="{x:.5g}" y1="18" x2="{x:.5g}" y2="{height - GAP}" stroke="#8883"/>'
        yield f'<text x="{x:.5g}" y="13" text-anchor="middle" fill="#777">{mark}</text>'


def _span(span: TimelineSpan, scale: float, y: int) -> Iterator[str]:
    x, w = LEFT + span.begin * scale, (span.end - span.begin) * scale
    stage = "" if span.slot is None else f", stage {span.slot}"
    title = f"<title>{escape(span.what)}{stage}: cycles {span.begin:.0f} to {span.end:.0f}</title>"
    if span.doing in _MERGED:
        yield f'<rect x="{x:.5g}" y="{y + LANE - 5}" width="{max(w, 0.6):.4g}" height="5" fill="#4a7dbd">{title}</rect>'
        return
    if span.doing is Activity.WAIT:
        yield f'<rect x="{x:.5g}" y="{y + 8}" width="{w:.4g}" height="6" fill="#8885">{title}</rect>'
        yield f'<line x1="{x + w:.5g}" y1="{y}" x2="{x + w:.5g}" y2="{y + LANE}" stroke="#c0504d"/>'
        return
    colour = "#e2e2e2" if span.slot is None else COLOURS[span.slot % len(COLOURS)]
    stroke = "#c07a2b" if span.doing is Activity.STORE else "#888"
    yield (
        f'<rect x="{x:.5g}" y="{y}" width="{w:.4g}" height="{LANE - 6}" fill="{colour}" stroke="{stroke}" '
        f'stroke-width="0.6">{title}</rect>'
    )
    label = f"{span.slot}" if span.slot is not None else span.what
    if w > _GLYPH * len(label) + 4:
        yield f'<text x="{x + w / 2:.5g}" y="{y + 12}" text-anchor="middle" fill="#222">{escape(label)}</text>'


def shared_picture(blocks: Sequence[SharedBlock], total: int) -> str:
    """Shared memory from byte 0 to the right; blocks that overlap are drawn below each other."""
    rows: list[list[SharedBlock]] = []
    for block in blocks:
        free = next((row for row in rows if row[-1].end <= block.begin), None)
        if free is None:
            rows.append([block])
        else:
            free.append(block)
    scale = (LEFT + WIDTH) / max(total, 1)
    height = 26 + 40 * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
        f'viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-size="11" role="img">',
        f"<title>{total} bytes of shared memory</title>",
    ]
    for mark in range(0, total + 1, 32768):
        x = mark * scale
        parts.append(f'<line x1="{x:.5g}" y1="16" x2="{x:.5g}" y2="{height}" stroke="#8884"/>')
        label = f"{mark // 1024} KiB"
        inside = x + 2 + _GLYPH * len(label) <= LEFT + WIDTH + 20
        anchor = f'x="{x + 2:.5g}"' if inside else f'x="{x - 2:.5g}" text-anchor="end"'
        parts.append(f'<text {anchor} y="12" fill="#777">{label}</text>')
    for i, row in enumerate(rows):
        for block in row:
            parts += _block(block, scale, 20 + 40 * i)
    return "\n".join([*parts, "</svg>"])


def _block(block: SharedBlock, scale: float, y: int) -> Iterator[str]:
    x, w = block.begin * scale, max((block.end - block.begin) * scale, 2.0)
    colour = "#e2e2e2" if block.slot is None else COLOURS[block.slot % len(COLOURS)]
    words = f"{block.name}, bytes {block.begin} to {block.end}" + (f"; {block.how}" if block.how else "")
    yield (
        f'<rect x="{x:.5g}" y="{y}" width="{w:.4g}" height="34" fill="{colour}" stroke="#888" stroke-width="0.6">'
        f"<title>{escape(words)}</title></rect>"
    )
    lines = [block.name, "" if block.slot is None else f"stage {block.slot}"]
    for line, text in enumerate(lines):
        if text and w > _GLYPH * len(text) + 4:
            yield f'<text x="{x + w / 2:.5g}" y="{y + 15 + 13 * line}" text-anchor="middle" fill="#222">{text}</text>'


def shared_table(blocks: Sequence[SharedBlock]) -> Iterator[str]:
    """The picture's contents as a table: each buffer once."""
    yield '<div class="wide"><table><tr><th>buffer</th><th>bytes</th><th>stages</th><th>arranged by</th></tr>'
    for name, how in dict.fromkeys((b.name, b.how) for b in blocks):
        same = [b for b in blocks if (b.name, b.how) == (name, how)]
        stages = len({b.slot for b in same if b.slot is not None}) or 1
        size = sum(b.end - b.begin for b in same)
        yield f'<tr><td class="of">{escape(name)}</td><td>{size}</td><td>{stages}</td><td>{escape(how)}</td></tr>'
    yield "</table></div>"


def pipeline_section(pipeline: PipelineTimeline | None) -> Iterator[str]:
    """The report's section on warp roles: the timeline with its tables, then shared memory. Empty for kernels without
    roles."""
    if pipeline is None:
        return
    sizes = ", ".join(f"{name} = {value}" for name, value in pipeline.sizes)
    yield "<h3>The pipeline</h3>"
    yield f"<p>A run of the proved protocol for {escape(sizes)}, each op at its price; "
    yield "element-wise work has none here.</p>"
    yield "<figure><figcaption>Colour and number are the pipeline stage; grey bars wait, red lines end a wait; "
    yield "cycles to the right.</figcaption>"
    critical = pipeline.critical if not isinstance(pipeline.critical, str) else ()
    marks = next(filter(None, (traced(pipeline.run, cycle) for cycle in critical)), ())
    if marks:
        yield "<p>One iteration of a loop's critical cycle is drawn over it, each edge with its price below.</p>"
    yield f'<div class="wide">{timeline_picture(pipeline.run, marks)}</div></figure>'
    yield from critical_tables(pipeline.critical)
    yield "<figure><figcaption>Shared memory of a CTA, from its first byte to its last.</figcaption>"
    yield f'<div class="wide">{shared_picture(pipeline.blocks, pipeline.shared_bytes)}</div></figure>'
    yield from shared_table(pipeline.blocks)
