"""The printed reference of the tensor-map rules, made from the rows."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.rules.row import REFUSES, Consequence, Evidence, HardwareRule
from tilewright.hw.rules.tensormap_encode import RULES
from tilewright.hw.tensormap import MAX_BOX_BYTES, MAX_EXTENT, MAX_SMEM_TILE_BYTES, MAX_STRIDE_BYTES, PATTERNS, Swizzle

_SECTIONS: tuple[tuple[str, str, frozenset[Consequence]], ...] = (
    (
        "What the driver rejects",
        "`cuTensorMapEncodeTiled` returns CUDA_ERROR_INVALID_VALUE and names no reason. These rows decide `encodes`.",
        frozenset((Consequence.DRIVER_REJECTS,)),
    ),
    (
        "What the driver accepts and the hardware does not",
        "The map is encoded; a copy through it is undefined, faults, races or writes beyond the tensor. These rows"
        " decide `runs`.",
        REFUSES,
    ),
    (
        "Undocumented",
        "Encoded, and neither documented nor executed here. The verdict is `Unknown`, never `Illegal`.",
        frozenset((Consequence.UNSETTLED,)),
    ),
    (
        "Advice",
        "Documents disagree, or a limit lies beyond what a coordinate reaches. Nothing is refused.",
        frozenset((Consequence.ADVISORY, Consequence.SLOW)),
    ),
)


def rules_markdown() -> str:
    """The whole page."""
    documented = sum(rule.evidence is Evidence.DOCUMENTED for rule in RULES)
    lines = [
        "# Rules of tensor maps",
        "",
        "Made from the rows of `tensormap_encode` and `tensormap_copies` in `tilewright.hw.rules` by",
        "`tools/tma_rules.py`; edit those.",
        "",
        f"{len(RULES)} rules for tiled maps: {documented} documented, {len(RULES) - documented} observed. An observed",
        "rule is stated by no document; it was found in the answers of driver 580.159 on an H200 to 300,000 requests",
        "and to 170,000 at the edges of the rules, which the rejecting rows for sm_90 reproduce without exception",
        "(`python tools/tensormap_agreement.py FILE.npz`), or by executing copies there (`tools/tma_execute.py`).",
        "im2col maps are not judged. With an interleave, dimension 0 counts slices of 16 or 32 bytes, dense in memory",
        "and in shared memory, and dimension rank - 2 the channel slices, of which a copy takes one (executed).",
        "",
        "Fields are the parameters of `cuTensorMapEncodeTiled` in snake case. Strides are bytes, extents and boxes",
        "elements; dimension 0 is innermost and dense, `global_stride` of dimension i belongs to i >= 1. A rule",
        "without an index holds for every dimension (or stride) below the rank. `element_bits`, `is_float` and",
        "`swizzle_span_bytes` follow from data type and swizzle. A predicate is true where the use is legal.",
        f"MAX_EXTENT is {MAX_EXTENT:,}, MAX_STRIDE_BYTES {MAX_STRIDE_BYTES:,}, MAX_BOX_BYTES {MAX_BOX_BYTES:,},",
        f"MAX_SMEM_TILE_BYTES {MAX_SMEM_TILE_BYTES:,}.",
    ]
    for title, lead, consequences in _SECTIONS:
        chosen = sorted((rule for rule in RULES if rule.consequence in consequences), key=lambda rule: rule.id)
        lines += ["", f"## {title}", "", lead, "", *_summary(chosen)]
        for rule in chosen:
            lines += ["", *_entry(rule)]
    return "\n".join([*lines, "", *_swizzles(), ""])


def _summary(rules: Iterable[HardwareRule]) -> list[str]:
    lines = ["| rule | what is wrong | where | evidence |", "|---|---|---|---|"]
    lines += [f"| [{r.id}](#{r.id.lower()}) | {r.title} | {r.scope} | {r.evidence.value} |" for r in rules]
    return lines


def _entry(rule: HardwareRule) -> list[str]:
    entry = CATALOGUE[rule.id]
    return [
        f"### {rule.id}",
        "",
        f"{rule.title[0].upper()}{rule.title[1:]}. {rule.why}",
        "",
        "```",
        f"legal if  {rule.predicate}",
        f"bad       {entry.bad}",
        f"good      {entry.good}",
        "```",
        "",
        f"{rule.consequence.value.capitalize()} ({rule.scope}). Source: {rule.source}.",
    ]


def _swizzles() -> list[str]:
    lines = [
        "## Swizzles",
        "",
        "A swizzle exchanges 16-byte (or wider) units of a 128-byte line by exclusive-oring address bits; the address",
        "is that of shared memory itself. A tile that starts at a multiple of the period starts the pattern.",
        "",
        "| swizzle | span | unit | period | bits |",
        "|---|---|---|---|---|",
    ]
    for pattern in PATTERNS.values():
        if pattern.mode is Swizzle.NONE:
            continue
        bits = ", ".join(f"{target} ^= {source}" for target, source in pattern.pairs)
        lines.append(
            f"| {pattern.mode.name} | {pattern.span_bytes} B | {pattern.atom_bytes} B"
            f" | {pattern.repeat_bytes} B | {bits} |"
        )
    return lines
