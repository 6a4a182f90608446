"""One self-contained HTML page about compiled kernels: every step from Python to SASS, without scripts or downloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

from tilewright.artifact.disassemble import code_bytes
from tilewright.artifact.schema import ASSUMED, KernelImage, Obligation
from tilewright.base.readable import conditions, when
from tilewright.jit.inspection import Inspection, Launched, NotLaunched, OutputError, RefusedKernel, TileMap
from tilewright.viz.report_code import cuda_html, python_html
from tilewright.viz.report_map import corner_picture, corner_words, warp_picture
from tilewright.viz.report_pipeline import pipeline_section
from tilewright.viz.report_style import STYLE

_PASSES = {
    "trace": "the body runs once with symbolic values and leaves Tile IR",
    "schedule": "threads, register layouts, edges; lowered to Transport IR",
    "prove": "the certificate, from the lowered accesses",
    "emit": "Transport IR to CUDA C++",
    "assemble": "NVRTC: PTX and cubin",
    "validate": "the launch recipe, worked out a second time from the kernels' texts; PTX and IR compared",
    "test": "PTX that the comparison leaves open, executed beside the IR",
    "disassemble": "nvdisasm: SASS, for this report only",
    "simulate": "Transport IR on NumPy data",
    "load and launch": "first launch on the GPU, with the cubin's load",
}
"""The compile steps in order, with a description of each."""

_OBLIGATIONS = {
    "guards": "no access leaves its tensor",
    "once": "no element is written twice",
    "domain": "exactly the elements that the kernel promises are written",
    "added": "exactly the elements that the kernel promises are added to",
    "filled": "threads read of shared memory what threads wrote",
    "aligned": "vectors begin at multiples of their bytes",
    "offsets": "offsets of all elements fit into 32 bits",
    "map": "copies and products move what the kernel says",
    "descriptor": "tensor maps and operands are legal for the whole class",
    "lowering": "the Transport IR stores what the program says",
    "ptx": "the PTX does what the Transport IR says",
    "promises": "a broken promise is reported and nothing is stored",
}
_SHOWN_INSTRUCTIONS = 4
_SHOWN_OPCODES = 12


def report_html(results: Sequence[Inspection | RefusedKernel]) -> str:
    """The page, one section a kernel."""
    names = ", ".join(r.name for r in results)
    body = "\n".join(part for r in results for part in (_refused(r) if isinstance(r, RefusedKernel) else _kernel(r)))
    links = " · ".join(f'<a href="#{escape(r.name)}">{escape(r.name)}</a>' for r in results)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tilewright: {escape(names)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Tilewright</h1>
<p class="muted">From a Python function to proved machine code, step by step: {links}</p>
{body}
</main>
</body>
</html>
"""


def _kernel(r: Inspection) -> Iterator[str]:
    (image,) = r.artifact.kernels
    arguments = ", ".join(f"{a.name}: {a.dtype}[{' x '.join(map(str, a.shape))}]" for a in r.arguments)
    yield f'<section id="{escape(r.name)}">'
    yield f"<h2>{escape(r.name)}</h2>"
    yield f'<p class="muted">for {escape(r.artifact.target)}, with <code>{escape(arguments)}</code></p>'
    yield from _cards(r, image)
    yield f"<h3>The kernel</h3>\n<pre>{python_html(r.source)}</pre>"
    yield from _plan(r, image)
    yield from _maps(r.maps)
    yield from pipeline_section(r.pipeline)
    yield from _certificate(image.certificate)
    yield from _results(r)
    yield from _times(r)
    yield from _code(r, image)
    yield "</section>"


def _refused(r: RefusedKernel) -> Iterator[str]:
    yield f'<section id="{escape(r.name)}">'
    yield f'<h2>{escape(r.name)}</h2>\n<p class="bad">Not compiled.</p>'
    yield f"<pre>{python_html(r.source)}</pre>\n<h3>Why</h3>\n<pre>{escape(r.text)}</pre>"
    yield "</section>"


def _cards(r: Inspection, image: KernelImage) -> Iterator[str]:
    ours = sum(t.seconds for t in r.times if t.name in ("trace", "schedule", "prove", "emit"))
    worst = max(r.agreements, key=lambda a: a.error)
    verdict = "good" if r.holds else "bad"
    match r.launched:
        case Launched(seconds=seconds):
            launch = f"{seconds * 1e6:.1f} us", "a launch on the GPU"
        case NotLaunched(reason):
            launch = "no launch", reason
    cards = (
        (str(len(image.certificate)), "obligations proved", "good"),
        (f"{worst.error:.2g}", "greatest error in the simulator", verdict),
        (*launch, ""),
        (f"{image.threads} x {image.registers}", "threads x registers", ""),
        (f"{image.spill_bytes} B", "spilled", "bad" if image.spill_bytes else "good"),
        (_seconds(ours), "compiling, NVRTC apart", ""),
    )
    yield '<div class="cards">'
    for value, words, style in cards:
        yield f'<div class="card"><b class="{style}">{escape(value)}</b><span>{escape(words)}</span></div>'
    yield "</div>"


def _plan(r: Inspection, image: KernelImage) -> Iterator[str]:
    shared = image.shared_bytes + image.static_shared_bytes
    asked = when(r.predicate)
    cluster = "" if image.cluster == (1, 1, 1) else f", clusters of {' x '.join(map(str, image.cluster))}"
    yield "<h3>The plan, and why</h3>\n<ul>"
    yield f"<li>This variant runs {escape(asked)}.</li>"
    yield f"<li>{image.threads} threads a CTA{cluster}, {shared} bytes of shared memory.</li>"
    yield from (f"<li>{escape(note)}</li>" for note in r.notes)
    yield "</ul>"
    if r.artifact.schedule:
        yield f"<p>Pinned schedule: <code>{escape(r.artifact.schedule)}</code></p>"
    served = [*conditions(r.artifact.facts), *(f"{b.symbol} <= {b.limit}" for b in r.artifact.bounds)]
    yield f"<details><summary>The class of arguments it serves: {len(served)} conditions</summary>\n<ul>"
    yield from (f"<li>{escape(c)}</li>" for c in served)
    yield "</ul></details>"


def _maps(maps: Sequence[TileMap]) -> Iterator[str]:
    if not maps:
        return
    yield "<h3>How the tile maps to threads</h3>"
    for m in maps:
        shape = " x ".join(map(str, m.extents))
        held = f"{m.layout.threads} threads, {m.layout.registers} registers each"
        yield f"<p>{escape(m.name)}: {shape} elements in {held}.</p>"
        yield "<figure><figcaption>The whole tile by warp.</figcaption>"
        yield f'<div class="wide">{warp_picture(m.layout)}</div></figure>'
        yield f"<figure><figcaption>{corner_words(m.layout)}</figcaption>"
        yield f'<div class="wide">{corner_picture(m.layout)}</div></figure>'


def _certificate(obligations: Sequence[Obligation]) -> Iterator[str]:
    yield "<h3>The certificate</h3>"
    yield "<p>Proved before any code was emitted, or validated: for every shape and stride of the class above. "
    yield "Tested: for some of them.</p>"
    yield '<div class="wide"><table><tr><th>obligation</th><th>of</th><th></th><th>by</th></tr>'
    rules: dict[Obligation, list[str]] = {}  # those of a protocol that one method proves share a row
    for o in obligations:
        kind, _, rule = o.name.partition(" ")
        rules.setdefault(replace(o, name=kind) if kind == "protocol" else o, []).append(rule)
    for o, named in rules.items():
        means = _OBLIGATIONS.get(o.name, ", ".join(dict.fromkeys(named)))
        what = f"<b>{escape(o.name)}</b>" + (f": {escape(means)}" if means else "")
        yield f'<tr><td>{what}</td><td class="of">{escape(o.detail)}</td><td>{o.standing}</td>'
        yield f"<td>{escape(o.method)}</td></tr>"
    for assumption in ASSUMED:
        yield f'<tr><td></td><td class="of">{escape(assumption)}</td><td>assumed</td><td></td></tr>'
    yield "</table></div>"


def _results(r: Inspection) -> Iterator[str]:
    yield "<h3>Results</h3>"
    yield '<div class="wide"><table><tr><th>run by</th><th>output</th><th>greatest error</th><th>allowed</th>'
    yield "<th>greatest value</th><th></th></tr>"
    yield from _agreements("simulator", r.agreements)
    if isinstance(r.launched, Launched):
        yield from _agreements("GPU", r.launched.agreements)
    yield "</table></div>"
    s = r.simulated
    yield (
        f'<p class="muted">Against NumPy in float64. The simulator ran {s.ctas} CTAs and {s.operations:,} '
        f"thread-register operations; {s.elements_loaded:,} elements loaded, {s.elements_stored:,} stored.</p>"
    )
    needed = sum(a.size_bytes for a in r.arguments)
    yield f"<p>Its threads move {s.bytes_moved:,} bytes from and to global memory, the tensors have {needed:,}.</p>"
    match r.launched:
        case Launched(seconds=seconds, bytes_moved=moved):
            rate = moved / seconds / 1e9
            yield f"<p>On the GPU: {seconds * 1e6:.1f} us a launch (median), {rate:.0f} GB/s of the tensors' bytes.</p>"
        case NotLaunched(reason):
            yield f'<p class="muted">Not launched: {escape(reason)}.</p>'


def _agreements(by: str, agreements: Sequence[OutputError]) -> Iterator[str]:
    for a in agreements:
        verdict = '<td class="good">agrees</td>' if a.holds else '<td class="bad">differs</td>'
        numbers = "".join(f"<td>{n:.3g}</td>" for n in (a.error, a.tolerance, a.scale))
        yield f"<tr><td>{by}</td><td>{escape(a.tensor)}</td>{numbers}{verdict}</tr>"


def _times(r: Inspection) -> Iterator[str]:
    seconds = {t.name: t.seconds for t in r.times}
    longest = max(seconds.values(), default=0.0) or 1.0
    yield '<h3>Times</h3>\n<div class="wide"><table>'
    for name in sorted(seconds, key=lambda n: list(_PASSES).index(n) if n in _PASSES else len(_PASSES)):
        width = 100 * seconds[name] / longest
        yield (
            f'<tr><td>{escape(name)}</td><td class="number">{_seconds(seconds[name])}</td>'
            f'<td class="bar"><div style="width:{width:.1f}%"></div></td>'
            f'<td class="muted">{escape(_PASSES.get(name, ""))}</td></tr>'
        )
    yield "</table></div>"
    yield '<p class="muted">This process, this kernel, first time; the packages were loaded before.</p>'


def _code(r: Inspection, image: KernelImage) -> Iterator[str]:
    counts = r.instructions
    yield "<h3>The code</h3>"
    yield (
        f"<p>{len(image.source.splitlines()):,} lines of CUDA C++, {counts.ptx_count:,} PTX and {counts.sass_count:,} "
        f"SASS instructions, {code_bytes(image.cubin):,} bytes of machine code; {image.registers} registers a thread, "
        f"{image.spill_bytes} bytes spilled.</p>"
    )
    yield "<p>Machine code by global access:</p>\n<ul>"
    yield from (f"<li>{escape(line)}</li>" for line in r.accesses.lines())
    yield "</ul>"
    yield '<div class="pair">'
    for title, opcodes in (("PTX", counts.ptx), ("SASS", counts.sass)):
        yield f"<table><tr><th>most frequent in {title}</th><th></th></tr>"
        for opcode, count in opcodes[:_SHOWN_OPCODES]:
            yield f'<tr><td><code>{escape(opcode)}</code></td><td class="number">{count}</td></tr>'
        yield "</table>"
    yield "</div>"
    yield from _carried_out(r)
    for title, text in (
        ("CUDA C++", cuda_html(image.source)),
        ("PTX", cuda_html(image.ptx)),
        ("Transport IR", escape(image.transport_ir)),
        ("Tile IR", escape(r.artifact.tile_ir)),
    ):
        yield f"<details><summary>{title}</summary><pre>{text}</pre></details>"
    tools = ", ".join(f"{t.name} {t.version}" for t in r.artifact.toolchain)
    yield f'<p class="muted">Built with {escape(tools)}.</p>'


def _carried_out(r: Inspection) -> Iterator[str]:
    """Ops of the Transport IR beside the instructions that carry them out."""
    if not r.carried_out:
        yield "<p>That the PTX does what the Transport IR says is not decided: nothing is shown beside it.</p>"
        return
    yield "<details><summary>The Transport IR beside the PTX that carries it out</summary>\n"
    yield '<p class="muted">As the comparison pairs them: synchronising instructions, loads, stores; what lies between '
    yield "them are values, which are equal.</p>\n"
    yield '<div class="wide"><table><tr><th>Transport IR</th><th>PTX</th></tr>'
    for each in r.carried_out:
        shown = [f"{n}: {text}" for n, text in each.ptx[:_SHOWN_INSTRUCTIONS]]
        more = len(each.ptx) - len(shown)
        shown += [f"and {more} more"] if more else []
        code = "<br>".join(f"<code>{escape(line)}</code>" for line in shown)
        yield f"<tr><td><code>{escape(each.op)}</code></td><td>{code}</td></tr>"
    yield "</table></div></details>"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
