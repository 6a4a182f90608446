"""Bodies of random kernels: element-wise, rows in one tile, streams with state, matrix products, atomic sums."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from random_programs import tree as t
from random_programs.draw import AUTO_TILE, Drawing

MOST_ELEMENTS = 30_000
MOST_PROGRAMS = 400


def grid(d: Drawing, rank: int, most_tile: int = 1024) -> list[str]:
    """Ranges of a grid, not too many programs, in tiles that are not too large."""
    found: list[str] = []
    elements = tile = programs = 1
    shared = ""
    for i in range(rank):
        dim = d.dim("small" if elements > 2000 or i > 1 else "")
        if shared and d.chance(0.1):
            del d.extents[dim]
            d.static.discard(dim)
            dim = shared
        shared = dim
        extent = d.extents[dim]
        scalar = d.chance(0.2) and extent * programs <= 40 and (rank > 1 or d.chance(0.3))
        name = d.range("grid", dim, None, False) if scalar else d.range("grid", dim)
        r = d.ranges[name]
        width = 1 if r.block is None else AUTO_TILE if r.auto else r.block
        if not r.auto and r.block is not None and programs * -(-max(extent, 1) // r.block) > MOST_PROGRAMS:
            d.ranges[name] = t.Range(name, dim, "grid", 64, False)
            width = 64
        if tile * width > most_tile:
            d.ranges[name] = t.Range(name, dim, "grid", 2, False)
            width = 2
        elements, tile = elements * max(extent, 1), tile * width
        programs *= -(-max(extent, 1) // (d.ranges[name].block or 1))
        found.append(name)
    d.scope += found
    return found


def place(d: Drawing, name: str) -> str | t.Exact:
    """A range as a coordinate."""
    return t.Place(name, "index") if d.ranges[name].block is None else name


def tiled(d: Drawing, names: list[str]) -> tuple[str, ...]:
    """The ranges that are axes of tiles."""
    return tuple(n for n in names if d.ranges[n].block is not None)


def output(
    d: Drawing, names: list[str], use: str = "out", dtype: str = ""
) -> tuple[str, tuple[str | t.Exact, ...], tuple[str, ...]]:
    """A tensor over ranges in some order, its coordinates, and the axes of what is stored there."""
    order = list(names)
    if d.chance(0.25):
        d.rng.shuffle(order)
    dims: list[str | int] = [d.ranges[n].dim for n in order]
    coords = [place(d, n) for n in order]
    if use == "out" and len(order) < 4 and d.chance(0.05):
        at = d.rng.randint(0, len(order))
        dims.insert(at, 2)
        coords.insert(at, t.Number(d.rng.randrange(2)))
    name = d.tensor(dtype or d.any_dtype(), tuple(dims), use)
    return name, tuple(coords), tiled(d, order)


def stores(d: Drawing, names: list[str], count: int, depth: int, must: list[t.Name] | None = None) -> list[t.Statement]:
    """Outputs over ranges; each takes the next of ``must`` in."""
    found: list[t.Statement] = []
    for n in range(count):
        name, coords, axes = output(d, names)
        dtype = d.tensors[name].dtype if d.chance(0.6) else d.any_dtype()
        value = d.full(dtype, axes, depth)
        if must and n < len(must):
            value = with_name(d, must[n], value, axes)
        if d.chance(0.04):
            value = d.part(dtype, axes, depth)  # broadcast by the store
        found.append(t.Store(name, coords, value))
    return found


def with_name(d: Drawing, name: t.Name, value: t.Expression, axes: tuple[str, ...]) -> t.Expression:
    """A value that depends on a name whose axes are among the axes."""
    kept = [a for a in axes if a in name.axes]
    own: t.Expression = name
    if tuple(kept) != name.axes:
        own = t.transpose(own, tuple(name.axes.index(a) for a in kept))
    own = t.expand(own, tuple(i for i, a in enumerate(axes) if a not in kept))
    if d.chance(0.4) and own.axes == axes:
        return own
    dtype = name.dtype if name.dtype in ("f32", "i32", "i64") else "f32"
    if value.dtype == "bool" or value.dtype in t.STORED_FLOATS:
        value = t.cast(value, dtype)
    if own.dtype == "bool" or own.dtype in t.STORED_FLOATS:
        own = t.cast(own, dtype)
    return t.binary(d.rng.choice(("add", "sub", "mul", "max")), own, value)


def in_place(d: Drawing, names: list[str], p: float) -> tuple[list[t.Statement], list[t.Statement]]:
    """A tensor read at the beginning and written at the end, now and then."""
    if not d.chance(p):
        return [], []
    name, coords, axes = output(d, names, "inout")
    dtype = d.tensors[name].dtype
    value = f"v{len(d.names)}"
    d.names.append((value, dtype, axes))
    load = t.Let(value, t.Load(name, coords, dtype, axes))
    return [load], [
        t.Store(name, coords, with_name(d, t.Name(value, dtype, axes), d.full(d.any_dtype(), axes, 2), axes))
    ]


# -- the families -----------------------------------------------------------------------------------------------------
def maps(d: Drawing) -> tuple[list[str], list[t.Statement]]:
    """Element-wise over the grid."""
    names = grid(d, d.rng.choice((0, 1, 1, 2, 2, 2, 3, 4)))
    first, last = in_place(d, names, 0.3)
    body: list[t.Statement] = list(first)
    if d.chance(0.4):
        axes = tiled(d, names)
        dtype = d.any_dtype()
        body.append(t.Let("u", d.full(dtype, axes, 2)))
        d.names.append(("u", dtype, axes))
    body += stores(
        d, names, d.rng.choice((1, 1, 1, 2, 3)) if not last else d.rng.choice((0, 0, 1)), d.rng.choice((1, 2, 3, 3, 4))
    )
    return names, body + last


def rows(d: Drawing) -> tuple[list[str], list[t.Statement]]:
    """Whole axes in one tile, reduced and spread again."""
    names = grid(d, d.rng.choice((0, 1, 1, 1, 2)), 64)
    axes: list[str] = []
    for _ in range(d.rng.choice((1, 1, 1, 2))):
        dim = d.dim("small" if axes else d.among(small=3, ragged=5, one=0.5, zero=0.5, wide=2))
        axes.append(d.range("axis", dim))
    while d.elements((*names, *axes)) > d.most_tile and any(d.ranges[n].block not in (1, None) for n in names):
        shrink(d, names)
    d.scope += axes
    first, last = in_place(d, [*names, *axes], 0.15)
    body = list(first)
    for n in range(d.rng.choice((1, 1, 2))):
        own = tiled(d, names) if d.chance(0.7) else tuple(a for a in (*tiled(d, names), *axes) if d.chance(0.6))
        over = [a for a in d.reducible(own) if a in axes]
        if not over:
            continue
        dtype = d.rng.choice(("f32", "f32", "i32", d.any_dtype()))
        dtype = "f32" if dtype in ("bool", *t.STORED_FLOATS) else dtype
        body.append(t.Let(f"r{n}", d.reduced(dtype, own, 3, d.rng.choice(over))))
        d.names.append((f"r{n}", dtype, own))
    reduced = [t.Name(*x) for x in d.names if x[0].startswith("r")]
    where: list[str] = names + [a for a in axes if d.chance(0.5)]
    for name in reduced:  # outputs have the axes that are left
        where += [a for a in name.axes if a is not None and a not in where]
    body += stores(d, where, d.rng.choice((1, 1, 2)), 3, reduced)
    if d.chance(0.3):
        body += stores(d, [*names, *axes], 1, 2, reduced)
    return names, body + last


def shrink(d: Drawing, names: list[str]) -> None:
    """Halves the widest block of the grid."""
    widest = max(names, key=lambda n: d.elements((n,)))
    r = d.ranges[widest]
    width = AUTO_TILE if r.auto else r.block or 1
    d.ranges[widest] = t.Range(widest, r.dim, r.kind, max(1, width // 2), False)


def streams(d: Drawing) -> tuple[list[str], list[t.Statement]]:
    """State that a stream carries, read afterwards."""
    names = grid(d, d.rng.choice((0, 1, 1, 1, 2)), 64)
    if d.chance(0.2):
        axis = d.range("axis", d.dim("small"))
        d.scope.append(axis)
        across = [axis]
    else:
        across = []
    everything = [*names, *across]
    body: list[t.Statement] = []
    states = fragments(d, everything, body)
    body.append(loop(d, states, everything, 0))
    if d.chance(0.2):
        body.append(loop(d, states, everything, 0))
    for name, dtype, axes, _ in states:
        d.names.append((name, dtype, axes))
    if d.chance(0.2):
        body.append(second(d, states, names))
    kept = {a for _, _, axes, _ in states for a in axes}
    where = names + [a for a in across if a in kept]
    body += stores(d, where, d.rng.choice((1, 1, 2)), 2, [t.Name(n, x, a) for n, x, a, _ in states])
    return names, body


State = tuple[str, str, tuple[str, ...], str]
"""Name, dtype, axes, and how it is written: sum, max, min or any."""


def fragments(d: Drawing, names: list[str], body: list[t.Statement]) -> list[State]:
    """One to three fragments over some of the ranges."""
    found: list[State] = []
    for n in range(d.rng.choice((1, 1, 2, 3))):
        axes = tuple(a for a in tiled(d, names) if d.chance(0.85))
        if d.chance(0.15):
            axes = axes[::-1]
        how = d.among(sum=4, max=1.5, min=1, any=1.5)
        dtype = (
            d.among(f32=5, i32=1.5, i64=0.7, f16=0.4, bf16=0.4, u32=0.4, i16=0.3, u8=0.3)
            if how != "sum"
            else d.among(f32=5, i32=1.5, i64=0.7, u32=0.4)
        )
        start: int | float = d.rng.choice((0, 0, 1, -2) if dtype[0] != "u" else (0, 1, 2, 200))
        if how in ("max", "min") and dtype in t.FLOATS and d.chance(0.7):
            start = float("-inf") if how == "max" else float("inf")
        if dtype in t.FLOATS:
            start = float(start)
        body.append(t.Fragment(f"acc{n}", axes, start, dtype))
        found.append((f"acc{n}", dtype, axes, how))
    return found


def loop(d: Drawing, states: list[State], names: list[str], level: int) -> t.Statement:
    """A stream that writes every state once, now and then with another one in it."""
    blocks = [n for n in names if not d.ranges[n].auto and d.ranges[n].block is not None and d.ranges[n].kind == "grid"]
    causal = d.rng.choice(blocks) if blocks and d.chance(0.25) else ""
    dim = (
        d.ranges[causal].dim
        if causal
        else d.dim(d.among(small=3, ragged=4, one=0.4, zero=0.4, wide=1) if not level else "small")
    )
    free = any(how == "any" for *_, how in states)
    if d.chance(0.1) and d.extents[dim] <= 40:
        name = d.range("stream", dim, None, False)
    elif free or causal or level or d.chance(0.5):
        name = d.range("stream", dim, d.rng.choice((1, 3, 8, 16, 32)), False)
    else:
        name = d.range("stream", dim, 64, True)
    start = until = None
    if causal:
        until = t.Place(causal, "stop")
    elif not d.ranges[name].auto and d.chance(0.15):
        n = f"n{len(d.scalars)}"
        d.scalars[n] = d.rng.randint(0, d.extents[dim] + 2)
        until, start = (t.Argument(n), None) if d.chance(0.5) else (None, t.Argument(n))
    elif d.chance(0.08):
        start = t.Number(d.rng.randint(0, 3))
    body: list[t.Statement] = []
    with d.inside(name):
        r = d.ranges[name]
        pinned = not r.auto
        for state, dtype, axes, _ in states if pinned else ():
            d.names.append((state, dtype, axes))
        inner = name if r.block is not None else ""
        for state, dtype, axes, how in states:
            body.append(update(d, state, dtype, axes, how, inner, causal))
        if level == 0 and not causal and d.chance(0.15) and len(d.extents) < 7:
            body.insert(d.rng.randint(0, len(body)), loop(d, states, names, 1))
        if level == 0 and d.chance(0.15) and not start and not until:
            own = [n for n in d.scope if d.ranges[n].kind != "axis"]
            if len(own) <= 4:
                body += stores(d, own, 1, 2)
    extent = t.Extent(d.tensor("i8", (dim,), "in"), 0) if not _bound(d, dim) else _bound(d, dim)
    assert extent is not None
    return t.Stream(name, extent, start, until, tuple(body))


def _bound(d: Drawing, dim: str) -> t.Extent | None:
    """Where the extent of a dimension is read."""
    return next((t.Extent(x.name, x.dims.index(dim)) for x in d.tensors.values() if dim in x.dims), None)


def update(d: Drawing, state: str, dtype: str, axes: tuple[str, ...], how: str, inner: str, causal: str) -> t.Statement:
    """One write of a fragment in a stream along ``inner`` (empty: one element an iteration)."""
    frag = t.Name(state, dtype, axes)
    if how == "any":
        return t.Write(
            state, d.rng.choice(("set", "set", "mul", "add") if dtype != "f16" else ("set",)), d.full(dtype, axes, 2)
        )
    if not inner:
        value = d.full(dtype, axes, 2)
    else:
        value = masked(d, dtype, axes, how, inner, causal)
    if how == "sum":
        return t.Write(state, "sub" if d.chance(0.1) else "add", value)
    return t.Write(state, "set", t.binary(how, frag, value))


def masked(d: Drawing, dtype: str, axes: tuple[str, ...], how: str, inner: str, causal: str) -> t.Expression:
    """A reduction along the stream, now and then of what a mask of coordinates lets through."""
    if d.elements((*axes, inner)) > d.most_tile:
        axes = ()
    banned, d.banned = d.banned, frozenset((inner,)) if d.ranges[inner].auto else d.banned
    at = d.rng.randint(0, len(axes))
    over = (*axes[:at], inner, *axes[at:])
    value = d.full(dtype, over, 2)
    if causal in axes and d.chance(0.8):
        rank = len(over)
        i, j = (t.expand(t.Index((n,)), tuple(p for p in range(rank) if over[p] != n)) for n in (causal, inner))
        none: int | float = 0
        if how != "sum" and dtype in t.FLOATS:
            none = float("-inf") if how == "max" else float("inf")
        test = t.compare(d.rng.choice(("ge", "gt", "lt", "eq")), i, j)
        value = t.where(
            test, value, t.Constant(float(none) if dtype in t.FLOATS else 0, "float" if dtype in t.FLOATS else "int")
        )
    d.banned = banned
    fn = {"sum": "sum"}.get(how, how)
    return t.cast(t.reduce(fn, value, at), dtype)


def second(d: Drawing, states: list[State], names: list[str]) -> t.Statement:
    """A stream after the state is known, which stores."""
    dim = d.dim("ragged")
    name = d.range("stream", dim, 0)
    with d.inside(name):
        body = stores(d, [*names, name], 1, 2, [t.Name(n, x, a) for n, x, a, _ in states if set(a) <= set(names)])
    extent = _bound(d, dim)
    assert extent is not None
    return t.Stream(name, extent, None, None, tuple(body))


def products(d: Drawing) -> tuple[list[str], list[t.Statement]]:
    """Matrix products: operands of any dtype and order, in a stream or whole, with something before and after."""
    dtype = d.among(bf16=3, f16=2, e4m3=1.3, e5m2=0.7, i8=1, f32=1, tf32=0.7)
    d.data = d.among(units=2, normal=1)
    names: list[str] = []
    if d.chance(0.25):
        names.append(d.range("grid", d.dim("small"), None, False))
    sizes = ("ragged", "even", "wide", "small", "one", "zero")
    m_dim, n_dim, k_dim = (d.dim(d.rng.choices(sizes, (4, 3, 1.5, 1.5, 0.4, 0.2))[0]) for _ in range(3))
    m = d.range("grid", m_dim, *_tile(d, (16, 32, 64, 64, 128, 24, 8, 8, 100)))
    n = d.range("grid", n_dim, *_tile(d, (8, 16, 32, 64, 64, 128, 40, 12)))
    names += [m, n]
    d.scope += names
    body: list[t.Statement] = []
    shape = d.among(stream=5, whole=1, chain=0.8)
    acc = "i32" if dtype == "i8" and shape != "chain" else "f32"
    if shape == "whole":
        k = d.range("axis", k_dim)
        d.scope.append(k)
        body.append(t.Let("acc0", contraction(d, dtype, m, n, k)))
        d.scope.remove(k)
    elif shape == "chain":
        body += chain(d, dtype, m, n, k_dim, acc)
    else:
        body.append(t.Fragment("acc0", (m, n), 0 if acc == "i32" else 0.0, acc))
        step = d.rng.choice((16, 32, 64, 64, 128, 48, 8, 20, 1))
        auto = d.chance(0.25)
        k = d.range("stream", k_dim, 64 if auto else step, auto)
        with d.inside(k):
            value: t.Expression = contraction(d, dtype, m, n, k, promoted=not auto and step <= 128 and d.chance(0.15))
            if d.chance(0.1):
                value = t.binary("mul", value, t.Given(d.scalar("f32")) if acc == "f32" else t.Constant(3, "int"))
            work: list[t.Statement] = [t.Write("acc0", "add", value)]
            if d.chance(0.1):
                work.append(t.Write("acc0", "add", contraction(d, dtype, m, n, k)))
        extent = _bound(d, k_dim)
        assert extent is not None
        body.append(t.Stream(k, extent, None, None, tuple(work)))
    d.names.append(("acc0", acc, (m, n)))
    d.data = "normal"
    plain = d.chance(0.6)
    name, coords, axes = output(d, names, dtype=d.rng.choice((acc, d.float_dtype(), d.any_dtype())))
    result: t.Expression = t.Name("acc0", acc, (m, n))
    if axes != (m, n):
        result = t.transpose(result, (1, 0))
    if not plain:
        result = t.binary(d.rng.choice(("add", "mul", "max")), result, d.part(acc, axes, 1))
        if acc == "f32" and d.chance(0.3):
            result = t.unary(d.rng.choice(("tanh", "sigmoid", "exp", "abs")), result)
    body.append(t.Store(name, coords, result))
    if d.chance(0.1):
        body += stores(d, names, 1, 1, [t.Name("acc0", acc, (m, n))])
    return names, body


def _tile(d: Drawing, sizes: tuple[int, ...]) -> tuple[int, bool]:
    auto = d.chance(0.35)
    return (256 if auto else 1 if d.chance(0.06) else d.rng.choice(sizes)), auto


def operand(d: Drawing, dtype: str, axes: tuple[str, str], p: float = 0.12) -> t.Expression:
    """A matrix operand: loaded in either order, now and then computed."""
    if dtype == "tf32":
        return t.cast(operand(d, "f32", axes, p), "tf32")
    if dtype in t.FLOATS and d.chance(p):
        return d.full(dtype, axes, 1)
    if d.chance(0.5):
        return t.transpose(d.load(dtype, axes[::-1], transposed=False), (1, 0))
    return d.load(dtype, axes, transposed=False)


def contraction(d: Drawing, dtype: str, m: str, n: str, k: str, promoted: bool = False) -> t.Expression:
    """``dot`` over k; 8-bit floats may differ."""
    other = dtype
    if dtype in t.STORED_FLOATS and d.chance(0.2):
        other = "e5m2" if dtype == "e4m3" else "e4m3"
    return t.dot(operand(d, dtype, (m, k)), operand(d, other, (k, n)), promoted)


def chain(d: Drawing, dtype: str, m: str, n: str, k_dim: str, acc: str) -> list[t.Statement]:
    """A product of a product, as attention has it: the middle axis is streamed."""
    if dtype not in ("f16", "bf16"):
        dtype = d.rng.choice(("f16", "bf16"))
    k = d.range("axis", k_dim)
    d.scope.append(k)
    middle = d.dim(d.among(ragged=3, even=2, small=1))
    s = d.range("stream", middle, d.rng.choice((16, 32, 64, 8)), False)
    with d.inside(s):
        first = t.dot(operand(d, dtype, (m, k), 0), operand(d, dtype, (k, s), 0))
        value: t.Expression = t.Name("p", "f32", (m, s))
        if d.chance(0.5):
            value = t.binary("mul", value, t.Constant(0.125, "float"))
        if d.chance(0.3):
            value = t.unary(d.rng.choice(("tanh", "sigmoid", "abs")), value)
        work = (t.Let("p", first), t.Write("acc0", "add", t.dot(t.cast(value, dtype), operand(d, dtype, (s, n), 0))))
    d.scope.remove(k)
    extent = _bound(d, middle)
    assert extent is not None
    return [t.Fragment("acc0", (m, n), 0.0 if acc == "f32" else 0, acc), t.Stream(s, extent, None, None, work)]


def sums(d: Drawing) -> tuple[list[str], list[t.Statement]]:
    """Programs that add into one tensor."""
    names = grid(d, d.rng.choice((1, 2, 2, 3)), 256)
    kept = [n for n in names if d.chance(0.5)]
    name, coords, axes = output(d, kept, "add", d.among(f32=5, i32=2, i64=1, f16=0.7, bf16=0.7, u32=0.8))
    dtype = d.tensors[name].dtype
    value_axes = tuple(n for n in tiled(d, names) if n in axes or d.ranges[n].auto or d.chance(0.8))
    value = d.full(dtype, value_axes, 2)
    if value_axes != value.axes:  # each program adds what it has, so that blocks of the schedule's choice don't count
        raise AssertionError("a value of other axes")
    while len(value.axes) > len([a for a in value.axes if a in axes]):
        at = next(p for p, a in enumerate(value.axes) if a not in axes)
        value = t.cast(t.reduce("sum", value, at), dtype)
    order = tuple(a for a in axes if a in value.axes)
    if order != value.axes:
        value = t.transpose(value, tuple(value.axes.index(a) for a in order))
    value = t.expand(value, tuple(p for p, a in enumerate(axes) if a not in order))
    body: list[t.Statement] = [t.Add(name, coords, value)]
    if d.chance(0.3):
        body += stores(d, names, 1, 2)
    return names, body


FAMILIES: dict[str, tuple[float, Callable[[Drawing], tuple[list[str], list[t.Statement]]]]] = {
    "maps": (5, maps),
    "rows": (4, rows),
    "streams": (5, streams),
    "products": (4, products),
    "sums": (1.5, sums),
}


def drawn(seed: int, family: str = "") -> t.Kernel:
    """The kernel of a seed."""
    rng = Random(seed)
    d = Drawing(rng)
    chosen = rng.choices(list(FAMILIES), [w for w, _ in FAMILIES.values()])[0]
    family = family or chosen
    numerics = "fast" if rng.random() < 0.3 else "strict"
    names, body = FAMILIES[family][1](d)
    pins = (
        rng.choice(("warps=4", "warps=8", "stages=2", "vector=1", "staged=False", "consumers=1"))
        if rng.random() < 0.06
        else ""
    )
    return d.kernel(f"k{seed}", family, names, body, numerics=numerics, pins=pins)
