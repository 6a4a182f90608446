"""Affine layouts: ``x -> A x + b`` over Z or Z_m, on a box of mixed-radix digits.

A layout maps named input axes to named output axes. An input axis is one or more *digits*, the first the fastest; a
digit of extent e contributes its value in [0, e) times a column, so strides may be negative, zero or prime, and an axis
of one digit is a plain strided axis. An output axis is an integer, or an integer modulo m::

    axis i of 6 with column 5, output modulo 6:    0 5 4 3 2 1          (a flip)
    axis t of digits (3, 2), columns (2, 1):       0 2 4 1 3 5          (a transpose of 2 x 3)

Extents, columns and offsets may be symbols where nothing has to be decided about them. Two layouts with the same axes
are the same map exactly if their canonical forms are equal (``canonical``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TypeAlias

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.diag import fail
from tilewright.layout.checks import extent, integer
from tilewright.layout.int_tuple import Leaf

Column: TypeAlias = tuple[Leaf, ...]


@dataclass(frozen=True)
class AffineLayout:
    """``ins``: (axis, extents of its digits); ``outs``: (axis, modulus or None); ``columns``: one image per digit;
    ``base``: the image of 0. LAY001, LAY002, LAY020 when those are no integers, of the wrong rank, or moduli < 1."""

    ins: tuple[tuple[str, tuple[Leaf, ...]], ...]
    outs: tuple[tuple[str, int | None], ...]
    columns: tuple[Column, ...]
    base: Column

    def __post_init__(self) -> None:
        for name, digits in self.ins:
            for e in digits:
                if not isinstance(e, Expr):
                    extent(e, f"extent of {name}")
        for name, m in self.outs:
            if m is not None and integer(m, f"modulus of {name}") < 1:
                fail(
                    "LAY020",
                    found=f"{name} modulo {m}",
                    required="a modulus >= 1, or None for the integers",
                    help="name a modulus of at least 1, or None where nothing wraps",
                )
        for side in (self.ins, self.outs):
            if len({n for n, _ in side}) != len(side):
                _refuse("an axis name occurs twice", str([n for n, _ in side]), "distinct names")
        if len(self.columns) != len(self.digits):
            _refuse("one column per digit", f"{len(self.columns)} columns", f"{len(self.digits)} columns")
        for column in (*self.columns, self.base):
            if len(column) != len(self.outs):
                _refuse("a column has the wrong rank", str(column), f"{len(self.outs)} numbers")
            for x in column:
                if not isinstance(x, Expr):
                    integer(x, "entry of a column")

    # -- construction ---------------------------------------------------------------------------------------------
    @staticmethod
    def of(
        ins: Mapping[str, Leaf | Sequence[Leaf]],
        outs: Mapping[str, int | None],
        columns: Mapping[str, Sequence[Sequence[Leaf] | Leaf]],
        base: Sequence[Leaf] | None = None,
    ) -> AffineLayout:
        """From extents (or digits) and columns per input axis; with one output a column may be a number."""
        axes = tuple((n, tuple(e) if isinstance(e, Sequence) else (e,)) for n, e in ins.items())
        if set(columns) != set(ins):
            _refuse("columns for other axes", str(sorted(columns)), str(sorted(ins)))
        rows = tuple(tuple(c) if isinstance(c, Sequence) else (c,) for n, _ in axes for c in columns[n])
        return AffineLayout(axes, tuple(outs.items()), rows, (0,) * len(outs) if base is None else tuple(base))

    @staticmethod
    def strided(
        size: Leaf, stride: Leaf, in_name: str, out_name: str, *, start: Leaf = 0, modulus: int | None = None
    ) -> AffineLayout:
        """``out = start + stride * in`` over ``size`` coordinates."""
        return AffineLayout(((in_name, (size,)),), ((out_name, modulus),), ((stride,),), (start,))

    @staticmethod
    def identity(size: Leaf, in_name: str, out_name: str, *, modulus: int | None = None) -> AffineLayout:
        """``out = in``."""
        return AffineLayout.strided(size, 1, in_name, out_name, modulus=modulus)

    # -- shape ----------------------------------------------------------------------------------------------------
    @cached_property
    def digits(self) -> tuple[Leaf, ...]:
        """Extents of all digits, axis after axis."""
        return tuple(e for _, digits in self.ins for e in digits)

    @property
    def in_names(self) -> tuple[str, ...]:
        """Input axis names in order."""
        return tuple(n for n, _ in self.ins)

    @property
    def out_names(self) -> tuple[str, ...]:
        """Output axis names in order."""
        return tuple(n for n, _ in self.outs)

    @property
    def shape(self) -> tuple[Leaf, ...]:
        """Extent of every input axis."""
        return tuple(reduce(lambda a, b: a * b, digits, 1) for _, digits in self.ins)

    @property
    def moduli(self) -> tuple[int | None, ...]:
        """Modulus of every output axis."""
        return tuple(m for _, m in self.outs)

    @cached_property
    def is_static(self) -> bool:
        """No symbols."""
        return not any(isinstance(x, Expr) for row in (self.digits, self.base, *self.columns) for x in row)

    @cached_property
    def numbers(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Extents, columns and base as integers (LAY010 for symbols)."""
        if not self.is_static:
            fail(
                "LAY010",
                title="the question needs numbers where the layout has symbols",
                found=str(self),
                required="integer extents, columns and offsets",
                help="substitute the symbols",
            )
        digits = tuple(e for e in self.digits if isinstance(e, int))
        columns = tuple(tuple(x for x in c if isinstance(x, int)) for c in self.columns)
        return digits, columns, tuple(x for x in self.base if isinstance(x, int))

    @property
    def size(self) -> int:
        """Number of coordinates (LAY010 for symbols)."""
        return prod(self.numbers[0])

    def axis(self, name: str) -> range:
        """Positions of one input axis's digits in ``columns`` (LAY002 when there is none of that name)."""
        start = 0
        for axis, digits in self.ins:
            if axis == name:
                return range(start, start + len(digits))
            start += len(digits)
        return _refuse(f"no axis named {name!r}", str(self.in_names), f"an axis {name!r}")

    def out(self, name: str) -> int:
        """Position of an output axis (LAY002 when there is none of that name)."""
        if name not in self.out_names:
            _refuse(f"no output named {name!r}", str(self.out_names), f"an output {name!r}")
        return self.out_names.index(name)

    # -- values ---------------------------------------------------------------------------------------------------
    def __call__(self, *coordinate: Leaf) -> tuple[Leaf, ...]:
        """The image of one coordinate per input axis (LAY002, LAY005)."""
        if len(coordinate) != len(self.ins):
            _refuse("the coordinate has the wrong rank", str(coordinate), f"{len(self.ins)} numbers")
        parts: list[Leaf] = []
        for x, (name, digits), size in zip(coordinate, self.ins, self.shape, strict=True):
            if isinstance(x, int) and isinstance(size, int) and not 0 <= x < size:
                fail(
                    "LAY005",
                    found=f"{name} = {x}",
                    required=f"0 <= {name} < {size}",
                    help="give coordinates inside the extents",
                )
            rest = x
            for e in digits[:-1]:
                parts.append(rest % e)
                rest = rest // e
            if digits:
                parts.append(rest)
        return self.at(parts)

    def at(self, digits: Sequence[Leaf]) -> tuple[Leaf, ...]:
        """The image of a value per digit."""
        total = list(self.base)
        for value, column in zip(digits, self.columns, strict=True):
            total = [t + value * c for t, c in zip(total, column, strict=True)]
        return tuple(number(t if m is None else t % m) for t, m in zip(total, self.moduli, strict=True))

    def table(self) -> Iterator[tuple[int, ...]]:
        """All images, the first digit fastest."""
        extents, columns, base = self.numbers
        images = [base]
        for e, column in zip(extents, columns, strict=True):
            images = [tuple(a + k * c for a, c in zip(x, column, strict=True)) for k in range(e) for x in images]
        for image in images:
            yield tuple(v if m is None else v % m for v, m in zip(image, self.moduli, strict=True))

    # -- derived layouts ------------------------------------------------------------------------------------------
    def canonical(self) -> AffineLayout:
        """The one form of this map among layouts with these axes: columns and offset reduced, digits of extent 1
        dropped, a digit that continues the one before joined to it.

        It is unique: the extent of the first digit is the longest run over which the map steps evenly, its column that
        step modulo m; what is left is the map on multiples of the run.
        """
        columns, kept = iter(self.columns), list[Column]()
        axes: list[tuple[str, tuple[Leaf, ...]]] = []
        for name, digits in self.ins:
            extents: list[Leaf] = []
            start = len(kept)
            for e in digits:
                column = self._reduced(next(columns))
                if isinstance(e, int) and e == 1:
                    continue
                if extents and column == self._reduced(tuple(extents[-1] * c for c in kept[-1])):
                    extents[-1] = extents[-1] * e
                else:
                    extents.append(e)
                    kept.append(column)
            assert len(kept) - start == len(extents), "one column per digit"
            axes.append((name, tuple(extents)))
        return AffineLayout(tuple(axes), self.outs, tuple(kept), self._reduced(self.base))

    def _reduced(self, column: Column) -> Column:
        return tuple(number(x if m is None else x % m) for x, m in zip(column, self.moduli, strict=True))

    def flip(self, name: str) -> AffineLayout:
        """The same elements with axis ``name`` reversed."""
        columns, base = list(self.columns), list(self.base)
        for i in self.axis(name):
            last, column = self.digits[i] - 1, columns[i]
            base = [b + last * c for b, c in zip(base, column, strict=True)]
            columns[i] = tuple(-c for c in column)
        return AffineLayout(self.ins, self.outs, tuple(columns), tuple(base))

    def slice(self, name: str, at: int) -> AffineLayout:
        """Axis ``name`` held at one coordinate and dropped (LAY005)."""
        own = self.axis(name)
        coordinate = [at if n == name else 0 for n in self.in_names]
        kept = tuple(c for i, c in enumerate(self.columns) if i not in own)
        ins = tuple(axis for axis in self.ins if axis[0] != name)
        return AffineLayout(ins, self.outs, kept, self(*coordinate))

    def window(self, name: str, start: int, size: int, step: int = 1) -> AffineLayout:
        """Coordinates ``start, start + step, ...`` (``size`` of them) of an axis of one digit (LAY005, LAY025)."""
        own = self.axis(name)
        if len(own) != 1:
            fail(
                "LAY025",
                title="a window of an axis of several digits",
                found=str(dict(self.ins)[name]),
                required="an axis whose canonical form has one digit",
                help="take the canonical form, or cut at a digit by slicing",
            )
        whole, last = self.digits[own[0]], start + (extent(size, "size") - 1) * integer(step, "step")
        if isinstance(whole, int) and not (0 <= start < whole and 0 <= last < whole):
            fail(
                "LAY005",
                found=f"{name} from {start} to {last}",
                required=f"0 <= {name} < {whole}",
                help="keep the window inside the axis",
            )
        column = self.columns[own[0]]
        columns = list(self.columns)
        columns[own[0]] = tuple(step * c for c in column)
        base = tuple(b + start * c for b, c in zip(self.base, column, strict=True))
        ins = tuple((n, (size,)) if n == name else (n, d) for n, d in self.ins)
        return AffineLayout(ins, self.outs, tuple(columns), base)

    def product(self, other: AffineLayout) -> AffineLayout:
        """Side by side into the same outputs: ``(x, y) -> self(x) + other(y)``; the digits of shared axes follow."""
        outs = dict(self.outs)
        for name, m in other.outs:
            if outs.setdefault(name, m) != m:
                _refuse(f"output {name} has two moduli", f"{outs[name]} and {m}", "one modulus")
        names = [*self.in_names, *(n for n in other.in_names if n not in self.in_names)]
        ins, columns = list[tuple[str, tuple[Leaf, ...]]](), list[Column]()
        for name in names:
            ins.append((name, dict(self.ins).get(name, ()) + dict(other.ins).get(name, ())))
            for part in (self, other):
                own = part.axis(name) if name in part.in_names else range(0)
                columns += (part.spread(part.columns[i], tuple(outs)) for i in own)
        base = (self.spread(self.base, tuple(outs)), other.spread(other.base, tuple(outs)))
        return AffineLayout(
            tuple(ins), tuple(outs.items()), tuple(columns), tuple(a + b for a, b in zip(*base, strict=True))
        )

    def spread(self, column: Column, names: Sequence[str]) -> Column:
        """A column of this layout over other outputs, 0 where it has none."""
        own = dict(zip(self.out_names, column, strict=True))
        return tuple(own.get(n, 0) for n in names)

    def __mul__(self, other: AffineLayout) -> AffineLayout:
        return self.product(other)

    def select(self, out_names: Sequence[str]) -> AffineLayout:
        """Only some outputs, in the given order (LAY002)."""
        places = [self.out(n) for n in out_names]
        return AffineLayout(
            self.ins,
            tuple(self.outs[j] for j in places),
            tuple(tuple(c[j] for j in places) for c in self.columns),
            tuple(self.base[j] for j in places),
        )

    def modulo(self, moduli: Mapping[str, int | None]) -> AffineLayout:
        """The same formula with other moduli."""
        outs = tuple((n, moduli.get(n, m)) for n, m in self.outs)
        return AffineLayout(self.ins, outs, self.columns, self.base)

    def substitute(self, values: Mapping[str, int]) -> AffineLayout:
        """Numbers for symbols."""

        def put(x: Leaf) -> Leaf:
            return x if isinstance(x, int) else number(x.substitute(values))

        return AffineLayout(
            tuple((n, tuple(map(put, d))) for n, d in self.ins),
            self.outs,
            tuple(tuple(map(put, c)) for c in self.columns),
            tuple(map(put, self.base)),
        )

    def __str__(self) -> str:
        position, parts = 0, list[str]()
        for name, digits in self.ins:
            columns = self.columns[position : position + len(digits)]
            position += len(digits)
            shown = [str(c[0]) if len(c) == 1 else f"({','.join(map(str, c))})" for c in columns]
            if len(digits) == 1:
                parts.append(f"{name}:{digits[0]}*{shown[0]}")
            else:
                parts.append(f"{name}:({','.join(map(str, digits))})*({','.join(shown)})")
        start = [f"{b}" for b in self.base]
        outs = ", ".join(n if m is None else f"{n} mod {m}" for n, m in self.outs)
        return f"[{' '.join(parts)} + ({','.join(start)})] -> ({outs})"


def number(x: Leaf) -> Leaf:
    """An expression without symbols as an int."""
    known = x.constant if isinstance(x, Expr) else None
    return x if known is None else known


def _refuse(title: str, found: str, required: str) -> range:
    return fail(
        "LAY002", title=title, found=found, required=required, help="name the axes and give one number per output"
    )
