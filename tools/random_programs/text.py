"""A random kernel as Python: the file that is compiled, and kept where something is wrong with it."""

from __future__ import annotations

import math

from random_programs import tree as t

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
PROMOTED = ', accumulate="promoted"'
FUNCTIONS = {"max": "maximum", "min": "minimum"} | {fn: fn for fn in ("pow", "atan2", "hypot", "fmod")}


def exact(e: t.Exact) -> str:
    """An integer of the launch."""
    match e:
        case t.Number(value):
            return str(value)
        case t.Extent(tensor, position):
            return f"{tensor}.shape[{position}]"
        case t.Argument(name):
            return name
        case t.Place(name, what):
            return name if what == "index" else f"{name}.{what}"
        case t.Integer(fn, a, b):
            if fn in FUNCTIONS:
                return f"tw.{FUNCTIONS[fn]}({exact(a)}, {exact(b)})"
            return f"({exact(a)} {SIGNS[fn]} {exact(b)})"


def number(value: int | float) -> str:
    """A number of Python's, also one that has no literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return "tw.nan" if math.isnan(value) else "tw.inf" if value > 0 else "-tw.inf"
    return repr(value) if value >= 0 and math.copysign(1, value) > 0 else f"({value!r})"


def dtype(name: str) -> str:
    return f"tw.{name}"


def expression(e: t.Expression) -> str:
    """An expression, in brackets where an operator follows."""
    match e:
        case t.Load(tensor, coords):
            return f"{tensor}[{places(coords)}]"
        case t.Constant(value):
            return number(value)
        case t.Whole(value):
            return exact(value)
        case t.Given(name) | t.Name(name):
            return name
        case t.Index(axes):
            return f"{axes[0]}.index"
        case t.Unary(fn, x):
            if fn in ("neg", "not"):
                return f"({'-' if fn == 'neg' else '~'}{expression(x)})"
            if fn in t.POWERS:
                return f"({expression(x)} ** {t.POWERS[fn]})"
            return f"tw.{fn}({expression(x)})"
        case t.Binary(fn, a, b) | t.Compare(fn, a, b):
            if fn in FUNCTIONS:
                return f"tw.{FUNCTIONS[fn]}({expression(a)}, {expression(b)})"
            return f"({expression(a)} {SIGNS[fn]} {expression(b)})"
        case t.Where(condition, a, b):
            return f"tw.where({expression(condition)}, {expression(a)}, {expression(b)})"
        case t.Cast(x, to):
            return f"{expression(x)}.to({dtype(to)})"
        case t.Reduce(fn, x, axis, keepdims):
            return f"{expression(x)}.{fn}({axis}{', keepdims=True' if keepdims else ''})"
        case t.Expand(x, positions):
            rank = len(x.axes) + len(positions)
            return f"{expression(x)}[{', '.join('None' if i in positions else ':' for i in range(rank))}]"
        case t.Transpose(x, perm):
            return f"{expression(x)}.T" if perm == (1, 0) else f"{expression(x)}.transpose{perm}"
        case t.Dot(a, b, promoted):
            return f"tw.dot({expression(a)}, {expression(b)}{PROMOTED if promoted else ''})"


def places(coords: tuple[str | t.Exact, ...]) -> str:
    return ", ".join(c if isinstance(c, str) else exact(c) for c in coords) or "()"


def statements(kernel: t.Kernel, body: tuple[t.Statement, ...], indent: str) -> list[str]:
    """A block, a line a statement."""
    lines: list[str] = []
    for s in body:
        match s:
            case t.Let(name, value):
                lines.append(f"{name} = {expression(value)}")
            case t.Store(tensor, coords, value):
                lines.append(f"{tensor}[{places(coords)}] = {expression(value)}")
            case t.Add(tensor, coords, value):
                index = places(coords)
                lines.append(
                    f"tw.reduce_add({tensor}, {f'({index})' if len(coords) > 1 else index}, {expression(value)})"
                )
            case t.Fragment(name, ranges, value, element):
                shape = f"({', '.join(ranges)}{',' * (len(ranges) == 1)})"
                lines.append(f"{name} = tw.full({shape}, {number(value)}, {dtype(element)})")
            case t.Write(name, fn, value):
                sign = {"add": "+=", "sub": "-=", "mul": "*="}.get(fn)
                lines.append(f"{name} {sign} {expression(value)}" if sign else f"{name}.set({expression(value)})")
            case t.Stream(name, extent, start, until, inner):
                ends = "".join(f", {k}={exact(v)}" for k, v in (("start", start), ("until", until)) if v is not None)
                lines.append(f"for {name} in tw.stream({exact(extent)}, {block(kernel, name)}{ends}):")
                lines += statements(kernel, inner, "    ")
    return [indent + line for line in lines]


def block(kernel: t.Kernel, name: str) -> str:
    found = kernel.ranges[name]
    return f"b{name}" if found.auto else str(found.block)


def extent(kernel: t.Kernel, dim: str) -> str:
    """Where a dimension's extent is read."""
    return next(f"{x.name}.shape[{x.dims.index(dim)}]" for x in kernel.tensors.values() if dim in x.dims)


def dims(kernel: t.Kernel, tensor: t.Tensor) -> str:
    """What a tensor's annotation says."""
    shown = [repr(kernel.extents[str(d)] if d in kernel.static else d) for d in tensor.dims]
    return ", ".join(shown) if shown else "()"


def source(kernel: t.Kernel) -> str:
    """The whole file."""
    parameters = [f"{x.name}: tw.Tensor[{dims(kernel, x)}]" for x in kernel.tensors.values()]
    parameters.append("*")
    parameters += [f"{n}: {'tw.i32' if isinstance(v, int) else 'tw.f32'}" for n, v in kernel.scalars.items()]
    parameters += [f"b{r.name}=tw.auto" for r in kernel.ranges.values() if r.auto]
    if parameters[-1] == "*":
        parameters.pop()
    lines = [
        f'"""{kernel.family}, {", ".join(f"{d} = {n}" for d, n in kernel.extents.items())}"""',
        "",
        "# ruff: noqa",
        "import tilewright as tw",
        "",
        *(f"# {x.name}: {x.dtype} {kernel.shape(x.name)}, {x.use}, {x.how}, {x.data}" for x in kernel.tensors.values()),
        *(f"# {n} = {v!r}" for n, v in kernel.scalars.items()),
        *(f"# pins: {pin}" for pin in filter(None, [kernel.pins])),
        "",
        "",
        f'@tw.kernel(numerics="{kernel.numerics}")',
        f"def {kernel.name}({', '.join(parameters)}):",
    ]
    body: list[str] = []
    if kernel.grid:
        ranges = [kernel.ranges[name] for name in kernel.grid]
        over = ", ".join(extent(kernel, r.dim) for r in ranges)
        blocks = ", ".join(block(kernel, r.name) for r in ranges)
        one = len(ranges) == 1
        body.append(
            f"{', '.join(kernel.grid)} = tw.grid({over if one else f'({over})'}, {blocks if one else f'({blocks})'})"
        )
    for r in kernel.ranges.values():
        if r.kind == "axis":
            body.append(f"{r.name} = tw.axis({extent(kernel, r.dim)}, upto={r.block})")
    lines += ["    " + line for line in body] + statements(kernel, kernel.body, "    ")
    return "\n".join(lines) + "\n"
