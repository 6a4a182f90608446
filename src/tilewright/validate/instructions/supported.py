"""Which instructions are read: their whole names, with every modifier that has a meaning here.

A handler looks at some modifiers; this list says that there are no others. A name that is not in it is undecided, so
that a saturating sum, a flushed denormal, a weaker order, another scope or another state space is never taken for the
plain form (PTX ISA 9.1, chapter 9). Forms that a handler keeps by name are compared by name, and are listed generously.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from tilewright.ptx.syntax import Instruction

_INTEGER = r"[us](16|32|64)"
_NARROW = r"(\w+\.)*(f16|f16x2|bf16|bf16x2|f64)"
"""Arithmetic of floats that are not f32: by name, and no identity is known of it."""
_MEMORY = r"(v[248]\.)?[busf](8|16|32|64)"
_SUM = rf"r[nzmp]\.f32|{_INTEGER}|{_NARROW}"
_TENSOR = r"async\.bulk\.tensor\.[1-5]d"

_FORMS: Mapping[str, str] = {
    "mov": r"pred|[busf](16|32|64)",
    "cvta": r"(to\.)?(global|shared|local|const)\.u64|param\.u64",
    "add": _SUM,
    "sub": _SUM,
    "mul": rf"r[nzmp]\.f32|(lo|hi|wide)\.{_INTEGER}|{_NARROW}",
    "mad": rf"(lo|wide)\.{_INTEGER}",
    "fma": rf"r[nzmp](\.ftz)?(\.sat)?\.f32|{_NARROW}",
    "div": rf"(\w+\.)+f32|{_INTEGER}|{_NARROW}",
    "rem": _INTEGER,
    "neg": rf"s(16|32|64)|f32|{_NARROW}",
    "abs": rf"s(16|32|64)|f32|{_NARROW}",
    "bfi": r"b(32|64)",
    "bfe": r"u(32|64)",
    "prmt": r"b32(\.\w+)?",
    "setp": r"\w+(\.(and|or|xor))?\.([busf](16|32|64)|bf16)",
    "copysign": r"f(32|64)",
    "selp": r"[busf](16|32|64)",
    "not": r"pred|b(16|32|64)",
    "and": r"pred|b(16|32|64)",
    "or": r"pred|b(16|32|64)",
    "xor": r"pred|b(16|32|64)",
    "shl": r"b(16|32|64)",
    "shr": r"[bus](16|32|64)",
    "shf": r"[lr]\.(wrap|clamp)\.b32",
    "min": rf"{_INTEGER}|(\w+\.)*f32|{_NARROW}",
    "max": rf"{_INTEGER}|(\w+\.)*f32|{_NARROW}",
    **dict.fromkeys(("ex2", "rcp", "sqrt", "rsqrt", "lg2", "sin", "cos", "tanh"), r"(\w+\.)+\w+"),
    "cvt": r"rn\.f16x2\.e(4m3|5m2)x2|(\w+\.)*\w+\.(?!e\dm\dx\d$)\w+",
    "ld": rf"(param|(weak\.)?(global(\.nc)?|shared|shared::cta))\.{_MEMORY}|shared::cluster\.(v[24]\.)?u32|{_MEMORY}",
    "st": rf"(weak\.)?(global|shared|shared::cta)\.{_MEMORY}|{_MEMORY}",
    "red": r"(relaxed\.gpu\.)?((global|shared|shared::cta)\.)?\w+(\.noftz)?(\.v[248])?\.\w+",
    "atom": r"(relaxed\.gpu\.)?((global|shared|shared::cta)\.)?\w+(\.noftz)?\.\w+",
    "shfl": r"sync\.(up|down|bfly|idx)\.b32",
    "bar": r"(cta\.)?(sync|arrive|red\.popc\.u32)|warp\.sync",
    "barrier": r"(cta\.)?(sync|arrive)(\.aligned)?|(cta\.)?red\.popc(\.aligned)?\.u32|cluster\.(arrive|wait)(\.\w+)*",
    "fence": r".+",
    "membar": r".+",
    "setmaxnreg": r"(inc|dec)\.sync\.aligned\.u32",
    "elect": r"sync",
    "griddepcontrol": r"wait|launch_dependents",
    "mbarrier": r"init\.shared::cta\.b64|(try|test)_wait\.parity\.shared::cta\.b64"
    r"|arrive(\.expect_tx)?\.shared::cta\.b64|arrive\.shared::cluster\.b64",
    "mapa": r"shared::cluster\.u32",
    "createpolicy": r"fractional\.L2::evict_first\.b64",
    "cp": r"async\.c[ag]\.shared(::cta)?\.global|async\.mbarrier\.arrive(\.noinc)?\.shared(::cta)?\.b64"
    r"|async\.bulk\.(commit_group|wait_group|wait_group\.read)"
    rf"|{_TENSOR}\.shared::cluster\.global\.mbarrier::complete_tx::bytes(\.multicast::cluster|\.L2::cache_hint)?"
    rf"|{_TENSOR}\.global\.shared::cta\.bulk_group",
    "ldmatrix": r"sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16",
    "stmatrix": r"sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16",
    "mma": r"sync\.aligned\.m16n8k16\.row\.col\.f32\.(f16\.f16|bf16\.bf16)\.f32",
    "wgmma": r"(fence|commit_group|wait_group)\.sync\.aligned|mma_async\.sync\.aligned(\.\w+)+",
    "bra": r"(uni)?",
    "ret": r"(uni)?",
    "exit": r"",
}

_READ = {opcode: re.compile(form) for opcode, form in _FORMS.items()}

_MOST_OPERANDS = {"mbarrier.arrive": 2, "mbarrier.arrive.expect_tx": 3}
"""Instructions with an optional operand: an arrival counts once unless it says otherwise."""


def is_read(i: Instruction) -> bool:
    """Whether every modifier of an instruction, and its number of operands, is handled."""
    if not _is_listed(i.opcode, i.modifiers):
        return False
    if i.opcode in ("bra", "ret") and i.modifiers and i.guard is not None:
        return False  # that all threads of a warp take one way is not shown
    most = _MOST_OPERANDS.get(i.name.partition(".shared")[0]) if i.opcode == "mbarrier" else None
    return most is None or len(i.operands) <= most


@lru_cache(4096)
def _is_listed(opcode: str, modifiers: tuple[str, ...]) -> bool:
    form = _READ.get(opcode)
    return form is not None and form.fullmatch(".".join(modifiers)) is not None


def space_of(i: Instruction) -> str:
    """The state space that a memory instruction names: ``global``, ``shared``, or nothing for a generic address."""
    named = (m.partition("::")[0] for m in i.modifiers)
    return next((m for m in named if m in ("global", "shared")), "")
