"""Bugs in the emission of CUDA C++."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _bug(name: str, what: str, file: str, old: str, new: str, *probes: str, named: bool = False) -> Mutant:
    return Mutant(name, Kind.EMISSION, what, f"codegen/{file}.py", old, new, probes, named)


EMISSION: tuple[Mutant, ...] = (
    _bug(
        "barrier pitch 16", "mbarriers are addressed 16 bytes apart", "hopper",
        "BARRIER_BYTES = 8\n", "BARRIER_BYTES = 16\n", "nt", named=True,
    ),
    _bug(
        "max loses NaN", "max_nan is max.f32", "prelude",
        'asm("max.NaN.f32', 'asm("max.f32', "row_max", "softmax", named=True,
    ),
)
