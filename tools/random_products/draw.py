"""What a seed draws: operands, what is done to them, the accumulators, the epilogue, tiles and pins of the schedule.

Every element is a small integer, every operation on it is exact, and so is every sum in whatever order: a result has
one value. What lies around the tensors is NaN (for integers: all bits set).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from random_programs.places import NUMPY

Array = Any
KINDS = {"bf16": 4.0, "f16": 2.0, "tf32": 1.5, "i8": 1.5, "e4m3": 1.5, "e5m2": 1.0, "mixed": 0.5, "f32": 0.4}
"""What is multiplied; ``mixed`` is e4m3 by e5m2, ``f32`` is no work of tensor cores."""
FORMS = {
    "plain": 4.0, "computed": 4.0, "gated": 1.5, "batched": 1.2, "epilogue": 2.0, "transposed": 1.0, "added": 0.8,
    "promoted": 0.7, "chained": 1.0, "scaled": 0.8, "whole": 0.7, "twice": 0.7, "rows": 0.6, "shifted": 0.5,
}  # fmt: skip
ROWS = {64: 4, 128: 6, 192: 2, 256: 2, 16: 0.6, 32: 0.6, 8: 0.3, 1: 0.2, 96: 0.4}
DEPTHS = {16: 1.0, 32: 2.0, 64: 4.0, 128: 1.5, 48: 0.3, 8: 0.2}


@dataclass(frozen=True)
class Operand:
    """A tensor of the kernel: dtype by name, dims by name, elements at most ``most`` in magnitude; how it may lie."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    most: int = 2
    output: bool = False


@dataclass
class Case:
    """A kernel and its launches. ``exact`` has the outputs, in float64, of what the inputs hold."""

    seed: int
    kind: str
    form: str
    layout: str
    rows: str
    """How rows lie: aligned to 16 bytes, pitched (aligned, apart) or ragged."""
    pins: tuple[str, ...] = ()
    source: str = ""
    tensors: list[Operand] = field(default_factory=list)
    shapes: list[dict[str, int]] = field(default_factory=list)
    exact: Callable[[dict[str, Array]], dict[str, Array]] = lambda _: {}

    @property
    def name(self) -> str:
        return f"p{self.seed}"


def drawn(seed: int) -> Case:
    """The case of a seed."""
    rng = Random(seed)
    kind, form = _among(rng, KINDS), _among(rng, FORMS)
    layout = rng.choice(("nn", "nt", "tn", "tt"))
    bm, bk = _among(rng, ROWS), _among(rng, DEPTHS)
    bn = 8 * rng.randint(1, 32) if rng.random() < 0.5 else rng.choice((64, 128, 128, 160, 192, 256))
    if form in ("gated", "chained", "scaled", "promoted", "epilogue") and bn > 128:
        bn = bn // 16 * 8
    while bm * bn > 128 * 256:
        bm, bn = (bm // 2, bn) if bm > 128 else (bm, bn // 16 * 8)
    if kind in ("tf32", "f32", "mixed"):  # operands from registers: code grows with the depth
        bk = min(bk, 64)
    rows = rng.choice(("aligned", "aligned", "pitched", "ragged"))
    case = Case(seed, kind, form, layout, rows)
    case.pins = _pins(rng, case, bm)
    _Writer(rng, case, bm, bn, bk).write()
    case.shapes = [_shape(rng, case, bm, bn) for _ in range(4)]
    return case


def _among(rng: Random, weights: dict[Any, float]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def _pins(rng: Random, case: Case, bm: int) -> tuple[str, ...]:
    """Pins as texts, of which the first are given up first where a schedule can't keep all."""
    pins: dict[str, str] = {}
    if case.kind in ("i8", "mixed", "f32"):  # no pipelines of tensor copies
        return tuple(f"warps={rng.choice((4, 8))}" for _ in range(rng.random() < 0.3))
    if rng.random() < 0.3:
        pins["stages"] = str(rng.randint(2, 6))
    if case.rows == "ragged" and rng.random() < 0.6:
        pins["staged"] = str(rng.random() < 0.4)
    if rng.random() < 0.12:
        pins["split_k"] = str(rng.randint(2, 5))
    how = rng.choice(("none", "cluster", "cluster", "cluster", "roles", "both", "both", "both"))
    if how in ("cluster", "both"):
        pins["cluster"] = rng.choice(("2x1", "2x1", "1x2", "2x2", "4x1", "1x4", "1x1"))
    if how in ("roles", "both"):
        if rng.random() < 0.5:
            pins["mode"] = "pingpong"
        else:
            pins["consumers"] = str(bm // 64 if bm in (128, 192) else 2)
    texts = [f"{k}={v}" for k, v in pins.items()]
    return tuple(texts if how != "both" or rng.random() < 0.5 else [*texts[:-2], texts[-1], texts[-2]])


def _shape(rng: Random, case: Case, bm: int, bn: int) -> dict[str, int]:
    """Extents of a launch; those of rows keep the alignment that the first launch has."""
    unit = 1 if case.rows == "ragged" else 16
    sizes = {
        "M": rng.choice((1, bm - 1, bm, bm + 1, 2 * bm, 2 * bm + 7, 300, 333, 5 * bm + 3)),
        "N": rng.choice((1, bn - 1, bn, bn + 8, 2 * bn + 8, 264, 300, 3 * bn + 5)),
        "K": rng.choice((1, 16, 40, 64, 72, 128, 200, 264, 500, 1000 if bm * bn > 4000 else 320)),
        "B": rng.choice((1, 2, 3, 5)),
        "J": rng.choice((8, 64, 72, 136, 200)),
    }
    found = {d: -(-max(n, 1) // unit) * unit if d != "B" else n for d, n in sizes.items()}
    if case.rows == "ragged":
        found["K"] |= 1
        found["N"] |= 1
        found["M"] |= 1
        found["J"] |= 1
    return found


STORED = {"bf16": "bf16", "f16": "f16", "tf32": "f32", "i8": "i8", "e4m3": "e4m3", "e5m2": "e5m2", "f32": "f32"}


class _Writer:
    """Writes a kernel as Python, and its exact results as a function of NumPy's."""

    def __init__(self, rng: Random, case: Case, bm: int, bn: int, bk: int):
        self.rng, self.case = rng, case
        self.tile = bm, bn, bk
        self.integer = case.kind == "i8"
        self.acc = "i32" if self.integer else "f32"
        self.kinds = ("e4m3", "e5m2") if case.kind == "mixed" else (case.kind, case.kind)
        if case.kind == "mixed" and rng.random() < 0.5:
            self.kinds = self.kinds[::-1]
        self.steps: list[str] = []

    # -- parts --------------------------------------------------------------------------------------------------------
    def tensor(self, name: str, dtype: str, *dims: str, most: int = 2, output: bool = False) -> str:
        self.case.tensors.append(Operand(name, dtype, dims, most, output))
        return name

    def operand(self, name: str, side: int, row: str, column: str, lead: str = "") -> tuple[str, Callable[..., Array]]:
        """An expression of (row, column) and what it is, of a dict of arrays: (..., row, column)."""
        kind, turned = self.kinds[side], self.case.layout[side] == "t"
        stored = STORED[kind]
        computed = self.case.form == "computed" and (self.rng.random() < 0.7 or (side == 1 and not self.steps))
        if computed and kind not in ("tf32", "f32") and self.rng.random() < 0.3:
            stored = self.rng.choice(
                {"bf16": ("i8", "e4m3", "f32", "f16"), "f16": ("i8", "e5m2", "f32")}.get(kind, ("f32",))
            )
        # ``t`` of the left side is (K, M), of the right side (N, K): as in BLAS
        dims = (column, row) if turned else (row, column)
        upper = {"m": "M", "n": "N", "k": "K", "j": "J"}
        self.tensor(name, stored, *((lead,) if lead else ()), *(upper[d] for d in dims))
        at = ", ".join(([lead.lower()] if lead else []) + list(dims))
        text = f"{name}[{at}]"
        if turned and not computed:
            text += ".T"

        def plain(given: dict[str, Array]) -> Array:
            x = given[name].astype(np.float64)
            return np.swapaxes(x, -1, -2) if turned else x

        if not computed:
            return (text if stored == kind else f"{text}.to(tw.{kind})"), plain
        return self.computed(text, stored, kind, turned, plain)

    def computed(
        self, text: str, stored: str, kind: str, turned: bool, plain: Callable[..., Array]
    ) -> tuple[str, Callable[..., Array]]:
        """Something exact is done to an operand before the product."""
        narrow = stored in ("e4m3", "e5m2", "i8")
        if narrow and kind in ("e4m3", "e5m2"):
            text = f"{text}.to(tw.f32)"
        elif stored != kind and kind in ("bf16", "f16"):
            text = f"{text}.to(tw.{kind})"
        fn = self.rng.choice(("relu", "double", "neg", "abs", "where", "cast"))
        self.steps.append(fn)
        tail = ".T" if turned else ""
        done: tuple[str, Callable[..., Array]] = {
            "relu": (f"tw.maximum({text}, 0)", lambda g: np.maximum(plain(g), 0)),
            "double": (f"({text} * 2)", lambda g: plain(g) * 2),
            "neg": (f"(-{text})", lambda g: -plain(g)),
            "abs": (f"tw.abs({text})", lambda g: np.abs(plain(g))),
            "where": (f"tw.where({text} > 0, {text}, 1)", lambda g: np.where(plain(g) > 0, plain(g), 1.0)),
            "cast": (f"{text}.to(tw.f32)", plain),
        }[fn]
        return f"{done[0]}.to(tw.{kind}){tail}", done[1]

    def head(self, signature_from: str) -> list[str]:
        return [f"m, n = tw.grid({signature_from}, ({self.tile[0]}, {self.tile[1]}))"]

    def result(self, dims: tuple[str, ...] = ("M", "N"), name: str = "c") -> str:
        dtypes = (
            ("i32", "i32", "f32")
            if self.integer
            else ("bf16", "f16", "f32", "bf16", STORED[self.case.kind if self.case.kind != "mixed" else "bf16"])
        )
        return self.tensor(name, self.rng.choice(dtypes), *dims, output=True)

    # -- the whole ----------------------------------------------------------------------------------------------------
    def write(self) -> None:
        body = getattr(self, f"_{self.case.form}", self._plain)()
        parameters = ", ".join(
            f"{x.name}: tw.Tensor[{', '.join(repr(d) if not d.isdecimal() else d for d in x.dims)}]"
            for x in self.case.tensors
        )
        lines = "\n".join(f"    {line}" for line in body)
        numerics = self.rng.choice(("", "", '(numerics="fast")', '(numerics="accurate")'))
        self.case.source = (
            f"import tilewright as tw\n\n\n@tw.kernel{numerics}\ndef {self.case.name}({parameters}):\n{lines}\n"
        )

    def contraction(self, rows: str = "m", columns: str = "n", left: str = "a", right: str = "b", lead: str = ""):
        """``tw.dot`` over k, and its exact value."""
        a, exact_a = self.operand(left, 0, rows, "k", lead)
        b, exact_b = self.operand(right, 1, "k", columns, lead)
        return a, b, lambda g: exact_a(g) @ exact_b(g)

    def extent(self, of: str, dim: str) -> str:
        x = next(x for x in self.case.tensors if x.name == of)
        return f"{of}.shape[{x.dims.index(dim)}]"

    def zeros(self, name: str = "acc", axes: str = "m, n") -> str:
        return f"{name} = tw.zeros(({axes}), tw.{self.acc})"

    def loop(self, dim: str = "K", of: str = "a", name: str = "k") -> str:
        return f"for {name} in tw.stream({self.extent(of, dim)}, {self.tile[2]}):"

    def _plain(self, how: str = "") -> list[str]:
        a, b, exact = self.contraction()
        c = self.result()
        self.case.exact = lambda g: {"c": exact(g)}
        return [*self.head(c), self.zeros(), self.loop(), f"    acc += tw.dot({a}, {b}{how})", "c[m, n] = acc"]

    def _twice(self) -> list[str]:
        """Two products into one accumulator."""
        a, b, one = self.contraction()
        d, e, two = self.contraction(left="d", right="e")
        c = self.result()
        self.case.exact = lambda g: {"c": one(g) + two(g)}
        work = [f"    acc += tw.dot({a}, {b})", f"    acc += tw.dot({d}, {e})"]
        return [*self.head(c), self.zeros(), self.loop(), *work, "c[m, n] = acc"]

    def _gated(self) -> list[str]:
        a, b, one = self.contraction()
        w, exact_w = self.operand("w", 1, "k", "n")
        c = self.result()
        left = next(x for x in self.case.tensors if x.name == "a")
        turned = left.dims[0] == "K"

        def two(g: dict[str, Array]) -> Array:
            x = g["a"].astype(np.float64)
            return (x.T if turned else x) @ exact_w(g)

        self.case.exact = lambda g: {"c": np.maximum(one(g), 0) + two(g) * 2}
        return [
            *self.head(c), self.zeros("g"), self.zeros("u"), self.loop(), f"    x = {a}", f"    g += tw.dot(x, {b})",
            f"    u += tw.dot(x, {w})", "c[m, n] = tw.maximum(g, 0) + u * 2",
        ]  # fmt: skip

    def _batched(self) -> list[str]:
        a, b, exact = self.contraction(lead="B")
        c = self.result(("B", "M", "N"))
        self.case.exact = lambda g: {"c": exact(g)}
        head = f"b_, m, n = tw.grid({c}, (None, {self.tile[0]}, {self.tile[1]}))"
        a, b = a.replace("[b,", "[b_,"), b.replace("[b,", "[b_,")
        return [head, self.zeros(), self.loop(), f"    acc += tw.dot({a}, {b})", "c[b_, m, n] = acc"]

    def _epilogue(self) -> list[str]:
        """Tensors that meet the sums: a row, a column, a matrix; a second result."""
        a, b, exact = self.contraction()
        wide = self.acc
        bias = self.tensor("bias", self.rng.choice(("bf16", "f32", "i8")), "N", most=9)
        rows = self.tensor("s", self.rng.choice(("f16", "f32")), "M", most=3)
        turned = self.rng.random() < 0.3
        self.tensor("r", self.rng.choice(("bf16", "f32", "f16", "i8")), *(("N", "M") if turned else ("M", "N")), most=9)
        c = self.result()
        second = self.rng.random() < 0.5
        if second:
            self.result(name="d")

        def every(g: dict[str, Array]) -> dict[str, Array]:
            x = {n: g[n].astype(np.float64) for n in ("bias", "s", "r")}
            whole = exact(g)
            y = np.maximum(whole + x["bias"][None, :], 0) * x["s"][:, None] + (x["r"].T if turned else x["r"])
            return {"c": y} | ({"d": whole * 2 - x["bias"][None, :]} if second else {})

        self.case.exact = every
        at = "r[n, m].T" if turned else "r[m, n]"
        lines = [
            *self.head(c), self.zeros(), self.loop(), f"    acc += tw.dot({a}, {b})",
            f"y = tw.maximum(acc + {bias}[n].to(tw.{wide})[None, :], 0) * {rows}[m].to(tw.{wide})[:, None]",
            f"c[m, n] = y + {at}.to(tw.{wide})",
        ]  # fmt: skip
        return lines + [f"d[m, n] = acc * 2 - {bias}[n].to(tw.{wide})[None, :]"] * second

    def _transposed(self) -> list[str]:
        a, b, exact = self.contraction()
        self.result(("N", "M"))
        self.case.exact = lambda g: {"c": exact(g).T}
        bm, bn, _ = self.tile
        return [f"n, m = tw.grid(c, ({bn}, {bm}))", self.zeros(), self.loop(), f"    acc += tw.dot({a}, {b})",
                "c[n, m] = acc.T"]  # fmt: skip

    def _added(self) -> list[str]:
        """Sums into what the result holds."""
        a, b, exact = self.contraction()
        self.tensor(
            "c",
            "i32" if self.integer else self.rng.choice(("f32", "f32", "bf16", "f16")),
            "M",
            "N",
            most=3,
            output=True,
        )
        self.case.exact = lambda g: {"c": exact(g) + g["c"].astype(np.float64)}
        return [*self.head("c"), self.zeros(), self.loop(), f"    acc += tw.dot({a}, {b})",
                "tw.reduce_add(c, (m, n), acc.to(c.dtype))"]  # fmt: skip

    def _promoted(self) -> list[str]:
        """A sum of its own for each step."""
        return self._plain(', accumulate="promoted"')

    def _scaled(self) -> list[str]:
        """Each step's product times a number of its row."""
        a, b, exact = self.contraction()
        s = self.tensor("s", "f32", "M", most=3)
        c = self.result()
        self.case.exact = lambda g: {"c": exact(g) * g["s"].astype(np.float64)[:, None]}
        work = f"    acc += tw.dot({a}, {b}) * {s}[m].to(tw.{self.acc})[:, None]"
        return [*self.head(c), self.zeros(), self.loop(), work, "c[m, n] = acc"]

    def _whole(self) -> list[str]:
        """The contracted axis in one tile."""
        a, b, exact = self.contraction()
        for i, x in enumerate(self.case.tensors):
            self.case.tensors[i] = Operand(x.name, x.dtype, tuple("72" if d == "K" else d for d in x.dims), x.most)
        c = self.result()
        self.case.exact = lambda g: {"c": exact(g)}
        a, b = (x.replace("[k, ", "[:, ").replace(", k]", ", :]") for x in (a, b))
        return [*self.head(c), f"c[m, n] = tw.dot({a}, {b})"]

    def _rows(self) -> list[str]:
        """The sums of rows of a product, beside it."""
        a, b, exact = self.contraction()
        c = self.result()
        self.tensor("t", "i32" if self.integer else "f32", "M", most=0, output=True)
        self.case.exact = lambda g: {"c": exact(g), "t": exact(g).sum(-1) + g["t"].astype(np.float64)}
        return [*self.head(c), self.zeros(), self.loop(), f"    acc += tw.dot({a}, {b})", "c[m, n] = acc",
                "tw.reduce_add(t, m, acc.sum(1).to(t.dtype))"]  # fmt: skip

    def _shifted(self) -> list[str]:
        """A part of the contracted axis: the stream begins and ends inside."""
        a, b, exact = self.contraction()
        c = self.result()
        low, up = self.rng.choice((0, 8, 16, 20)), self.rng.choice((24, 50, 64, 200))
        sides = {x.name: x.dims for x in self.case.tensors}

        def part(g: dict[str, Array]) -> dict[str, Array]:
            cut: dict[str, Array] = {}
            for name, x in g.items():
                if name in ("a", "b"):
                    where = tuple(slice(low, up) if d == "K" else slice(None) for d in sides[name])
                    x = x[where]
                cut[name] = x
            return {"c": exact(cut)}

        self.case.exact = part
        loop = self.loop().replace("):", f", start={low}, until={up}):")
        return [*self.head(c), self.zeros(), loop, f"    acc += tw.dot({a}, {b})", "c[m, n] = acc"]

    def _chained(self) -> list[str]:
        """A product of a product, as attention has it."""
        if self.case.kind not in ("bf16", "f16"):
            self.case.kind = self.rng.choice(("bf16", "f16"))
            self.kinds, self.acc, self.integer = (self.case.kind,) * 2, "f32", False
        kind = self.case.kind
        turned = self.case.layout[1] == "t"
        self.tensor("x", kind, "M", "64")
        self.tensor("v", kind, "J", "64", most=1)
        self.tensor("w", kind, *(("N", "J") if turned else ("J", "N")), most=1)
        c = self.result()

        def exact(g: dict[str, Array]) -> dict[str, Array]:
            x, v, w = (g[n].astype(np.float64) for n in ("x", "v", "w"))
            return {"c": np.maximum(x @ v.T, 0) @ (w.T if turned else w)}

        self.case.exact = exact
        w = "w[n, j].T" if turned else "w[j, n]"
        return [
            *self.head(c),
            "rows = x[m, :]",
            self.zeros(),
            f"for j in tw.stream(v.shape[0], {max(self.tile[2], 16)}):",
            "    h = tw.dot(rows, v[j, :].T)",
            f"    acc += tw.dot(tw.maximum(h, 0).to(tw.{kind}), {w})",
            "c[m, n] = acc",
        ]


def contents(rng: np.random.Generator, x: Operand, shape: tuple[int, ...]) -> Array:
    """Elements of a tensor."""
    return rng.integers(-x.most, x.most + 1, shape).astype(NUMPY[x.dtype])
