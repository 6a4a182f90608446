"""Functions of f32 that one instruction approximates, with the error that PTX promises.

Source: PTX ISA 9.1, 9.7.3 (ex2, lg2, rcp, rsqrt). ``benchmarks/opcodes.py`` compares samples of
them with a device.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Approximation:
    """``instruction`` computes the function of a normal f32 within ``error`` of the exact value: relative, or absolute
    where ``absolute`` says so. With ``.ftz`` denormal inputs and results are zero."""

    instruction: str
    error: float
    absolute: bool = False


APPROXIMATIONS: dict[str, Approximation] = {
    "ex2": Approximation("ex2.approx.ftz.f32", 2.0**-22),
    "lg2": Approximation("lg2.approx.f32", 2.0**-22, absolute=True),
    "rcp": Approximation("rcp.approx.ftz.f32", 2.0**-23),
}
