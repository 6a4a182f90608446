"""Every operator of ``tilewright.ops`` on CUDA tensors against PyTorch in float64, and timed beside eager and compile.

Build where the compiler is (PyTorch's CPU build suffices), run where the GPU is (PyTorch, numpy, cuda-bindings):

    python benchmarks/torch_ops.py build
    python benchmarks/torch_ops.py run --json $OUT/torch_ops.json

``build`` calls every case with fake tensors and compiles what each call of a kernel would look up into
``benchmarks/artifacts/torch_ops``, from where ``run`` takes it; both need the same sources. ``run`` checks results and
gradients, strided and unaligned inputs, other streams, CUDA graphs and ``out=``; it then times device and host.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness import ARTIFACTS, Timer, document, parser, write

STORE = ARTIFACTS / "torch_ops"
os.environ["TILEWRIGHT_STORE"] = str(STORE)
os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

ONLY = "operators whose name has this"

try:
    import torch
    import torch.nn.functional as F
except ModuleNotFoundError:
    parser(__doc__, ONLY).parse_args()  # what it does is told without PyTorch
    raise SystemExit("PyTorch is not installed: pip install 'tilewright[torch]'") from None

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tilewright import ops  # noqa: E402
from tilewright.ops import registration  # noqa: E402
from tilewright.ops.functional.dispatched import compositions  # noqa: E402

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ALLOWED = 3.0
"""How many times PyTorch's own error in the same dtype a result may have, beside ``FLOOR`` of its dtype."""
FLOOR = {F32: 2e-6, F16: 1e-3, BF16: 8e-3}


@dataclass(frozen=True)
class Alone:
    """What is timed of an operator whose check computes more: calls on what ``prepare`` makes of the inputs."""

    prepare: Callable[..., tuple[Any, ...]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """An operator, what PyTorch computes for it, and the shapes of its floating inputs for a case of extents."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: Callable[..., list[tuple[int, ...]]]
    extents: tuple[tuple[int, ...], ...]
    timed: tuple[int, ...]
    dtypes: tuple[Any, ...] = (BF16, F16, F32)
    gradients: bool = True
    strided: bool = True  # also checked on other layouts, whose programs take longest to build
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])  # timed beside eager
    alone: Alone | None = None


def _targets(m: int, n: int, device: Any) -> Any:
    target = torch.arange(m, device=device) * 7919 % n
    return torch.where(torch.arange(m, device=device) % 5 == 3, -100, target)


def _rms(x: Any, w: Any) -> Any:
    if x.dtype == torch.float64:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat((first * c - second * s, second * c + first * s), -1)


def _angles(x: Any) -> tuple[Any, Any]:
    """Cosines and sines of the tokens of (batch, tokens, heads, width), in the dtype of x."""
    half = x.shape[-1] // 2
    rate = 1e6 ** (-torch.arange(half, device=x.device) / half)
    turns = torch.arange(x.shape[1], device=x.device)[:, None] * rate
    return turns.cos().to(x.dtype), turns.sin().to(x.dtype)


def _rows(m: int, n: int) -> list[tuple[int, ...]]:
    return [(m, n)]


def _weighted(m: int, n: int) -> list[tuple[int, ...]]:
    return [(m, n), (n,)]


ROWS = ((64, 128), (3, 1000), (17, 1001), (4, 8, 512), (33, 4096), (5, 4099), (2, 20000), (1, 8))
"""Extents of rows; three are tokens of a batch."""


def _by_rows(count: int) -> Callable[..., list[tuple[int, ...]]]:
    """``count`` tensors of the rows, then weights of their last axis."""
    return lambda *extents: [extents] * count


def _norm(tensors: int, weights: int) -> Callable[..., list[tuple[int, ...]]]:
    return lambda *extents: [extents] * tensors + [extents[-1:]] * weights


def _held(make: Callable[..., Any]) -> Callable[..., Any]:
    """Integers on a GPU are made once: their making is not timed."""
    kept = cache(make)
    return lambda *given: (kept if given[-1].type == "cuda" else make)(*given)


@_held
def _indices(rows: int, device: Any) -> Any:
    """Twice as many and three more, at most 16384, of which some meet."""
    return torch.arange(min(2 * rows + 3, 16384), dtype=torch.int64, device=device) * 7919 % rows


@_held
def _groups(rows: int, groups: int, device: Any) -> Any:
    """Where groups begin and the last one ends: the first is empty, the second the longest."""
    number = torch.arange(groups + 1, dtype=torch.int32, device=device)
    return torch.where(number > 1, rows // 2 + number * (rows - rows // 2) // groups, 0).int()


@_held
def _experts_of(rows: int, device: Any) -> Any:
    """Two of eight experts for each row, some of them none."""
    pair = torch.arange(2 * rows, dtype=torch.int32, device=device)
    return torch.where(pair % 11 == 3, -1, pair * 7919 % 13 % 8).int().view(rows, 2)


def _permuted(x: Any) -> Any:
    """Rows by their expert, in the order of their pairs; zeros behind them."""
    ids = _experts_of(x.shape[0], x.device).flatten()
    order = torch.where(ids < 0, 8, ids).argsort(stable=True)
    return x[order // 2] * (ids[order] >= 0)[:, None]


def _grouped(x: Any, w: Any) -> Any:
    """``torch._grouped_mm`` where it has the dtype and the alignment, a product a group elsewhere."""
    ends = _groups(x.shape[0], w.shape[0], x.device)[1:]
    if x.dtype == BF16 and x.is_cuda and not any(v % 8 for t in (x, w) for v in t.stride()[:-1]):
        return torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    last = torch.arange(x.shape[0], device=x.device)
    group = torch.searchsorted(ends, last.int(), right=True)
    return sum(((group == g)[:, None] * x) @ w[g].t() for g in range(w.shape[0]))


def _some_absent(lse: Any) -> Any:
    """Of parts without keys -inf; some rows have none at all."""
    return torch.where(lse > 0.5, -torch.inf, lse)


def _merged(y: Any, lse: Any) -> Any:
    sums = _some_absent(lse).to(_wide(lse))
    weights = sums.softmax(0).nan_to_num(0.0)[..., None]
    return (weights * y).sum(0).to(y.dtype), sums.logsumexp(0)


def _quantized(x: Any, block: int | None) -> tuple[Any, Any]:
    """``ops.quantize`` by PyTorch's functions."""
    size = block or x.shape[-1]
    parts = F.pad(x.float(), (0, -x.shape[-1] % size)).unflatten(-1, (-1, size))
    scale = parts.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    y = (parts / scale).to(torch.float8_e4m3fn).flatten(-2)[..., : x.shape[-1]].contiguous()
    return y, scale.flatten(-2) if block else scale.flatten(-3)


def _restored(y: Any, scale: Any, block: int | None) -> Any:
    """Numbers of 8 bits multiplied by their scales, in float32."""
    each = scale[..., None] if block is None else scale.repeat_interleave(block, -1)[..., : y.shape[-1]]
    return y.float() * each


def _scales(w: Any, block: int | None) -> Any:
    n, k = w.shape
    shape = (n,) if block is None else (-(-n // block), -(-k // block))
    return (1 + torch.arange(math.prod(shape), device=w.device) % 7).to(F32).view(shape)


def _by_eight_bits(x: Any, w: Any, block: int | None) -> Any:
    y, scale = _quantized(x, block)
    return ops.linear(y, w.to(torch.float8_e4m3fn), x_scale=scale, weight_scale=_scales(w, block), dtype=x.dtype)


def _eight_bits(x: Any, w: Any, block: int | None) -> tuple[Any, ...]:
    """Operands and scales of a product of 8 bits."""
    return (*_quantized(x, block), w.to(torch.float8_e4m3fn), _scales(w, block))


def _product_of_eight_bits(x: Any, x_scale: Any, w: Any, w_scale: Any) -> Any:
    return ops.linear(x, w, x_scale=x_scale, weight_scale=w_scale)


def _by_cublas(x: Any, x_scale: Any, w: Any, w_scale: Any) -> Any:
    """The product with scales of rows; of blocks PyTorch has it for scales that lie another way: without any."""
    if x_scale.dim() > 1:
        one = x_scale.new_ones(())
        return torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=BF16)
    return torch._scaled_mm(x, w.t(), scale_a=x_scale[:, None], scale_b=w_scale[None], out_dtype=BF16)


def _by_wide(x: Any, w: Any, block: int | None) -> Any:
    """The product of the same numbers in float32 or, of float64, in that."""
    scale, wide = _scales(w, block), _wide(x)
    each = scale[:, None] if block is None else scale.repeat_interleave(block, 0).repeat_interleave(block, 1)
    weight = w.to(torch.float8_e4m3fn).to(wide) * each[: w.shape[0], : w.shape[1]]
    return F.linear(_restored(*_quantized(x, block), block).to(wide), weight).to(x.dtype)


def _by_cudnn(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


_TWO_AXES = tuple(e for e in ROWS if len(e) == 2)
NORMED = tuple(e for e in ROWS if e[-1] <= 16384)
PRODUCTS = ((128, 256, 512), (65, 200, 136), (100, 99, 101), (4, 32, 96, 72))

OPERATORS = (
    Operator("softmax", ops.softmax, lambda x: x.softmax(-1), _by_rows(1), ROWS, (16384, 4096)),
    Operator("log_softmax", ops.log_softmax, lambda x: x.log_softmax(-1), _by_rows(1), ROWS, (16384, 4096)),
    Operator("rms_norm", ops.rms_norm, _rms, _norm(1, 1), NORMED, (8192, 8192)),
    Operator(
        "add_rms_norm",
        lambda x, r, w: ops.add_rms_norm(x, r, w),
        lambda x, r, w: (_rms(x + r, w), x + r),
        _norm(2, 1),
        NORMED,
        (8192, 8192),
    ),
    Operator(
        "layer_norm",
        ops.layer_norm,
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        _norm(1, 2),
        NORMED,
        (8192, 8192),
    ),
    Operator(
        "add_layer_norm",
        ops.add_layer_norm,
        lambda x, r, w, b: (F.layer_norm(x + r, x.shape[-1:], w, b), x + r),
        _norm(2, 2),
        NORMED,
        (8192, 8192),
    ),
    Operator("swiglu", ops.swiglu, lambda g, u: F.silu(g) * u, _by_rows(2), ROWS, (8192, 14336)),
    Operator("geglu", ops.geglu, lambda g, u: F.gelu(g) * u, _by_rows(2), ROWS, (8192, 14336)),
    Operator(
        "cross_entropy",
        lambda x: ops.cross_entropy(x, _targets(*x.shape, x.device)),
        lambda x: F.cross_entropy(x, _targets(*x.shape, x.device)),
        _by_rows(1),
        tuple(e for e in ROWS if len(e) == 2),
        (8192, 32000),
    ),
    Operator(
        "embedding",
        lambda w: ops.embedding(_indices(w.shape[0], w.device), w),
        lambda w: F.embedding(_indices(w.shape[0], w.device), w),
        _by_rows(1),
        _TWO_AXES,
        (32000, 4096),
    ),
    Operator(
        "index_add",
        lambda x, s: ops.index_add(x, 0, _indices(x.shape[0], x.device)[: s.shape[0]], s),
        lambda x, s: torch.index_add(x, 0, _indices(x.shape[0], x.device)[: s.shape[0]], s),
        lambda m, n: [(m, n), (min(2 * m + 3, 16384), n)],
        _TWO_AXES,
        (4096, 4096),
    ),
    Operator("cumsum", ops.cumsum, lambda x: x.cumsum(-1), _by_rows(1), ROWS, (8192, 8192)),
    Operator(
        "permute",
        lambda x: ops.permute(x, _experts_of(x.shape[0], x.device), 8)[0],
        _permuted,
        _by_rows(1),
        _TWO_AXES,
        (8192, 2048),
    ),
    Operator(
        "permute and unpermute",
        lambda x, w: ops.unpermute(*ops.permute(x, _experts_of(x.shape[0], x.device), 8), w),
        lambda x, w: (x[:, None] * (w * (_experts_of(x.shape[0], x.device) >= 0))[..., None]).sum(1),
        lambda m, n: [(m, n), (m, 2)],
        _TWO_AXES,
        (8192, 2048),
    ),
    Operator(
        "grouped_matmul",
        lambda x, w: ops.grouped_matmul(x, w, _groups(x.shape[0], w.shape[0], x.device)),
        _grouped,
        lambda g, m, n, k: [(m, k), (g, n, k)],
        ((3, 100, 72, 40), (5, 64, 128, 256), (8, 1000, 96, 64)),
        (8, 8192, 4096, 4096),
        (BF16, F16),
    ),
    Operator(
        "rotary",
        ops.rotary,
        _rotated,
        lambda b, s, h, d: [(b, s, h, d), (s, d // 2), (s, d // 2)],
        ((2, 33, 4, 64), (1, 128, 8, 128)),
        (4, 4096, 32, 128),
        gradients=False,  # of the angles there is none
    ),
    Operator(
        "rms_norm_rotary",
        lambda x, w: ops.rms_norm_rotary(x, w, *_angles(x)),
        lambda x, w: _rotated(F.rms_norm(x, (x.shape[-1],), w, 1e-6), *_angles(x)),
        lambda b, s, h, d: [(b, s, h, d), (d,)],
        ((2, 33, 4, 64), (1, 300, 8, 128)),
        (4, 4096, 32, 128),
    ),
    Operator(
        "linear",
        lambda x, w, b: ops.linear(x, w, b),
        lambda x, w, b: F.linear(x, w, b),
        lambda *e: [(*e[:-2], e[-1]), (e[-2], e[-1]), (e[-2],)],
        PRODUCTS,
        (4096, 4096, 4096),
        (BF16, F16),
    ),
    Operator(
        "linear gelu residual",
        lambda x, w, b, r: ops.linear(x, w, b, activation="gelu", residual=r),
        lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r,
        lambda *e: [(*e[:-2], e[-1]), (e[-2], e[-1]), (e[-2],), (*e[:-2], e[-2])],
        PRODUCTS,
        (4100, 4100, 4100),
        (BF16,),
        strided=False,
    ),
    Operator(
        "matmul silu",
        lambda a, b, r: ops.matmul(a, b, activation="silu", residual=r),
        lambda a, b, r: F.silu(a @ b) + r,
        lambda *e: [(*e[:-2], e[-1]), (e[-1], e[-2]), (*e[:-2], e[-2])],
        PRODUCTS,
        (4096, 4096, 4096),
        (BF16, F16),
    ),
    *(
        operator
        for name, block in (("rows", None), ("blocks", 128))
        for operator in (
            Operator(
                f"quantize {name}",
                lambda x, block=block: _restored(*ops.quantize(x, block=block), block).to(x.dtype),
                lambda x, block=block: (
                    x if x.dtype == torch.float64 else _restored(*_quantized(x, block), block).to(x.dtype)
                ),
                _by_rows(1),
                NORMED,
                (8192, 8192),
                gradients=False,
                alone=Alone(lambda x: (x,), partial(ops.quantize, block=block), partial(_quantized, block=block)),
            ),
            Operator(
                f"linear of 8 bits {name}",
                partial(_by_eight_bits, block=block),
                partial(_by_wide, block=block),
                lambda *e: [(*e[:-2], e[-1]), (e[-2], e[-1])],
                PRODUCTS,
                (4096, 4096, 4096),
                (BF16,),
                gradients=False,
                alone=Alone(partial(_eight_bits, block=block), _product_of_eight_bits, _by_cublas),
            ),
        )
    ),
    Operator(
        "merge_states",
        lambda y, lse: ops.merge_states(y, _some_absent(lse).float()),
        _merged,
        lambda c, h, m, d: [(c, h, m, d), (c, h, m)],
        ((2, 4, 100, 128), (5, 3, 33, 64), (1, 2, 7, 40)),
        (8, 32, 1024, 128),
        gradients=False,
    ),
    Operator(
        "attention",
        ops.attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1]),
        lambda b, h, g, s, d: [(b, h, s, d), (b, g, s, d), (b, g, s, d)],
        ((2, 4, 4, 128, 64), (1, 8, 2, 200, 128), (1, 4, 1, 77, 64)),
        (4, 16, 16, 4096, 128),
        (BF16, F16),
        peers={"cudnn": _by_cudnn},
    ),
    Operator(
        "attention causal",
        lambda q, k, v: ops.attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]),
        lambda b, h, g, s, d: [(b, h, s, d), (b, g, s, d), (b, g, s, d)],
        ((2, 4, 4, 128, 64), (1, 8, 2, 200, 128)),
        (4, 16, 16, 4096, 128),
        (BF16, F16),
        strided=False,
        peers={"cudnn": partial(_by_cudnn, causal=True)},
    ),
    Operator(
        "linear_cross_entropy",
        lambda x, w: ops.linear_cross_entropy(x, w, _targets(x.shape[0], w.shape[0], x.device)),
        lambda x, w: F.cross_entropy((x @ w.t()).to(_wide(x)), _targets(x.shape[0], w.shape[0], x.device)),
        lambda m, n, k: [(m, k), (n, k)],
        ((100, 1000, 64),),
        (8192, 32000, 4096),
        (BF16,),
    ),
)


def _wide(x: Any) -> Any:
    return x.dtype if x.dtype == torch.float64 else F32


# -- cases ------------------------------------------------------------------------------------------------------------
LAYOUTS = ("row-major", "padded", "transposed")


@dataclass(frozen=True)
class Case:
    """One call: an operator on inputs of these extents, dtype and layout."""

    operator: Operator
    extents: tuple[int, ...]
    dtype: Any
    layout: str = "row-major"

    def __str__(self) -> str:
        return f"{self.operator.name} {'x'.join(map(str, self.extents))} {str(self.dtype)[6:]} {self.layout}"

    def inputs(self, device: str) -> list[Any]:
        """Random tensors of the CPU's generator, or empty ones where they are fake."""
        made: list[Any] = []
        random = None if device == "fake" else torch.Generator(device="cuda").manual_seed(len(self.extents))
        for shape in self.operator.shapes(*self.extents):
            held = self._held(shape)
            if random is None:
                whole = torch.empty(held, dtype=self.dtype)
            else:
                whole = torch.randn(held, generator=random, device="cuda").to(self.dtype)
            made.append(self._view(whole, shape))
        return made

    def _held(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.layout == "padded":
            return (*shape[:-1], shape[-1] + 3)
        return tuple(reversed(shape)) if self.layout == "transposed" else shape

    def _view(self, whole: Any, shape: tuple[int, ...]) -> Any:
        if self.layout == "padded":
            return whole[..., 1 : shape[-1] + 1]
        return whole.permute(*reversed(range(len(shape)))) if self.layout == "transposed" else whole


def checked(only: str) -> Iterator[Case]:
    """What is compared with float64: all shapes row-major in every dtype, two of them in every layout."""
    for operator in OPERATORS:
        if only in operator.name:
            for dtype in operator.dtypes:
                yield from (Case(operator, e, dtype) for e in operator.extents)
            for layout in LAYOUTS[1:] if operator.strided else ():
                yield from (Case(operator, e, operator.dtypes[0], layout) for e in operator.extents[1:3])


def timed(only: str) -> Iterator[Case]:
    """What is timed: one shape in bfloat16, forward, and forward with backward."""
    yield from (Case(o, o.timed, BF16) for o in OPERATORS if only in o.name)


def _outputs(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _loss(results: tuple[Any, ...], weights: tuple[Any, ...]) -> Any:
    return sum((r * w).sum() for r, w in zip(results, weights, strict=True))


def _forward_and_backward(run: Callable[..., Any], inputs: list[Any], weights: tuple[Any, ...] | None = None) -> Any:
    """(results, gradients) of the weighted sum."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    results = _outputs(run(*leaves))
    weights = tuple(map(torch.ones_like, results)) if weights is None else weights
    grads = torch.autograd.grad(_loss(results, weights), leaves)
    return tuple(r.detach() for r in results), grads


# -- build ------------------------------------------------------------------------------------------------------------
class Building(TorchDispatchMode):
    """Within it, and in a ``FakeTensorMode``, every call of an operator's kernel compiles what it looks up into a
    store. A refusal is printed, and ends nothing."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.store, self.made, self.refused = store, set[str](), 0
        assert all(getattr(ops, name) for name in ops.__all__)  # all are registered
        self._known = {op.overload: op for op in registration.operators()}
        self._into = {op.out_overload: op for op in registration.operators() if op.out_overload is not None}
        self._composed = {c.overload: c for c in compositions()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func in self._known:
            self._compile(self._known[func], args, _outputs(results))
        elif func in self._into:
            op = self._into[func]
            count = len(op.signature.arguments)
            self._compile(op, args[:count], args[count:])
        elif func in self._composed:
            with self, torch.no_grad():
                self._composed[func].compute(*args)
        return results

    def _compile(self, op: Any, values: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        begin = time.perf_counter()
        try:
            key = op.compile_for(values, results, self.store)
        except Exception as error:
            self.refused += 1
            print(f"  refused: {op.name}: {error}", flush=True)
        else:
            if key not in self.made:
                self.made.add(key)
                print(f"  {op.name}: {time.perf_counter() - begin:.1f} s", flush=True)


def build(only: str) -> None:
    """Compile what the calls of all cases look up."""
    building = Building(STORE)
    cases = list(dict.fromkeys((*checked(only), *timed(only))))
    for number, case in enumerate(cases):
        print(f"[{number + 1}/{len(cases)}] {case}", flush=True)
        with FakeTensorMode(), building:
            inputs = case.inputs("fake")
            case.operator.ours(*inputs)
            if case.operator.gradients:
                _forward_and_backward(case.operator.ours, inputs)
    print(f"{len(building.made)} artifacts in {STORE}, {building.refused} refused")


# -- run --------------------------------------------------------------------------------------------------------------
def _error(got: Any, exact: Any) -> float:
    scale = max(float(exact.abs().max()), 1e-30)
    return float((got.double() - exact).abs().max()) / scale


def check(case: Case) -> dict[str, Any]:
    """Errors relative to the greatest element, of results and gradients, ours beside PyTorch's in the same dtype."""
    inputs = case.inputs("cuda")
    wide = [t.double() for t in inputs]
    row: dict[str, Any] = {"case": str(case)}
    with torch.no_grad():
        exact = _outputs(case.operator.theirs(*wide))
    weights = tuple(torch.randn(e.shape, device=e.device) for e in exact)  # row-major, as those of ``build``
    if case.operator.gradients:
        exact, exact_grads = _forward_and_backward(case.operator.theirs, wide, weights)
        got, grads = _forward_and_backward(case.operator.ours, inputs, weights)
        peer, peer_grads = _forward_and_backward(case.operator.theirs, inputs, weights)
        parts = [*zip(got, exact, peer, strict=True), *zip(grads, exact_grads, peer_grads, strict=True)]
    else:
        got, peer = _outputs(case.operator.ours(*inputs)), _outputs(case.operator.theirs(*inputs))
        parts = list(zip(got, exact, peer, strict=True))
    ours, theirs = ([_error(p[k], p[1]) for p in parts] for k in (0, 2))
    limit = [max(ALLOWED * t, FLOOR[case.dtype]) for t in theirs]
    right = all(o <= a and p[0].isfinite().all() for o, a, p in zip(ours, limit, parts, strict=True))
    return row | {"right": bool(right), "errors": ours, "pytorch": theirs}


def behaviours() -> dict[str, bool]:
    """Streams, CUDA graphs, ``out=``, compile, deterministic gradients, inference mode."""
    x = torch.randn(4096, 4096, device="cuda", dtype=BF16)
    w = torch.ones(4096, device="cuda", dtype=BF16)
    expected = ops.rms_norm(x, w)
    found: dict[str, bool] = {}
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = torch.zeros_like(x)
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        on_side = ops.rms_norm(late, w)
    side.synchronize()
    found["current stream"] = torch.equal(on_side, expected)
    graph, held = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph):
        captured = ops.rms_norm(held, w)
    held.copy_(2 * x)
    graph.replay()
    found["cuda graph"] = torch.equal(captured, ops.rms_norm(2 * x, w))
    found["cuda graph with a workspace"] = _captured_product()
    out = torch.empty_like(x)
    found["out="] = ops.rms_norm(x, w, out=out) is out and torch.equal(out, expected)
    compiled = torch.compile(lambda x, w: ops.rms_norm(x, w) + 1, fullgraph=True)
    found["torch.compile"] = torch.allclose(compiled(x, w), expected + 1)
    with torch.inference_mode():
        found["inference mode"] = torch.equal(ops.rms_norm(x, w), expected)
    torch.use_deterministic_algorithms(True)
    runs = [_forward_and_backward(ops.rms_norm, [x, w])[1] for _ in range(2)]
    torch.use_deterministic_algorithms(False)
    found["deterministic"] = all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    return found


def _captured_product() -> bool:
    """Rows that no tensor map reaches may be copied into a workspace, which must be the graph's own."""
    a, b = (torch.randn(s, 101, device="cuda", dtype=BF16) for s in (100, 99))
    bias = torch.zeros(99, device="cuda", dtype=BF16)
    expected = ops.linear(a, b, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ops.linear(a, b, bias)
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    return torch.equal(captured, expected)


def timed_calls(case: Case) -> dict[str, dict[str, Callable[[], object]]]:
    """Of ours, eager, compiled and other peers: forward, and forward with backward."""
    inputs, operator = case.inputs("cuda"), case.operator
    timed = operator.alone or operator
    variants = {"ours": timed.ours, "eager": timed.theirs, "compile": torch.compile(timed.theirs)} | operator.peers
    inputs = inputs if operator.alone is None else operator.alone.prepare(*inputs)
    calls: dict[str, dict[str, Callable[[], object]]] = {
        "forward": {n: torch.no_grad()(partial(f, *inputs)) for n, f in variants.items()}
    }
    if operator.gradients:
        calls["forward+backward"] = {n: partial(_forward_and_backward, f, inputs) for n, f in variants.items()}
    return calls


def time_case(case: Case, timer: Timer) -> list[dict[str, Any]]:
    """Device seconds of each."""
    return [{"case": f"{case} {what}", **timer.medians(calls)} for what, calls in timed_calls(case).items()]


def show_times(row: dict[str, Any]) -> None:
    """The times of a case, and ours beside the best peer's."""
    times = {n: s * 1e6 for n, s in row.items() if n != "case"}
    best = min(t for n, t in times.items() if n != "ours")
    listed = ", ".join(f"{n} {t:.1f}" for n, t in times.items())
    print(f"{row['case']:60} {listed} us: {best / times['ours']:.2f}", flush=True)


def host_times() -> dict[str, float]:
    """Microseconds of a call that allocates its result, on small tensors, in rotated rounds."""
    x, w = torch.randn(64, 128, device="cuda", dtype=BF16), torch.ones(128, device="cuda", dtype=BF16)
    grad = x.clone().requires_grad_()
    calls: dict[str, Callable[[], Any]] = {
        "torch.add": lambda: torch.add(x, x),
        "ops.rms_norm": lambda: ops.rms_norm(x, w),
        "ops.softmax": lambda: ops.softmax(x),
        "ops.rms_norm, gradient wanted": lambda: ops.rms_norm(grad, w),
        "F.rms_norm": lambda: F.rms_norm(x, (128,), w, 1e-6),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(9):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(500):
                call()
            times[name].append((time.perf_counter() - begin) / 500 * 1e6)
    torch.cuda.synchronize()
    return {name: statistics.median(t) for name, t in times.items()}


def run(only: str, rounds: int, path: str, *, times_only: bool) -> bool:
    """All checks unless ``times_only``, then times; prints what is wrong and a table. False if anything is wrong."""
    found: dict[str, Any] = {"checks": [], "behaviours": {}, "times": [], "host_us": {}, "failures": []}

    def attempt(what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            found["failures"].append({"case": what, "error": f"{type(error).__name__}: {error}"[:2000]})
            print(f"failed: {what}: {str(error)[:300]}", flush=True)
            return None

    for case in () if times_only else checked(only):
        row = attempt(str(case), lambda case=case: check(case))
        if row is not None:
            found["checks"].append(row)
            if not row["right"]:
                print(f"wrong: {json.dumps(row)}", flush=True)
    right = sum(row["right"] for row in found["checks"])
    print(f"{right} of {len(found['checks'])} right, {len(found['failures'])} failed")
    found["behaviours"] = {} if times_only else attempt("behaviours", behaviours) or {}
    print("\n".join(f"{'yes' if good else 'NO '} {name}" for name, good in found["behaviours"].items()))
    timer = Timer(torch, rounds)
    for case in timed(only):
        for row in attempt(f"times of {case}", lambda case=case: time_case(case, timer)) or ():
            found["times"].append(row)
            show_times(row)
        write(document(torch, conditions=timer.conditions(), **found), path)
    found["host_us"] = attempt("host times", host_times) or {}
    for name, microseconds in found["host_us"].items():
        print(f"host {name:32} {microseconds:6.2f} us")
    write(document(torch, conditions=timer.conditions(), **found), path)
    return right == len(found["checks"]) and not found["failures"] and all(found["behaviours"].values())


def main() -> None:
    arguments = parser(__doc__, ONLY)
    arguments.add_argument("--times", action="store_true", help="times alone, without checks")
    options = arguments.parse_args()
    if options.what == "build":
        build(options.only)
    elif not run(options.only, options.rounds, options.json, times_only=options.times):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
