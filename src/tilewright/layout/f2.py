"""Layouts that are linear over F2: every output bit is the xor of input bits.

A layout maps named input axes (``register``, ``lane``, ``warp``, ``offset``...) of 2^n coordinates to named output axes
(``dim0``, ``dim1``, ``offset``...). It is stored as one machine word per input bit, the image of that bit; the output
axes lie in the word one after the other, the first in the lowest bits. An axis's coordinate is read low bit first, so
flattening axes is renaming, and the first axis is the fastest.

Definitions follow the linear layouts of "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using
F2" (Zhou et al., 2025); the heuristics of ``invert_and_compose`` (identity where both sides agree, otherwise free
variables zero) are the published ones, so that broadcast data is read from its first copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.diag import fail
from tilewright.layout import axes, gf2_vectors
from tilewright.layout.axes import Axes
from tilewright.layout.checks import log2_size


@dataclass(frozen=True)
class F2Layout:
    """A linear map of bits. ``ins`` and ``outs`` are (name, bits); ``columns[i]`` packs the image of input bit i."""

    ins: Axes
    outs: Axes
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != sum(b for _, b in self.ins):
            fail(
                "LAY002",
                title="an F2 layout needs one basis per input bit",
                found=f"{len(self.columns)} bases",
                required=f"{sum(b for _, b in self.ins)} for {axes.describe(self.ins)}",
                help="give every input axis as many bases as it has bits",
            )
        limit = 1 << self.out_bits
        for column in self.columns:
            if not 0 <= column < limit:
                fail(
                    "LAY002",
                    title="a basis does not fit into the output axes",
                    found=f"packed basis {column}",
                    required=f"0 <= basis < {limit} for {axes.describe(self.outs)}",
                    help="widen the output axis or drop the basis",
                )
        for side in (self.ins, self.outs):
            if len({n for n, _ in side}) != len(side):
                fail(
                    "LAY002",
                    title="an axis name occurs twice",
                    found=axes.describe(side),
                    required="distinct names",
                    help="rename one of the axes",
                )

    # -- construction ---------------------------------------------------------------------------------------------
    @staticmethod
    def of(
        bases: Mapping[str, Sequence[Sequence[int]]],
        outs: Mapping[str, int],
    ) -> F2Layout:
        """From bases: for each input axis the images of its bits, a coordinate per output axis; ``outs`` are sizes."""
        out_axes = tuple((n, log2_size(s, f"size of {n}")) for n, s in outs.items())
        shifts = axes.shifts(out_axes)
        ins: list[tuple[str, int]] = []
        columns: list[int] = []
        for name, images in bases.items():
            ins.append((name, len(images)))
            for image in images:
                if len(image) != len(out_axes):
                    fail(
                        "LAY002",
                        title="a basis has the wrong rank",
                        found=f"{list(image)} for {name}",
                        required=f"{len(out_axes)} coordinates, one each for {axes.describe(out_axes)}",
                        help="give one coordinate per output axis",
                    )
                columns.append(
                    sum(axes.coordinate(x, axis) << s for x, axis, s in zip(image, out_axes, shifts, strict=True))
                )
        return F2Layout(tuple(ins), out_axes, tuple(columns))

    @staticmethod
    def empty() -> F2Layout:
        """The layout of one element: no axes; the neutral element of the product."""
        return F2Layout((), (), ())

    @staticmethod
    def identity(size: int, in_name: str, out_name: str) -> F2Layout:
        """``out = in`` over ``size`` (a power of two) coordinates."""
        return F2Layout.strided(size, 1, in_name, out_name)

    @staticmethod
    def strided(size: int, stride: int, in_name: str, out_name: str) -> F2Layout:
        """``out = stride * in``; both powers of two; the output axis has ``size * stride`` coordinates."""
        n, shift = log2_size(size, f"size of {in_name}"), log2_size(stride, "stride")
        return F2Layout(((in_name, n),), ((out_name, n + shift),), tuple(1 << (i + shift) for i in range(n)))

    @staticmethod
    def zeros(size: int, in_name: str, out_name: str, out_size: int = 1) -> F2Layout:
        """Every coordinate of the input axis maps to 0: broadcasting."""
        n = log2_size(size, f"size of {in_name}")
        return F2Layout(((in_name, n),), ((out_name, log2_size(out_size, f"size of {out_name}")),), (0,) * n)

    # -- shape ----------------------------------------------------------------------------------------------------
    @property
    def in_bits(self) -> int:
        """Number of input bits over all axes."""
        return len(self.columns)

    @property
    def out_bits(self) -> int:
        """Number of output bits over all axes."""
        return sum(b for _, b in self.outs)

    @property
    def in_names(self) -> tuple[str, ...]:
        """Input axis names in order."""
        return tuple(n for n, _ in self.ins)

    @property
    def out_names(self) -> tuple[str, ...]:
        """Output axis names in order."""
        return tuple(n for n, _ in self.outs)

    def in_axis_bits(self, name: str) -> int:
        """Bits of one input axis (LAY002 when there is none of that name)."""
        return axes.find(self.ins, name)[1]

    def out_axis_bits(self, name: str) -> int:
        """Bits of one output axis (LAY002 when there is none of that name)."""
        return axes.find(self.outs, name)[1]

    def in_size(self, name: str) -> int:
        """Coordinates of one input axis; 1 when there is no such axis."""
        return 1 << dict(self.ins).get(name, 0)

    def out_size(self, name: str) -> int:
        """Coordinates of one output axis; 1 when there is no such axis."""
        return 1 << dict(self.outs).get(name, 0)

    def axis_columns(self, name: str) -> tuple[int, ...]:
        """Packed columns of one input axis; none when there is no such axis."""
        start = 0
        for axis, n in self.ins:
            if axis == name:
                return self.columns[start : start + n]
            start += n
        return ()

    def unpack(self, word: int) -> tuple[int, ...]:
        """A packed output word as one coordinate per output axis."""
        coordinates: list[int] = []
        for _, n in self.outs:
            coordinates.append(word & ((1 << n) - 1))
            word >>= n
        return tuple(coordinates)

    @property
    def bases(self) -> tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]:
        """The same data unpacked: for each input axis the images of its bits."""
        return tuple((n, tuple(map(self.unpack, self.axis_columns(n)))) for n, _ in self.ins)

    # -- application and composition ------------------------------------------------------------------------------
    def __call__(self, word: int) -> int:
        """The packed image of a packed input (first axis lowest)."""
        return gf2_vectors.apply(self.columns, word)

    def apply(self, **coordinates: int) -> dict[str, int]:
        """The image of one coordinate per input axis, as a coordinate per output axis."""
        if set(coordinates) != set(self.in_names):
            axes.mismatch("apply", tuple(coordinates), self.in_names)
        word = 0
        for axis, shift in zip(self.ins, axes.shifts(self.ins), strict=True):
            word |= axes.coordinate(coordinates[axis[0]], axis) << shift
        return dict(zip(self.out_names, self.unpack(self(word)), strict=True))

    def compose(self, outer: F2Layout) -> F2Layout:
        """``x -> outer(self(x))``. The output axes of ``self`` are the input axes of ``outer``, none of them larger."""
        if set(self.out_names) != set(outer.in_names):
            axes.mismatch("compose", self.out_names, outer.in_names)
        gathered: list[int] = []
        for name, n in self.outs:
            columns = outer.axis_columns(name)
            if n > len(columns):
                fail(
                    "LAY002",
                    title=f"axis {name} of the inner layout is larger than the outer layout's",
                    found=f"{1 << n} coordinates",
                    required=f"at most {1 << len(columns)}",
                    help="compose with an outer layout that covers the whole axis",
                )
            gathered += columns[:n]
        return F2Layout(self.ins, outer.outs, gf2_vectors.multiply(gathered, self.columns))

    def product(self, other: F2Layout) -> F2Layout:
        """``self`` on the low bits of shared axes, ``other`` on the bits above; new axes are appended.

        The direct sum of the maps: ``(self * other)(x, y) = self(x) + (other(y) shifted past self's outputs)``.
        """
        ins, outs = axes.joined(self.ins, other.ins), axes.joined(self.outs, other.outs)
        shifts = dict(zip((n for n, _ in outs), axes.shifts(outs), strict=True))
        low = [(n, b, shifts[n]) for n, b in self.outs]
        mine = dict(self.outs)
        high = [(n, b, shifts[n] + mine.get(n, 0)) for n, b in other.outs]
        columns: list[int] = []
        for name, _ in ins:
            columns += (axes.place(c, low) for c in self.axis_columns(name))
            columns += (axes.place(c, high) for c in other.axis_columns(name))
        return F2Layout(ins, outs, tuple(columns))

    def __mul__(self, other: F2Layout) -> F2Layout:
        return self.product(other)

    def quotient(self, names: Iterable[str]) -> F2Layout | None:
        """The layout without axes that it maps identically to themselves; None if one of them is not trivial."""
        wanted = set(names)
        if not all(self.is_trivial_over(name) for name in wanted):
            return None
        rest_in = [n for n in self.in_names if n not in wanted]
        return self.sublayout(rest_in, [n for n in self.out_names if n not in wanted])

    def is_trivial_over(self, name: str) -> bool:
        """Whether axis ``name`` maps identically onto the output axis of that name, and nothing else does."""
        mine, n = dict(self.ins).get(name), dict(self.outs).get(name)
        if mine is None or mine != n:
            return False
        shift = dict(zip(self.out_names, axes.shifts(self.outs), strict=True))[name]
        own = self.axis_columns(name)
        if own != tuple(1 << (shift + i) for i in range(mine)):
            return False
        mask = ((1 << mine) - 1) << shift
        return all(not c & mask for axis in self.in_names if axis != name for c in self.axis_columns(axis))

    # -- axes -----------------------------------------------------------------------------------------------------
    def transpose_ins(self, names: Sequence[str]) -> F2Layout:
        """The same map with its input axes in another order."""
        if sorted(names) != sorted(self.in_names):
            axes.mismatch("transpose_ins", tuple(names), self.in_names)
        sizes = dict(self.ins)
        return F2Layout(
            tuple((n, sizes[n]) for n in names), self.outs, tuple(c for n in names for c in self.axis_columns(n))
        )

    def transpose_outs(self, names: Sequence[str]) -> F2Layout:
        """The same map with its output axes in another order."""
        if sorted(names) != sorted(self.out_names):
            axes.mismatch("transpose_outs", tuple(names), self.out_names)
        return self if tuple(names) == self.out_names else self.sublayout(self.in_names, names)

    def sublayout(self, in_names: Iterable[str], out_names: Iterable[str]) -> F2Layout:
        """Restricted to some input axes (the others held at 0) and projected on some output axes, in the given orders
        for outputs and in the layout's own order for inputs."""
        wanted = set(in_names)
        shifts = dict(zip(self.out_names, axes.shifts(self.outs), strict=True))
        outs = tuple(axes.find(self.outs, n) for n in out_names)
        fields = [(b, shifts[n]) for n, b in outs]
        for name in wanted:
            axes.find(self.ins, name)
        ins = tuple(axis for axis in self.ins if axis[0] in wanted)
        return F2Layout(ins, outs, tuple(axes.extract(c, fields) for n, _ in ins for c in self.axis_columns(n)))

    def flatten_ins(self) -> F2Layout:
        """All input axes as one, under the first one's name."""
        return F2Layout(((self.ins[0][0], self.in_bits),) if self.ins else (), self.outs, self.columns)

    def flatten_outs(self) -> F2Layout:
        """All output axes as one, under the first one's name."""
        return F2Layout(self.ins, ((self.outs[0][0], self.out_bits),) if self.outs else (), self.columns)

    # -- linear algebra -------------------------------------------------------------------------------------------
    @property
    def rank(self) -> int:
        """Dimension of the image."""
        return gf2_vectors.rank(self.columns)

    @property
    def kernel(self) -> tuple[int, ...]:
        """A basis of the packed inputs that map to 0."""
        return tuple(gf2_vectors.eliminate(self.columns).kernel)

    @property
    def is_injective(self) -> bool:
        """No two inputs share an image."""
        return self.rank == self.in_bits

    @property
    def is_surjective(self) -> bool:
        """Every output is reached."""
        return self.rank == self.out_bits

    @property
    def is_bijective(self) -> bool:
        """Invertible."""
        return self.in_bits == self.out_bits == self.rank

    def free_variable_masks(self) -> dict[str, int]:
        """Per input axis the bits whose column depends on the columns before it: broadcasting.

        Inputs with all free bits 0 reach every image exactly once.
        """
        free = ~gf2_vectors.eliminate(self.columns).pivots
        masks: dict[str, int] = {}
        for (name, n), shift in zip(self.ins, axes.shifts(self.ins), strict=True):
            masks[name] = (free >> shift) & ((1 << n) - 1)
        return masks

    def invert(self) -> F2Layout:
        """The inverse map (LAY008 unless bijective)."""
        if not self.is_bijective:
            fail(
                "LAY008",
                title="the F2 layout is not bijective",
                found=f"{self.in_bits} input bits, {self.out_bits} output bits, rank {self.rank}",
                required="all three equal",
                help="use pseudo_invert, which reads broadcast data from its first copy",
            )
        return self.pseudo_invert()

    def pseudo_invert(self) -> F2Layout:
        """The ``p`` with ``self(p(y)) == y`` for every y and free variables 0 (LAY008 unless surjective)."""
        identity = F2Layout(self.outs, self.outs, tuple(1 << i for i in range(self.out_bits)))
        return identity.invert_and_compose(self)

    def invert_and_compose(self, outer: F2Layout) -> F2Layout:
        """The ``x`` with ``self(a) == outer(x(a))``: where ``outer`` keeps what ``self`` names.

        An input axis that both layouts map alike is carried over unchanged, so that equal broadcasts need no movement;
        the other axes get the solution whose free variables are 0. LAY008 when ``outer`` does not reach an image of
        ``self``.
        """
        if set(self.out_names) != set(outer.out_names):
            axes.mismatch("invert_and_compose", self.out_names, outer.out_names)
        for name, n in self.outs:
            if n > outer.out_axis_bits(name):
                fail(
                    "LAY002",
                    title=f"axis {name} is larger than in the layout to invert",
                    found=f"{1 << n} coordinates",
                    required=f"at most {outer.out_size(name)}",
                    help="extend the layout to invert over the whole axis",
                )
        outs = outer.outs
        mine = self if self.outs == outs else widened(self, outs)
        same = {n for n, _ in outer.ins if n in mine.in_names and mine.axis_columns(n) == outer.axis_columns(n)}
        kept = [n for n, _ in mine.ins if n not in same]
        rest = [n for n, _ in outer.ins if n not in same]
        solved = gf2_vectors.solve(
            [c for n in rest for c in outer.axis_columns(n)], [c for n in kept for c in mine.axis_columns(n)]
        )
        if isinstance(solved, int):
            fail(
                "LAY008",
                title="the layout to invert does not reach a coordinate",
                found=f"no input maps to {dict(zip(outer.out_names, outer.unpack(solved), strict=True))}",
                required="the image of the inverted layout covers the other's",
                help="invert a layout that covers the whole tile",
            )
        answer = F2Layout(
            tuple((n, mine.in_axis_bits(n)) for n in kept), tuple((n, outer.in_axis_bits(n)) for n in rest), solved
        )
        for name in (n for n, _ in outer.ins if n in same):
            answer = answer * F2Layout.identity(outer.in_size(name), name, name)
        return answer.transpose_ins(mine.in_names).transpose_outs(outer.in_names)

    def rename(self, ins: Mapping[str, str] | None = None, outs: Mapping[str, str] | None = None) -> F2Layout:
        """The same map under other axis names."""
        into, out_of = ins or {}, outs or {}
        return F2Layout(
            tuple((into.get(n, n), b) for n, b in self.ins),
            tuple((out_of.get(n, n), b) for n, b in self.outs),
            self.columns,
        )

    def __str__(self) -> str:
        body = ", ".join(f"{n}={[list(image) for image in images]}" for n, images in self.bases)
        return f"{{{body}}} -> ({', '.join(f'{n}:{1 << b}' for n, b in self.outs)})"


def widened(layout: F2Layout, outs: Axes) -> F2Layout:
    """``layout`` into output axes at least as large, in another order."""
    shifts = dict(zip((n for n, _ in outs), axes.shifts(outs), strict=True))
    fields = [(n, b, shifts[n]) for n, b in layout.outs]
    return F2Layout(layout.ins, outs, tuple(axes.place(c, fields) for c in layout.columns))
