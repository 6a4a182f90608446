"""Bugs of tracing and of the runtime's encoder, which the compiler has nothing to refuse against."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _trace(name: str, what: str, file: str, old: str, new: str, *probes: str) -> Mutant:
    return Mutant(name, Kind.TRACING, what, f"{file}.py", old, new, probes)


def _encode(name: str, what: str, old: str, new: str, *probes: str, file: str = "plan", harmless: str = "") -> Mutant:
    return Mutant(name, Kind.ENCODER, what, f"runtime/{file}.py", old, new, probes, harmless=harmless)


_TRACER, _BUILDER = "tile/tracer", "tile/builder"
_LANG = "lang/arithmetic"

TRACING = (
    _trace(
        "traced operands exchanged",
        "the operands of an op are recorded in reverse",
        _TRACER,
        "dialect.Binary(fn, self._value(a), self._value(b))",
        "dialect.Binary(fn, self._value(b), self._value(a))",
        "ints",
        "floats",
    ),
    _trace(
        "traced select exchanged",
        "the values of a select are recorded in reverse",
        _TRACER,
        "dialect.Select(self._value(cond), self._value(a), self._value(b))",
        "dialect.Select(self._value(cond), self._value(b), self._value(a))",
        "ints",
    ),
    _trace(
        "traced comparison exchanged",
        "the operands of a comparison are recorded in reverse",
        _TRACER,
        "dialect.Compare(fn, self._value(a), self._value(b))",
        "dialect.Compare(fn, self._value(b), self._value(a))",
        "ints",
    ),
    _trace(
        "halves exchanged",
        "the low half of a product takes the high half's place",
        "lang/random",
        "_low(second >> 32), words[1]",
        "_low(second), words[1]",
        "drawn",
    ),
    _trace(
        "a key that stays",
        "all rounds of a random number have one key",
        "lang/random",
        "for k, w in zip(keys, _WEYL, strict=True)",
        "for k, w in zip(keys, (0, 0), strict=True)",
        "drawn",
    ),
    _trace(
        "places in the key's low bits lost",
        "the place of an element is packed without its least bit",
        "lang/sorts",
        "low = arithmetic.binary(rec, BinaryFn.MUL, low, 2)",
        "low = arithmetic.binary(rec, BinaryFn.AND, low, -2)",
        "placed",
    ),
    _trace(
        "traced transpose lost",
        "a transposition keeps its axes",
        "lang/values",
        "return self.transpose(",
        "return self.transpose(*range(self.ndim)) if self.ndim == 2 else self.transpose(",
        "turned",
        "nt",
    ),
    _trace(
        "grid of whole tiles",
        "the last, partial tile of an axis has no program",
        _BUILDER,
        "e if b is None else ceildiv(e, b)",
        "e if b is None else e // b",
        "add",
        "nt",
    ),
    _trace(
        "stream of whole steps",
        "the last, partial step of a stream is left out",
        _BUILDER,
        "maximum(ceildiv(stop - start, step), 0)",
        "maximum((stop - start) // step, 0)",
        "streamed",
        "nt",
    ),
    _trace(
        "stream from the second step",
        "a stream's first step is its second",
        _BUILDER,
        "span = Span(start + sym(counter) * step, step, stop)",
        "span = Span(start + (sym(counter) + 1) * step, step, stop)",
        "streamed",
        "nt",
    ),
    _trace(
        "programs side by side",
        "the axes of a grid are numbered in reverse",
        _BUILDER,
        "Span(sym(program_index(i)) * block, block, extent)",
        "Span(sym(program_index(len(blocks) - 1 - i)) * block, block, extent)",
        "columns",
        "nt",
    ),
    _trace(
        "a fragment's first value",
        "a read of a fragment is its initial value",
        _TRACER,
        "return self._node(dialect.FragmentRead(self._value(cell)))",
        "return Node(self._value(cell).owner.operands[0], cell.dtype, cell.axes)",
        "nt",
        "looped",
    ),
    _trace(
        "the other axis reduced",
        "a reduction takes the first axis",
        _TRACER,
        "dialect.Reduce(fn, self._value(x), axis)",
        "dialect.Reduce(fn, self._value(x), 0)",
        "columns",
        "softmax",
    ),
    _trace(
        "numbers rounded to integers",
        "constants lose their fraction",
        _LANG,
        "_rounded(x) if dtype == f32 else float_of(x), dtype)",
        "float(round(x)) if dtype == f32 else float_of(x), dtype)",
        "looped",
    ),
    _trace(
        "indices from the tile's begin",
        "an axis' indices are those of the first tile",
        _TRACER,
        "return self._node(dialect.Index(span))",
        "return self._node(dialect.Index(Span(span.origin * 0, span.size, span.stop)))",
        "ints",
    ),
)

ENCODER = (
    _encode(
        "map's extents reversed",
        "a map is encoded with its extents outermost first",
        "for d in recipe.dims),",
        "for d in recipe.dims[::-1]),",
        "nt",
    ),
    _encode(
        "map's box reversed",
        "a map is encoded with its box outermost first",
        "            recipe.box,\n",
        "            recipe.box[::-1],\n",
        "wide",
    ),
    _encode(
        "map's strides in elements",
        "a map is encoded with strides of elements",
        'tuple(value(s, "a descriptor\'s stride", 64) for s',
        'tuple(value(s, "a descriptor\'s stride", 64) // 2 for s',
        "nt",
    ),
    _encode(
        "map nowhere",
        "every map is encoded for an address without a tensor",
        'value(recipe.address, "a descriptor\'s address", 64) or _NOWHERE,',
        "_NOWHERE,",
        "nt",
    ),
    _encode(
        "map without swizzle",
        "a map is encoded without its swizzle",
        "            recipe.swizzle,\n",
        "            type(recipe.swizzle)(0),\n",
        "nt",
    ),
    _encode("map of another element", "a map is encoded for elements of 32 bits", "int(recipe.element),", "7,", "nt"),
    _encode(
        "map filled with NaN",
        "what lies outside of a tensor arrives as NaN",
        "            recipe.oob_fill,\n",
        "            type(recipe.oob_fill)(1),\n",
        "nt",
    ),
    _encode(
        "map with interleave",
        "a map is encoded with an interleave",
        "            recipe.interleave,\n",
        "            type(recipe.interleave)(1),\n",
        "nt",
    ),
    _encode(
        "map without promotion",
        "a map is encoded without its L2 promotion",
        "            recipe.l2_promotion,\n",
        "            type(recipe.l2_promotion)(0),\n",
        "nt",
        harmless="the promotion says how much is fetched into L2 for a miss; no copied byte depends on it",
    ),
    _encode(
        "maps of the first recipe",
        "all maps are encoded from the first recipe",
        "encoded = self._encode(recipe, every)",
        "encoded = self._encode(self._recipes[0][1], every)",
        "nt",
    ),
    _encode(
        "map of the next tensor",
        "addresses are paired with the wrong tensors",
        'self._addresses = (*(f"{name}.address" for name in self._tensors),',
        'self._addresses = (*(f"{name}.address" for name in self._tensors[::-1]),',
        "nt",
    ),
    _encode(
        "workspaces on one another",
        "all workspaces lie at the begin of their block",
        "offsets.append(total)",
        "offsets.append(0)",
        "staged",
    ),
    _encode(
        "maps in the wrong slots",
        "a descriptor is written behind its slot",
        "start = self._base + slot * _MAP_BYTES",
        "start = self._base + slot * _MAP_BYTES + 64",
        "nt",
        file="frame",
    ),
    _encode(
        "API: element and rank",
        "the driver is given the rank of the box's rows",
        "            rank,\n",
        "            rank - 1,\n",
        "nt",
        file="driver",
    ),
    _encode(
        "API: box for strides",
        "the driver is given the steps of elements for the box",
        "[cuda.cuuint32_t(n) for n in fields.box],",
        "[cuda.cuuint32_t(n) for n in fields.element_strides],",
        "nt",
        file="driver",
    ),
    _encode(
        "API: swizzle for interleave",
        "the driver is given the swizzle where it expects the interleave",
        "cuda.CUtensorMapInterleave(int(fields.interleave)),",
        "cuda.CUtensorMapInterleave(int(fields.swizzle)),",
        "nt",
        file="driver",
    ),
    _encode(
        "API: extents for strides",
        "the driver is given the extents where it expects the strides",
        "[cuda.cuuint64_t(n) for n in strides_bytes],",
        "[cuda.cuuint64_t(n) for n in fields.dims[1:]],",
        "nt",
        file="driver",
    ),
)
