"""Probes: kernels on which planted bugs are looked for, with what they are compiled for and their expected results."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from planted import probe_kernels as kernels
from planted import probe_references as references
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import parse
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import RoleMode, Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.facts import CallFacts, TensorFacts

Arrays = dict[str, np.ndarray]
NUMPY = {
    "i64": np.int64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "i32": np.int32,
    "i8": np.int8,
    "i16": np.int16,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
}
NUMPY |= {"e4m3": ml_dtypes.float8_e4m3fn}


@dataclass(frozen=True)
class Probe:
    """A kernel, what it is compiled for, and arguments on which its result is known.

    ``dims``: only the class that takes these extents is compiled. ``reference`` takes inputs in f64 (ints as they are)
    and scalars by name, and returns the output, the last tensor. ``runs`` are extents to run with.
    """

    kernel: Any
    reference: Callable[..., np.ndarray]
    runs: tuple[Mapping[str, int], ...]
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    dtype: str = "bf16"
    dims: Mapping[str, int] | None = None
    align: int = 16
    schedule: Schedule = field(default_factory=Schedule)
    scalars: Mapping[str, float | int] = field(default_factory=dict[str, "float | int"])
    keywords: Mapping[str, int] = field(default_factory=dict[str, int])
    index_bits: int = 32
    shift: float = 0.0
    """Added to all inputs."""
    peers: bool = False
    """Rows of all tensors start alike: as far from a boundary as the first tensor's."""
    aligned: Mapping[str, int] = field(default_factory=dict[str, int])
    """What tensors are aligned to that are no such peers."""
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Integers that a tensor holds, instead of any."""
    unlowered: bool = False
    """Transport IR is not compared with Tile IR: the comparison knows no loads at loaded coordinates of roles."""
    undecidable: bool = False
    """PTX is not compared: the comparison takes more memory than a machine has."""

    @property
    def request(self) -> Request:
        """What is compiled."""
        kernel = self.kernel
        dtypes = {t.name: DTYPES[self.dtypes.get(t.name, self.dtype)] for t in kernel.tensors}
        facts = default_facts(kernel)
        if self.align != 16:
            first = kernel.tensors[0].name if self.peers else ""
            own = ((t.name, t.name if t.name == first else first, len(t.dims) - 1) for t in kernel.tensors)
            facts = CallFacts(
                tuple(
                    (n, TensorFacts(unit, self.aligned.get(n, self.align), "" if n == p or n in self.aligned else p))
                    for n, p, unit in own
                )
            )
        signature = Signature.of(dtypes, static=None, keywords=self.keywords)
        return Request(kernel, signature, replace(facts, index_bits=self.index_bits), SM90A, self.schedule)

    def arrays(self, extents: Mapping[str, int]) -> tuple[Arrays, np.ndarray]:
        """Arguments for a run, the output poisoned, and the expected output."""
        rng, made = np.random.default_rng(0), dict[str, np.ndarray]()
        *inputs, output = self.kernel.tensors
        for tensor in (*inputs, output):
            kind = NUMPY[self.dtypes.get(tensor.name, self.dtype)]
            shape = [parse(d).evaluate(dict(extents)) if isinstance(d, str) else d for d in tensor.dims]
            values = self.given.get(tensor.name) or (
                rng.integers(-1000, 1000, shape)
                if kind in (np.int32, np.int64)
                else rng.integers(0, np.iinfo(kind).max, shape, endpoint=True)
                if np.dtype(kind).kind == "u"
                else rng.normal(size=shape) + self.shift
            )
            made[tensor.name] = np.asarray(values).astype(kind) if np.size(values) else _empty(shape, kind)
        wide = {t.name: a if a.dtype.kind in "iu" else a.astype(np.float64) for t in inputs for a in (made[t.name],)}
        expected = self.reference(**wide, **self.scalars)
        made[output.name] = np.full(expected.shape, -77).astype(made[output.name].dtype)
        return made, expected


def _empty(shape: list[int], kind: type[np.generic]) -> np.ndarray:
    """An array without elements whose rows are apart as if they had 8."""
    return np.empty([n or 8 for n in shape], kind)[tuple(slice(n) for n in shape)]


_PRODUCT = ({"M": 72, "N": 80, "K": 336}, {"M": 65, "N": 40, "K": 48})
_DENSE = {f"{name}.stride1": 1 for name in "abc"} | {f"{name}.address": 0 for name in "abc"}
"""What rows of a product begin with decides how it is cut."""
_ONE = Schedule(consumers=1, stages=4)
_TURNS = Schedule(mode=RoleMode.PINGPONG, stages=2)

PROBES: dict[str, Probe] = {
    "add": Probe(kernels.add, lambda x, y: x + y, ({"M": 1030}, {"M": 5})),
    "ints": Probe(kernels.ints, references.ints, ({"M": 600},), dtype="i32", scalars={"by": 3}),
    "floats": Probe(
        kernels.floats,
        lambda x, y, by: np.where(x > y, x * by - y, np.maximum(abs(x), np.exp(y))),
        ({"M": 600},),
        scalars={"by": 1.5},
    ),
    "fast": Probe(kernels.fast, lambda x, y: np.exp(x) * y + x / (1 + np.exp(y)), ({"M": 600},)),
    "row_max": Probe(kernels.row_max, lambda x: x.max(1), ({"M": 3, "N": 304},), dims={"M": 3, "N": 304}, shift=-9.0),
    "row_sum": Probe(kernels.row_sum, lambda x: x.sum(1), ({"M": 3, "N": 4000},), dims={"M": 3, "N": 4000}),
    "softmax": Probe(kernels.softmax, references.softmax, ({"M": 3, "N": 2040},), dims={"M": 3, "N": 2040}),
    "argmax": Probe(
        kernels.argmax,
        lambda x: x.argmax(1),
        ({"M": 3, "N": 304},),
        dims={"M": 3, "N": 304},
        dtypes={"y": "i32"},
        undecidable=True,
    ),
    "scanned": Probe(kernels.scanned, lambda x: x.cumsum(1), ({"M": 3, "N": 2500},), dtype="f32"),
    "linear": Probe(kernels.linear, references.recurrence, ({"M": 3, "N": 48},), dtype="f32"),
    "ordered": Probe(kernels.ordered, lambda x: np.sort(x, 1), ({"M": 3, "N": 304},), dtype="f16"),
    "greatest": Probe(kernels.greatest, lambda x: -np.sort(-x, 1)[:, :8], ({"M": 3, "N": 48},), dtype="f16"),
    "binned": Probe(
        kernels.binned,
        lambda x: np.stack([np.bincount(row & 63, minlength=64)[:40] for row in x.astype(np.int64)]),
        ({"M": 3, "N": 300},),
        dtype="i32",
    ),
    "placed": Probe(
        kernels.placed,
        lambda x: np.argsort(-x, 1, kind="stable")[:, :8],
        ({"M": 3, "N": 48},),
        dtype="f16",
        dtypes={"z": "i32"},
    ),
    "unsigned": Probe(kernels.unsigned, references.unsigned, ({"M": 600},), dtype="u32"),
    "bytes_of": Probe(kernels.bytes_of, lambda x, y: (x + y) // 3 + (x >> 4), ({"M": 600},), dtype="u8"),
    "bits_of": Probe(kernels.bits_of, references.bits_of, ({"M": 600},), dtype="f32"),
    "looked_up": Probe(
        kernels.looked_up,
        lambda code, table: table[code & 15],
        ({"M": 3, "N": 112},),
        dtype="f32",
        dtypes={"code": "u8"},
    ),
    "running": Probe(
        kernels.running, lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1] - x, ({"M": 3, "N": 2000},), dtype="f32"
    ),
    "drawn": Probe(kernels.drawn, references.philox, ({"M": 600},), dtype="i32"),
    "streamed": Probe(kernels.streamed, lambda x: x.sum(1), ({"M": 3, "N": 5200},)),
    "normed": Probe(
        kernels.normed, lambda x, y: y + x.sum(1)[:, None], ({"M": 3, "N": 120},), dims={"M": 3, "N": 120}, dtype="f32"
    ),
    "looped": Probe(kernels.looped, references.looped, ({"M": 2, "N": 9000},)),
    "gathered": Probe(kernels.gathered, references.gathered, ({"M": 200, "V": 300, "N": 72},), dtypes={"index": "i32"}),
    "paged": Probe(kernels.paged, references.paged, ({"M": 600, "P": 90},), dtype="f32", dtypes={"slot": "i32"}),
    "binned_from": Probe(
        kernels.binned_from,
        lambda x: np.stack([np.bincount(row[(row >= 100) & (row < 164)] - 100, minlength=64) for row in x]),
        ({"M": 3, "N": 300},),
        dtype="i32",
    ),
    "shifted": Probe(kernels.shifted, references.shifted, ({"M": 600}, {"M": 5}), dtype="f32"),
    "bounded": Probe(kernels.bounded, references.bounded, ({"M": 9, "N": 200},), dtypes={"lengths": "i32", "y": "f32"}),
    "over_lengths": Probe(
        kernels.over_lengths,
        references.over_lengths,
        ({"B": 5, "M": 70, "T": 200},),
        dtypes={"lengths": "i32"},
        undecidable=True,
    ),
    "over_lengths_wide": Probe(
        kernels.over_lengths_wide,
        references.over_lengths_wide,
        ({"B": 5, "M": 70, "T": 200},),
        dtypes={"lengths": "i32"},
        undecidable=True,
        unlowered=True,
    ),
    "grouped": Probe(
        kernels.grouped,
        references.grouped,
        ({"G": 4, "T": 150, "N": 72, "K": 136},),
        dtypes={"offsets": "i32"},
        given={"offsets": (0, 5, 5, 70, 130)},
    ),
    "along_rows": Probe(
        kernels.along_rows,
        references.along_rows,
        ({"G": 4, "T": 150, "M": 72, "N": 72},),
        dtypes={"offsets": "i32"},
        given={"offsets": (0, 5, 5, 70, 130)},
    ),
    "grouped_whole": Probe(
        kernels.grouped_whole,
        references.grouped,
        ({"G": 4, "T": 150, "K": 136},),
        dtypes={"offsets": "i32"},
        given={"offsets": (0, 5, 5, 70, 130)},
    ),
    "experts": Probe(
        kernels.experts,
        references.experts,
        ({"B": 4, "E": 3, "M": 70, "N": 72, "K": 136},),
        dtypes={"expert": "i64"},
        given={"expert": (2, -1, 3, 2**32)},
        unlowered=True,
        undecidable=True,
    ),
    "gathered_product": Probe(
        kernels.gathered_product,
        references.gathered_product,
        ({"P": 150, "T": 9, "N": 72, "K": 136},),
        dtypes={"rows": "i32"},
        given={"rows": (2, -1, 8, 9, 0, 2**31 - 1, 5)},
        undecidable=True,
    ),
    "experts_by_threads": Probe(
        kernels.experts,
        references.experts,
        ({"B": 4, "E": 3, "M": 70, "N": 72, "K": 132},),
        dtypes={"expert": "i64"},
        align=8,
        given={"expert": (2, -1, 3, 2**32)},
        schedule=Schedule(staged=False),
        unlowered=True,
        undecidable=True,
    ),
    "kept": Probe(kernels.kept, references.kept, ({"M": 3, "N": 600},)),
    "add_half": Probe(kernels.add, lambda x, y: x + y, ({"M": 1030},), align=8),
    "skewed": Probe(
        kernels.softmax, references.softmax, ({"M": 3, "N": 2041},), dims={"M": 3, "N": 2041}, align=2, peers=True
    ),
    "columns": Probe(
        kernels.columns,
        lambda x: x - np.add.reduceat(x, range(0, len(x), 16)).repeat(16, 0)[: len(x)],
        ({"M": 40, "N": 72},),
    ),
    "scalars": Probe(kernels.scalars, lambda x, k: x * k * k, ({"M": 600},), dtype="i64", scalars={"k": 60000}),
    "captured": Probe(kernels.captured, lambda x, x1: x * 3 + x1, ({"M": 600},), dtype="f32", scalars={"x1": 100.0}),
    "roots": Probe(kernels.roots, lambda x, y: np.sqrt(abs(x)) / y, ({"M": 600},), dtype="f32"),
    "turned_wide": Probe(kernels.turned, lambda x: x.T, ({"M": 72, "N": 136},), dtype="f32"),
    "casts": Probe(kernels.casts, references.to_i8, ({"M": 600},), dtype="f32", dtypes={"y": "i8"}),
    "division": Probe(kernels.division, references.divided, ({"M": 600},), dtype="i32"),
    "by_numbers": Probe(kernels.by_numbers, lambda x, y: (x // 7) * 100 + y % 10, ({"M": 600},), dtype="i32"),
    "add_wide": Probe(kernels.add, lambda x, y: x + y, ({"M": 1030},), index_bits=64),
    "turned": Probe(kernels.turned, lambda x: x.T, ({"M": 72, "N": 136},)),
    "nt": Probe(kernels.nt, lambda a, b: a @ b.T, _PRODUCT, schedule=_ONE),
    "tn": Probe(kernels.tn, lambda a, b: a.T @ b, ({"M": 72, "N": 80, "K": 333},), schedule=_ONE),
    "tall": Probe(
        kernels.nt,
        lambda a, b: a @ b.T,
        ({"M": 200, "N": 80, "K": 80},),
        keywords={"bm": 256},
        schedule=Schedule(consumers=2, stages=4),
    ),
    "wide": Probe(
        kernels.nt, lambda a, b: a @ b.T, ({"M": 72, "N": 136, "K": 80},), keywords={"bn": 128}, schedule=_ONE
    ),
    "nt_f32": Probe(kernels.nt, lambda a, b: a @ b.T, _PRODUCT, dtypes={"c": "f32"}, schedule=_ONE),
    "parts": Probe(
        kernels.free,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 4096},),
        dims={"M": 72, "N": 80, "K": 4096, "a.stride0": 4096, "b.stride0": 4096, "c.stride0": 80, **_DENSE},
    ),
    "deep": Probe(kernels.nt, lambda a, b: a @ b.T, _PRODUCT, keywords={"bk": 128}, schedule=_ONE),
    "odd": Probe(kernels.odd, lambda a, b: a @ b.T, _PRODUCT, schedule=_ONE),
    "single": Probe(kernels.single, lambda a, b: a @ b.T, ({"M": 72, "N": 80},), schedule=Schedule(consumers=1)),
    "by_hand": Probe(kernels.by_hand, lambda a, b: 2 * a @ b.T, ({"M": 72, "N": 80, "K": 96},), schedule=_ONE),
    "by_hand_two": Probe(
        kernels.by_hand,
        lambda a, b: 2 * a @ b.T,
        ({"M": 136, "N": 80, "K": 96},),
        keywords={"bm": 128},
        schedule=Schedule(consumers=2, stages=4),
    ),
    "ordinary": Probe(kernels.ordinary, lambda a, b: a @ b.T, ({"M": 40, "N": 36, "K": 40},), dtype="f32"),
    "nt_fp8": Probe(kernels.nt, lambda a, b: a @ b.T, _PRODUCT, dtype="e4m3", dtypes={"c": "bf16"}, schedule=_ONE),
    "cluster": Probe(
        kernels.nt, lambda a, b: a @ b.T, _PRODUCT, schedule=Schedule(consumers=1, stages=4, cluster=(2, 1))
    ),
    "cluster_tn": Probe(
        kernels.tn,
        lambda a, b: a.T @ b,
        ({"M": 264, "N": 200, "K": 112},),
        keywords={"bm": 128, "bn": 128},
        schedule=Schedule(consumers=2, stages=3, cluster=(2, 1)),
    ),
    "pingpong": Probe(kernels.nt, lambda a, b: a @ b.T, _PRODUCT, schedule=Schedule(mode="pingpong", stages=4)),
    "gated": Probe(
        kernels.gated,
        lambda x, v, w: (g := x @ v.T) * references.sigmoid(g) * (x @ w.T),
        ({"M": 72, "N": 80, "K": 96},),
        schedule=_ONE,
    ),
    "attention": Probe(
        kernels.attention,
        references.attended,
        ({"S": 72, "T": 264},),
        schedule=Schedule(consumers=1, stages=2),
        scalars={"scale": 0.125},
    ),
    "attention_wide": Probe(
        kernels.attention_wide,
        references.attended,
        ({"S": 136, "T": 264}, {"S": 136, "T": 72}),
        schedule=Schedule(consumers=2),
        scalars={"scale": 0.125},
    ),
    "attention_causal": Probe(
        kernels.attention_wide,
        references.attended_before,
        ({"S": 136, "T": 264},),
        schedule=Schedule(consumers=2),
        scalars={"scale": 0.125},
        keywords={"causal": True},
        undecidable=True,
    ),
    "loaded": Probe(
        kernels.nt,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 101},),
        align=2,
        schedule=Schedule(consumers=1, stages=4, staged=False),
    ),
    "fed": Probe(
        kernels.nt, lambda a, b: a @ b.T, _PRODUCT, align=8, schedule=Schedule(consumers=1, stages=4, staged=False)
    ),
    "staged": Probe(
        kernels.nt,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 333},),
        align=2,
        schedule=Schedule(consumers=1, stages=4, staged=True),
    ),
    "summed_down": Probe(kernels.column_sum, lambda x: x.sum(0), ({"M": 9001, "N": 72},), dims={"M": 9001, "N": 72}),
    "least_of_row": Probe(
        kernels.row_least, lambda x: x.min(1), ({"M": 3, "N": 400008},), dims={"M": 3, "N": 400008}, shift=9.0
    ),
    "many_parts": Probe(
        kernels.free,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 1096},),
        dims={"M": 72, "N": 80, "K": 1096},
        schedule=Schedule(split_k=12),
    ),
    "few_parts": Probe(
        kernels.free,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 504},),
        dims={"M": 72, "N": 80, "K": 504},
        schedule=Schedule(split_k=3),
    ),
    "from_row": Probe(kernels.from_row, references.from_row, ({"M": 200, "N": 80, "K": 336},), schedule=_ONE),
    "to_row": Probe(kernels.to_row, references.to_row, ({"M": 200, "N": 80, "K": 336},), schedule=_ONE),
    "activated": Probe(
        kernels.activated,
        references.activated,
        ({"M": 136, "N": 200, "K": 80},),
        schedule=Schedule(consumers=2, stages=2),
    ),
    "two_blocks": Probe(
        kernels.smoothed,
        references.smoothed,
        ({"M": 136, "N": 200, "K": 80},),
        schedule=_TURNS,
    ),
    "panel_columns": Probe(
        kernels.activated,
        references.activated,
        ({"M": 136, "N": 200, "K": 80},),
        keywords={"bm": 128, "bn": 128},
        schedule=_TURNS,
    ),
    "no_steps": Probe(kernels.weighted, references.weighted, ({"S": 136, "T": 0}, {"S": 136, "T": 1})),
    "spread": Probe(kernels.spread, lambda x: x.max(0) - x.min(0), ({"M": 9001, "N": 72},), dims={"M": 9001, "N": 72}),
    "from_one": Probe(kernels.from_one, lambda x: 1 + x.sum(0), ({"M": 9001, "N": 72},), dims={"M": 9001, "N": 72}),
    "kept_sums": Probe(
        kernels.kept_sums,
        lambda a, b, r: a @ b.T,
        ({"M": 136, "N": 200, "K": 80},),
        schedule=Schedule(consumers=2, stages=2),
    ),
    "gathered_narrow": Probe(
        kernels.gathered_product,
        references.gathered_product,
        ({"P": 150, "T": 9, "N": 72, "K": 136},),
        dtypes={"rows": "i32"},
        align=4,
        given={"rows": (2, -1, 8, 9, 0, 2**31 - 1, 5)},
        schedule=Schedule(staged=False),
        undecidable=True,
    ),
    "gathered_wide": Probe(
        kernels.gathered_in_steps,
        lambda rows, x, w: x[rows].T @ w[rows],
        ({"P": 150, "T": 9, "N": 72, "K": 136},),
        dtypes={"rows": "i32"},
        given={"rows": tuple(i * 5 % 9 for i in range(150))},
        keywords={"bm": 128},
        unlowered=True,
        undecidable=True,
    ),
    "converted": Probe(
        kernels.converted,
        lambda x, w: x @ w.T,
        ({"M": 72, "N": 80, "K": 336},),
        dtypes={"w": "e4m3"},
        schedule=_ONE,
    ),
    "no_product": Probe(kernels.no_product, lambda a, b: a @ b.T + 2, ({"M": 72, "N": 80, "K": 0},)),
    "few_rows": Probe(
        kernels.free, lambda a, b: a @ b.T, ({"M": 8, "N": 520, "K": 336},), dims={"M": 8, "N": 520, "K": 336}
    ),
    "waves": Probe(kernels.waves, lambda x: np.cos(x), ({"N": 1030},), dtype="f32", shift=65537.0),
    "dense": Probe(kernels.dense_sum, lambda x, y: x + y, ({"M": 40, "N": 72},)),
    "across": Probe(kernels.across, lambda x: x.T, ({"M": 80, "N": 144},), dtype="u8"),
    "of_bytes": Probe(kernels.of_bytes, lambda x: x, ({"N": 4112},), dtypes={"x": "e4m3"}, dtype="f16"),
    "tile_sums": Probe(kernels.tile_sums, lambda x: x.sum(0), ({"M": 61, "N": 136},)),
    "added": Probe(
        kernels.added, lambda a, b: a @ b.T - 77, ({"M": 136, "N": 200, "K": 80},), dtypes={"c": "f32"}, schedule=_ONE
    ),
    "by_blocks": Probe(
        kernels.by_blocks,
        references.by_blocks,
        ({"M": 200, "N": 136, "K": 200, "KB": 4, "NB": 3},),
        dtypes={"s": "f32", "t": "f32"},
        schedule=Schedule(consumers=2, stages=2),
    ),
    "of_columns": Probe(
        kernels.of_columns,
        references.of_columns,
        ({"M": 200, "N": 136, "K": 200, "KB": 4},),
        dtypes={"s": "f32"},
        schedule=Schedule(consumers=2, stages=2),
    ),
    "soft": Probe(kernels.soft, references.softmax, ({"M": 3, "N": 2040},), dims={"M": 3, "N": 2040}),
    "soft_wide": Probe(kernels.soft, references.softmax, ({"M": 3, "N": 2040},), dims={"M": 3, "N": 2040}, dtype="f32"),
    "soft_strict": Probe(
        kernels.soft_strict, lambda x: references.softmax(2 * x), ({"M": 3, "N": 2040},), dims={"M": 3, "N": 2040}
    ),
    "tempered": Probe(
        kernels.tempered,
        lambda x, by: np.exp(3 * by * (x - x.max(1)[:, None])),
        ({"M": 3, "N": 2040},),
        dims={"M": 3, "N": 2040},
        scalars={"by": 0.25},
    ),
    "faded": Probe(kernels.faded, lambda x, y: np.exp(3 * x - np.maximum(3 * x, 5 * y)), ({"M": 600},), dtype="f32"),
    "whole_quotient": Probe(
        kernels.whole_quotient,
        lambda x: np.trunc(x / x.max(1)[:, None]),
        ({"M": 3, "N": 304},),
        dims={"M": 3, "N": 304},
        dtype="f32",
        dtypes={"y": "i8"},
        shift=9.0,
    ),
    "mean_of": Probe(
        kernels.mean_of, lambda x: x / x.sum(1)[:, None], ({"M": 3, "N": 304},), dims={"M": 3, "N": 304}, shift=9.0
    ),
    "own_quotient": Probe(kernels.own_quotient, lambda x, y: 3 * x / y, ({"M": 600},), shift=9.0),
    "weighed": Probe(
        kernels.weighed,
        lambda x, w: x / x.sum(1)[:, None] * w,
        ({"M": 3, "N": 777},),
        dims={"M": 3, "N": 777},
        align=2,
        peers=True,
        aligned={"w": 16},
        shift=9.0,
    ),
    "weighed_apart": Probe(
        kernels.weighed,
        lambda x, w: x / x.sum(1)[:, None] * w,
        ({"M": 3, "N": 777},),
        dims={"M": 3, "N": 777},
        align=2,
        peers=True,
        aligned={"w": 8},
        shift=9.0,
    ),
    "early": Probe(
        kernels.row_sum,
        lambda x: x.sum(1),
        ({"M": 3, "N": 4000},),
        dims={"M": 3, "N": 4000},
        schedule=Schedule(dependent=True),
    ),
    "early_parts": Probe(
        kernels.column_sum,
        lambda x: x.sum(0),
        ({"M": 9001, "N": 72},),
        dims={"M": 9001, "N": 72},
        schedule=Schedule(dependent=True),
    ),
    "rounded": Probe(
        kernels.rounded,
        lambda x: np.rint(x * 8) + np.expm1(x) + 1 / x,
        ({"M": 600},),
        dtype="f32",
    ),
    "narrow_roots": Probe(kernels.narrow_roots, lambda x: np.sqrt(abs(x)) * x, ({"M": 600},)),
    "dense_odd": Probe(kernels.dense_sum, lambda x, y: x + y, ({"M": 40, "N": 73},), align=2),
    "by_groups": Probe(
        kernels.by_groups,
        references.by_groups,
        ({"G": 4, "T": 150, "N": 72},),
        dtypes={"offsets": "i32"},
        given={"offsets": (0, 5, 5, 70, 130)},
    ),
    "distances": Probe(kernels.distances, references.distances, ({"M": 5, "N": 12},), dtype="f32", keywords={"bm": 1}),
    "distances_narrow": Probe(kernels.distances, references.distances, ({"M": 5, "N": 8},), dtype="f16"),
    "columns_wide": Probe(
        kernels.columns,
        lambda x: x - np.add.reduceat(x, range(0, len(x), 16)).repeat(16, 0)[: len(x)],
        ({"M": 40, "N": 72},),
        index_bits=64,
    ),
    "in_tf32": Probe(kernels.in_tf32, lambda a, b: 1.5 * a @ b.T, _PRODUCT, dtype="f32"),
    "gathered_deep": Probe(
        kernels.gathered_product,
        references.gathered_product,
        ({"P": 150, "T": 9, "N": 72, "K": 136},),
        dtypes={"rows": "i32"},
        given={"rows": (2, -1, 8, 9, 0, 2**31 - 1, 5)},
        keywords={"bk": 128},
        undecidable=True,
    ),
    "scored": Probe(
        kernels.scored,
        lambda rows, x, w: x @ w[rows].T,
        ({"P": 40, "M": 72, "V": 9, "K": 136},),
        dtypes={"rows": "i32"},
        given={"rows": tuple(i * 5 % 9 for i in range(40))},
        undecidable=True,
    ),
    "over_both": Probe(
        kernels.over_both,
        lambda q, k, u, v, w: np.exp(q @ k.T * 0.01) @ w + np.exp(q @ u.T * 0.01) @ v,
        ({"S": 136, "T": 130, "U": 40},),
    ),
}
