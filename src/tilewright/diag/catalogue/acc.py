"""ACC: what the access proofs find: elements outside a tensor, written twice, or never. No proof, no code."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_DEFECT = "this is a defect of the compiler; another tile size or schedule may not have it"
_OURS = "; if the kernel's text doesn't do this, it is a defect of the compiler"

CODES: tuple[Code, ...] = (
    Code(
        id="ACC001",
        title="an access leaves its tensor",
        why="Under its guard every coordinate must lie inside the tensor's extents, for all extents of the class.",
        bad="load x[p*128 + tid] with guard `p*128 + tid <= M`",
        good="load x[p*128 + tid] with guard `p*128 + tid < M`",
        source="Tilewright language rules, Domains: elements outside the domain have no value",
        help="index with a Range over this dimension's extent, or with an index that it bounds" + _OURS,
    ),
    Code(
        id="ACC002",
        title="an element is written twice",
        why="Two writes of one element are unordered between programs and threads; the later one wins by chance.",
        bad="store y[p*128 + tid] by 256 threads",
        good="store y[p*256 + tid] by 256 threads",
        source="Tilewright language rules, Domains: a plain store's domain is written by exactly one thread",
        help="make the grid over the output's axes, or use tw.reduce_add" + _OURS,
    ),
    Code(
        id="ACC003",
        title="an element is never written",
        why="The kernel promises its whole domain; what it leaves out keeps whatever was in memory.",
        bad="N // 128 programs of 128 columns each",
        good="ceildiv(N, 128) programs with guard `column < N`",
        source="Tilewright language rules, Domains: a plain store's domain is written by exactly one thread",
        help=_DEFECT,
    ),
    Code(
        id="ACC004",
        title="an element outside the store's domain is written",
        why="Elements outside the domain have no value; writing them overwrites data the kernel does not own.",
        bad="store y[c] for c < N where the tile program stores c < K",
        good="store y[c] with guard `c < K`",
        source="Tilewright language rules, Domains: stores write the domain only",
        help=_DEFECT,
    ),
    Code(
        id="ACC005",
        title="the accesses could not be proved correct",
        why="The proof needs maps that are affine in program, thread and register indices; no proof, no code.",
        bad="coordinates p*M + tid with symbolic M",
        good="one coordinate per dimension: (p, tid)",
        source="Tilewright language rules, Proofs: no certificate, no code",
    ),
)
