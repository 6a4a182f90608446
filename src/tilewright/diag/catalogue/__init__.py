"""Every error Tilewright can report, one entry per code, one module per prefix.

An entry is written for the user who gets the error: ``title`` is the one-line summary printed after the code, ``why``
states what the rule protects, ``bad`` and ``good`` are the smallest example and its repair, ``source`` is where the
rule comes from. ``tilewright explain CODE`` prints an entry.
"""

from __future__ import annotations

from tilewright.diag.catalogue import (
    acc,
    art,
    blk,
    cgn,
    cmd,
    crt,
    jit,
    lang,
    lay,
    lim,
    mbr,
    pag,
    ptx,
    run,
    sch,
    sim,
    tma,
    umm,
    wgm,
)
from tilewright.diag.catalogue.entry import Code

_MODULES = (acc, art, blk, cgn, crt, cmd, jit, lang, lay, lim, mbr, pag, ptx, run, sch, sim, tma, umm, wgm)

CATALOGUE: dict[str, Code] = {code.id: code for module in _MODULES for code in module.CODES}
"""All codes by id, such as ``LNG001``."""
