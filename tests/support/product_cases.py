"""Kernels with products beside references in float64: arguments for any extents, and what must hold of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.base.dtypes import dtype_named

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
BF, F8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
F32, I32, I8 = np.float32, np.int32, np.int8

FIXED = {"d": 64, "r": 32, "1": 1, "2": 2}
"""Extents that kernels state themselves, by letter."""


@dataclass(frozen=True)
class Case:
    """``shapes`` are extents by the letters of ``inputs``. An output that is an input too is updated in place."""

    kernel: tw.Kernel
    inputs: dict[str, str]
    reference: Callable[..., Arrays]
    shapes: tuple[dict[str, int], ...]
    dtypes: dict[str, Any] = field(default_factory=dict[str, Any])
    tolerance: float = 4e-3
    """Of the norm of an output."""
    keywords: dict[str, Any] = field(default_factory=dict[str, Any])

    def arrays(self, extents: dict[str, int]) -> tuple[Arrays, Arrays]:
        """All arguments, outputs poisoned, and the expected outputs."""
        rng = np.random.default_rng(23)
        sizes = FIXED | extents
        given: Arrays = {}
        for name, letters in self.inputs.items():
            dtype = np.dtype(self.dtypes.get(name, BF))
            shape = tuple(sizes[x] for x in letters)
            whole = rng.integers(0, sizes["V"] if name == "target" else 100, shape)
            given[name] = (whole if dtype.kind == "i" else rng.normal(size=shape) / 2).astype(dtype)
        wide = {n: a if a.dtype.kind == "i" else a.astype(np.float64) for n, a in given.items()}
        expected = self.reference(**wide)
        outputs: Arrays = {}
        for name, value in expected.items():
            dtype = np.dtype(self.dtypes.get(name, BF))
            outputs[name] = np.full(value.shape, 77 if dtype.kind == "i" else np.nan, dtype)
        return outputs | given, expected

    @property
    def argument_dtypes(self) -> dict[str, Any]:
        arrays, _ = self.arrays(self.shapes[0])
        return {name: dtype_named(array.dtype.name) for name, array in arrays.items()}


def by_name(*cases: Case) -> Mapping[str, Case]:
    return {case.kernel.name: case for case in cases}


def assert_agrees(case: Case) -> None:
    """The simulator finds what float64 finds, at every shape."""
    for extents in case.shapes:
        arrays, expected = case.arrays(extents)
        case.kernel(**arrays, **case.keywords)
        for output, value in expected.items():
            error = np.linalg.norm(arrays[output].astype(np.float64) - value)
            assert error <= case.tolerance * np.linalg.norm(value), (output, extents, error)


def assert_proved_for_all_trip_counts(case: Case) -> None:
    """No schedule has to be run step by step by the checker, which takes a hundred times as long."""
    plan = case.kernel.explain(dtypes=case.argument_dtypes)
    methods = {line.rpartition(": ")[2] for line in plan.splitlines() if line.strip().startswith("proved protocol")}
    assert methods or "consumer warpgroups" not in plan
    assert methods <= {"event graph (all trip counts at once)"}
    assert "canonical run" not in plan
    assert "proof search" not in plan
