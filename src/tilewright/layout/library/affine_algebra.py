"""Composition and inverses of affine layouts: exact, or refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn

from tilewright.base.expr import Expr
from tilewright.diag import TilewrightError, fail
from tilewright.layout.int_tuple import Leaf
from tilewright.layout.library.affine import AffineLayout, Column
from tilewright.layout.library.affine_queries import is_injective, is_surjective, lift, preimage

# -- composition ----------------------------------------------------------------------------------------------------


def compose(inner: AffineLayout, outer: AffineLayout) -> AffineLayout:
    """``x -> outer(inner(x))``; the outputs of ``inner`` are the input axes of ``outer``.

    LAY005 where a value leaves the outer axis. LAY025 where a modulus of ``inner`` wraps that ``outer`` does not take
    as 0, or where a step of ``inner`` would carry from one digit of ``outer`` into the next.
    """
    if set(inner.out_names) != set(outer.in_names):
        fail(
            "LAY002",
            title="axis names do not match in compose",
            found=", ".join(inner.out_names),
            required=", ".join(outer.in_names),
            help="rename the axes of one layout",
        )
    outer = outer.canonical()
    work = _Composition(inner, outer)
    for name in outer.in_names:
        work.through(name)
    return work.result()


@dataclass
class _Composition:
    """Digits of ``inner``, possibly split, and what they add to ``outer``'s result."""

    inner: AffineLayout
    outer: AffineLayout
    base: list[Leaf] = field(default_factory=list[Leaf])
    pieces: list[list[tuple[Leaf, list[Leaf]]]] = field(default_factory=list[list[tuple[Leaf, list[Leaf]]]])
    true: AffineLayout | None = None
    wraps: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        self.base = list(self.outer.base)
        zero: Sequence[Leaf] = [0] * len(self.outer.outs)
        self.pieces = [[(e, list(zero))] for e in self.inner.digits]
        if self.inner.is_static:
            lifted = lift(self.inner)
            self.true = AffineLayout(
                self.inner.ins, tuple((n, None) for n in self.inner.out_names), lifted.columns, lifted.base
            )
            self.wraps = lifted.wraps
            self._check_domain(lifted.low, lifted.high)

    def _check_domain(self, low: Sequence[int], high: Sequence[int]) -> None:
        for name, size in zip(self.outer.in_names, self.outer.shape, strict=True):
            j = self.inner.out(name)
            m = self.inner.moduli[j]
            a, b = (0, m - 1) if self.wraps[j] and m else (low[j], high[j])
            if not isinstance(size, int):
                continue
            if self.wraps[j]:
                alone = self.inner.select((name,))
                b = next((v for v in range(size, b + 1) if preimage(alone, v) is not None), min(b, size - 1))
            if not 0 <= a <= b < size:
                fail(
                    "LAY005",
                    title=f"values leave the outer layout's axis {name}",
                    found=f"{name} from {a} to {b}",
                    required=f"0 <= {name} < {size}",
                    help="compose with an outer layout over all values",
                )

    def through(self, name: str) -> None:
        """Add what output ``name`` of ``inner`` contributes."""
        j, own = self.inner.out(name), self.outer.axis(name)
        m = self.inner.moduli[j]
        source = self.inner if self.true is None else self.true
        if len(own) <= 1:
            column: Column = self.outer.columns[own[0]] if own else (0,) * len(self.outer.outs)
            wraps = self.wraps[j] if self.true is not None else m is not None
            if wraps and m is not None and not _absorbed(column, m, self.outer.moduli):
                _carries(f"{name} wraps modulo {m}, and {m} steps of {column} are not 0")
            self._linear(j, source, column)
            return
        if self.true is None or self.wraps[j]:
            _carries(f"{name} falls on {len(own)} digits and wraps, or has symbols")
        self._digits(j, self.true, [(self.outer.digits[i], self.outer.columns[i]) for i in own])

    def _linear(self, j: int, source: AffineLayout, column: Column) -> None:
        self._add(self.base, source.base[j], column)
        for parts, c in zip(self.pieces, source.columns, strict=True):
            step: Leaf = c[j]
            for e, total in parts:
                self._add(total, step, column)
                step = step * e

    def _digits(self, j: int, source: AffineLayout, digits: list[tuple[Leaf, Column]]) -> None:
        """Each step of ``inner`` moves one digit of ``outer``, and the digits never carry."""
        extents = [e for e, _ in digits if isinstance(e, int)]
        if len(extents) != len(digits):
            _carries("digits of the outer layout are symbols")
        offset = source.numbers[2][j]
        steps = [c[j] for c in source.numbers[1]]
        offset += sum(c * (e - 1) for c, e in zip(steps, source.numbers[0], strict=True) if c < 0)
        filled: list[int] = []
        for e, (_, column) in zip(extents, digits, strict=True):
            offset, low = divmod(offset, e) if len(filled) < len(extents) - 1 else (0, offset)
            filled.append(low)
            self._add(self.base, low, column)
        for parts, step in zip(self.pieces, steps, strict=True):
            if step:
                self._move(parts, step, extents, [c for _, c in digits], filled)
        for d, (most, e) in enumerate(zip(filled, extents, strict=True)):
            if most >= e:
                _carries(f"digit {d} of extent {e} would reach {most}")

    def _move(
        self,
        parts: list[tuple[Leaf, list[Leaf]]],
        step: int,
        extents: Sequence[int],
        columns: Sequence[Column],
        filled: list[int],
    ) -> None:
        size, index = abs(step), 0
        while index < len(parts):
            e, total = parts[index]
            assert isinstance(e, int), "checked static"
            place, d = 1, 0
            while d < len(extents) - 1 and size >= place * extents[d]:
                place *= extents[d]
                d += 1
            if size % place:
                _carries(f"a step of {size} is no multiple of a digit's place {place}")
            unit = size // place
            room = extents[d] // unit if d < len(extents) - 1 else e
            if room < e:
                if extents[d] % unit or e % room:
                    _carries(f"{e} steps of {size} cross a digit of extent {extents[d]}")
                parts[index : index + 1] = [(room, total), (e // room, list(_scaled(total, room)))]
                e = room
            filled[d] += unit * (e - 1)
            # a falling digit was counted from its other end: start at the top, step back
            signed = unit if step > 0 else -unit
            self._add(total, signed, columns[d])
            if step < 0:
                self._add(self.base, unit * (e - 1), columns[d])
            size, index = size * e, index + 1

    def _add(self, total: list[Leaf], times: Leaf, column: Column) -> None:
        for i, c in enumerate(column):
            total[i] = total[i] + times * c

    def result(self) -> AffineLayout:
        ins: list[tuple[str, tuple[Leaf, ...]]] = []
        columns: list[Column] = []
        for name, _ in self.inner.ins:
            mine = [piece for i in self.inner.axis(name) for piece in self.pieces[i]]
            ins.append((name, tuple(e for e, _ in mine)))
            columns += (tuple(total) for _, total in mine)
        return AffineLayout(tuple(ins), self.outer.outs, tuple(columns), tuple(self.base)).canonical()


def _scaled(total: Sequence[Leaf], times: int) -> list[Leaf]:
    return [x * times for x in total]


def _absorbed(column: Column, m: int, moduli: Sequence[int | None]) -> bool:
    """``m`` steps of ``column`` are 0 in every output."""
    return all(
        not isinstance(c, Expr) and (c * m % n == 0 if n is not None else c == 0)
        for c, n in zip(column, moduli, strict=True)
    )


def _carries(found: str) -> NoReturn:
    fail(
        "LAY025",
        found=found,
        required="whole steps inside one digit, and moduli that the outer layout takes as 0",
        help="split the digits where the outer layout's end, or keep the modulus in the outer layout",
    )


# -- inverses -------------------------------------------------------------------------------------------------------


def invert(layout: AffineLayout) -> AffineLayout:
    """The inverse of a bijection (LAY008 with the reason otherwise)."""
    if not is_injective(layout):
        _no_inverse(f"{layout}: two coordinates share an image", "one coordinate per value")
    return right_inverse(layout)


def right_inverse(layout: AffineLayout) -> AffineLayout:
    """An affine layout r with ``layout(r(y)) == y`` for every y; its input axes are the layout's outputs.

    LAY008 when a value is not reached (integer outputs count from 0 to their largest), or when no affine layout is
    found. A bijection whose inverse is linear over cyclic axes, or has fixed steps per digit over the integers, is
    always inverted; one that needs both at once, or a choice among several preimages, may be refused. ``preimage``
    answers for single values in all cases.
    """
    whole = _onto(layout)
    if not is_surjective(whole):
        _no_inverse(f"{layout}: some values are not reached", f"all of {_sizes(whole)}")
    pruned = _pruned(whole)
    found = _cyclic_inverse(pruned) or _digit_inverse(pruned)
    identity = AffineLayout.of(
        {n: m or 1 for n, m in whole.outs},
        dict(whole.outs),
        {n: [tuple(int(i == j) for j in range(len(whole.outs)))] for i, n in enumerate(whole.out_names)},
    )
    try:
        if found is not None and compose(found, whole).canonical() == identity.canonical():
            return found
    except TilewrightError as problem:
        _no_inverse(f"{layout}: {problem.diagnostics[0].found}", "an affine inverse")
    _no_inverse(f"{layout}: its inverse has no fixed steps", "an affine inverse")


def _onto(layout: AffineLayout) -> AffineLayout:
    """Integer outputs as modular ones over 0 .. largest."""
    lifted = lift(layout)
    moduli: dict[str, int | None] = {}
    for name, m, low, high in zip(layout.out_names, layout.moduli, lifted.low, lifted.high, strict=True):
        if m is None and low != 0:
            _no_inverse(f"{name} starts at {low}", "values from 0")
        moduli[name] = high + 1 if m is None else m
    return layout.modulo(moduli)


def _pruned(layout: AffineLayout) -> AffineLayout:
    """Digits that are not needed to reach every value, held at 0."""
    for i in reversed(range(len(layout.digits))):
        columns = list(layout.columns)
        columns[i] = (0,) * len(layout.outs)
        held = AffineLayout(layout.ins, layout.outs, tuple(columns), layout.base)
        if is_surjective(held):
            layout = held
    return layout


def _cyclic_inverse(layout: AffineLayout) -> AffineLayout | None:
    """If every axis is one digit that returns to its start after its extent, preimages of the unit values generate."""
    form = layout.canonical()
    extents, columns, _ = form.numbers
    if any(len(d) > 1 for _, d in form.ins):
        return None
    for e, column in zip(extents, columns, strict=True):
        if not _absorbed(column, e, form.moduli):
            return None
    ranks = len(form.outs)
    start = preimage(form, *(0,) * ranks)
    units = [preimage(form, *(int(i == j and (m or 0) > 1) for i, m in enumerate(form.moduli))) for j in range(ranks)]
    if start is None or None in units:
        return None
    size = [prod(e for e in d if isinstance(e, int)) for _, d in form.ins]
    steps = [tuple(a - b for a, b in zip(u or (), start, strict=True)) for u in units]
    outs = tuple((n, s) for n, s in zip(form.in_names, size, strict=True))
    ins = tuple((n, (m or 1,)) for n, m in form.outs)
    return AffineLayout(ins, outs, tuple(steps), start)


def _digit_inverse(layout: AffineLayout) -> AffineLayout | None:
    """The preimages along each output, read as mixed-radix digits with fixed steps."""
    ranks = len(layout.outs)
    start = preimage(layout, *(0,) * ranks)
    if start is None:
        return None
    ins: list[tuple[str, tuple[Leaf, ...]]] = []
    columns: list[Column] = []
    for j, (name, m) in enumerate(layout.outs):
        place, digits = 1, list[int]()
        while place < (m or 1):
            step = _difference(layout, j, place, start)
            run = 2
            while run * place < (m or 1) and _difference(layout, j, run * place, start) == tuple(run * s for s in step):
                run += 1
            left = (m or 1) // place
            while left % run:
                run -= 1
            if run == 1:
                return None
            digits.append(run)
            columns.append(step)
            place *= run
        ins.append((name, tuple(digits)))
    return AffineLayout(tuple(ins), tuple((n, None) for n in layout.in_names), tuple(columns), start)


def _difference(layout: AffineLayout, j: int, value: int, start: Sequence[int]) -> tuple[int, ...]:
    found = preimage(layout, *(value if i == j else 0 for i in range(len(layout.outs))))
    assert found is not None, "the layout is surjective"
    return tuple(a - b for a, b in zip(found, start, strict=True))


def _sizes(layout: AffineLayout) -> str:
    return ", ".join(f"0 <= {n} < {m}" for n, m in layout.outs)


def _no_inverse(found: str, required: str) -> NoReturn:
    fail(
        "LAY008",
        title="the affine layout has no such inverse",
        found=found,
        required=required,
        help="invert its image, or pad the layout until it is a bijection",
    )


# -- stacking -------------------------------------------------------------------------------------------------------


def stack(low: AffineLayout, high: AffineLayout) -> AffineLayout:
    """``low`` on the low values of shared outputs, ``high`` above: ``low(x) + m * high(y)`` with m the modulus of
    ``low``. Shared axes append their digits. LAY025 when a shared output of ``low`` has no modulus."""
    moduli, outs = dict(low.outs), dict(low.outs)
    for name, m in high.outs:
        below = moduli.get(name, 1)
        if below is None:
            fail(
                "LAY025",
                title="nothing lies above an integer",
                found=f"{name} over Z",
                required=f"a modulus for {name}",
                help="stack layouts whose axes continue one another",
            )
        outs[name] = None if m is None else below * m
    scale = [moduli.get(name) or 1 for name in high.out_names]
    above = AffineLayout(
        high.ins,
        tuple((n, outs[n]) for n in high.out_names),
        tuple(tuple(c * s for c, s in zip(column, scale, strict=True)) for column in high.columns),
        tuple(b * s for b, s in zip(high.base, scale, strict=True)),
    )
    # an output of ``low`` below others must not wrap into them: its values are reduced by its own modulus
    if any(w and outs[n] != low.moduli[j] for j, (n, w) in enumerate(zip(low.out_names, lift(low).wraps, strict=True))):
        _carries(f"{low} wraps below {high}")
    exact = lift(low)
    return AffineLayout(low.ins, tuple((n, outs[n]) for n in low.out_names), exact.columns, exact.base) * above


def divide(layout: AffineLayout, low: AffineLayout) -> AffineLayout | None:
    """The ``high`` with ``stack(low, high)`` equal to ``layout``; None when there is none."""
    ins: list[tuple[str, tuple[Leaf, ...]]] = []
    columns: list[Column] = []
    taken = {n: len(d) for n, d in low.ins}
    below = {n: m or 1 for n, m in low.outs}
    scale = [below.get(n, 1) for n in layout.out_names]
    if any(m is None or m % s for m, s in zip(layout.moduli, scale, strict=True)):
        return None
    for name, digits in layout.ins:
        own = layout.axis(name)[taken.get(name, 0) :]
        if any(isinstance(c, int) and c % s for i in own for c, s in zip(layout.columns[i], scale, strict=True)):
            return None
        ins.append((name, digits[taken.get(name, 0) :]))
        columns += (tuple(c // s for c, s in zip(layout.columns[i], scale, strict=True)) for i in own)
    outs = tuple((n, (m or 1) // s) for (n, m), s in zip(layout.outs, scale, strict=True))
    high = AffineLayout(tuple(ins), outs, tuple(columns), (0,) * len(outs))
    try:
        whole = stack(low, high)
    except TilewrightError:
        return None
    if set(whole.in_names) != set(layout.in_names) or set(whole.out_names) != set(layout.out_names):
        return None
    same = whole.select(layout.out_names)
    order = [i for n in layout.in_names for i in same.axis(n)]
    sorted_axes = tuple((n, dict(same.ins)[n]) for n in layout.in_names)
    same = AffineLayout(sorted_axes, same.outs, tuple(same.columns[i] for i in order), same.base)
    return high if same.canonical() == layout.canonical() else None
