"""Scaled dot-product attention, dense or causal, with grouped heads, and the logarithms of its sums."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any

from tilewright.diag import fail
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import (
    LOW,
    misfit,
    require_alike,
    require_options,
    require_tensors,
    stored,
    to_low_precision,
)
from tilewright.ops.functional.dispatched import Composition
from tilewright.ops.functional.score_mods import MOST_PLACES, MOST_TENSORS, READ, Captures, ScoreMod
from tilewright.ops.functional.varlen import varlen_attention_with_lse
from tilewright.ops.pytorch import Tensor, constant, torch, wants_gradient
from tilewright.ops.registration import TorchOp, op

_F = torch.nn.functional
WIDTHS = (64, 128, 256)
"""Widths of a head that kernels are made for; others go to PyTorch."""
_SCORED_WIDTHS = (64, 128)
"""Those of kernels whose scores a function changes; that gradients of keys and of values are sums of one kernel."""


def _scores(q: Any, k: Any, scale: float, causal: bool, changed: Changed | None = None) -> tuple[Any, Any]:
    """scale q k^T in float32 or wider, ``changed`` by a function, -inf where a query may not see a key; and the
    derivative by what it was."""
    exact = torch.promote_types(q.dtype, torch.float32)
    x, slope = torch.matmul(q.to(exact), k.to(exact).transpose(-1, -2)) * scale, None
    if changed is not None:
        places = (torch.arange(n, device=x.device) for n in x.shape)
        found, slope = changed(
            x, *(p.view([-1 if axis == i else 1 for axis in range(4)]) for i, p in enumerate(places))
        )
        x = torch.as_tensor(found).expand(x.shape)
    if causal:
        seen = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
        x = x.masked_fill(~seen, float("-inf"))
    return x, slope


Changed = Callable[..., tuple[Any, Any]]
"""(score, batch, head, query, key) to the new score and its derivative by the old one, None for 1."""


def _repeated(t: Any, group: int) -> Any:
    return t.repeat_interleave(group, 1) if group > 1 else t


def _attended(q: Any, k: Any, v: Any, scale: float, causal: bool, group: int, bq: Any, bk: Any) -> Any:
    y = _F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=group > 1)
    return y.transpose(1, 2).contiguous()


def _attended_with_lse(q: Any, k: Any, v: Any, scale: float, causal: bool, group: int, bq: Any, bk: Any) -> Any:
    lse = torch.logsumexp(_scores(q, _repeated(k, group), scale, causal)[0], -1)
    return _attended(q, k, v, scale, causal, group, bq, bk), lse


# -- the backward -----------------------------------------------------------------------------------------------------


def _by_kernels(do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool) -> Any:
    """By three kernels, in one order of sums: the same bits every time. ``o`` has heads before tokens, as ``do``; so
    have the results, which lie in memory the other way round."""
    return _gradients(_backwards[q.shape[-1]], do, q, k, v, o, lse, scale, causal)


def _gradients(
    operators: tuple[TorchOp, ...], do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool,
    read: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    queries, *keys = operators
    do, q, k, v = (_in_aligned_rows(t) for t in (do, q, k, v))
    options = {"scale": scale, "causal": causal, "group": q.shape[1] // k.shape[1]}
    rows = _rows(do, o, width=q.shape[-1])
    found = [run(do, q, k, v, lse, rows, *read, **options) for run in keys]
    dk, dv = found if len(found) > 1 else found[0]
    dq = queries(do, q, k, v, lse, rows, *read, **options)
    return tuple(t.transpose(1, 2) for t in (dq, _summed(dk, k.shape[1], k.dtype), _summed(dv, v.shape[1], v.dtype)))


def _in_aligned_rows(t: Any) -> Any:
    """The tensor, or a copy of it where no tensor copy reaches its rows: four operands staged by threads leave the
    gradients' products neither registers nor shared memory."""
    steps = (t.storage_offset(), *(t.stride(axis) for axis in range(3) if t.shape[axis] > 1))
    if t.stride(3) == 1 and not any(step * t.element_size() % MAX_VECTOR_BYTES for step in steps):
        return t
    return t.clone(memory_format=torch.contiguous_format)


def _delta(do: Any, o: Any, bs: int, width: int) -> Any:
    return (do.float() * o.float()).sum(-1)


def _query_gradient(
    do: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any, scale: float, causal: bool, group: int, bq: int, bk: int,
    changed: Changed | None = None,
) -> Any:  # fmt: skip
    _, ds = _of_scores(do, q, k, v, lse, delta, scale, causal, group, changed)
    return (ds @ _repeated(k, group).float()).to(q.dtype).transpose(1, 2).contiguous()


def _key_gradients(
    do: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any, scale: float, causal: bool, group: int, bq: int, bk: int,
    changed: Changed | None = None,
) -> Any:  # fmt: skip
    p, ds = _of_scores(do, q, k, v, lse, delta, scale, causal, group, changed)
    found = ds.transpose(-1, -2) @ q.float(), p.transpose(-1, -2) @ do.float()
    return tuple(x.to(q.dtype).transpose(1, 2).contiguous() for x in found)


def _of_scores(
    do: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any, scale: float, causal: bool, group: int,
    changed: Changed | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Probabilities, and the gradient of scores before ``scale``."""
    x, slope = _scores(q, _repeated(k, group), scale, causal, changed)
    p = torch.exp(x - lse[..., None])
    ds = p * (do.float() @ _repeated(v, group).float().transpose(-1, -2) - delta[..., None]) * scale
    return p, ds if slope is None else ds * slope


_rows = op(name="tilewright::attention_delta", outputs=("delta",), dtypes={"delta": "f32"}, fallback=_delta)(
    kernels.attention_delta
)


def _backward_operators(width: int) -> tuple[TorchOp, ...]:
    """The gradient of queries, and those of keys and values, of heads of ``width``: by one operator or by two."""
    name, of_keys = f"tilewright::attention_{width}", kernels.attention_key_gradients(width)
    queries = op(name=f"{name}_query_gradient", outputs=("dq",), fallback=_query_gradient)(
        kernels.attention_query_gradient(width)
    )
    if width in _SCORED_WIDTHS:
        keys = op(name=f"{name}_key_gradients", outputs=("dk", "dv"), fallback=_key_gradients)(of_keys)
        return queries, keys
    key, value = (
        op(
            name=f"{name}_{of}_gradient",
            outputs=(f"d{of[0]}",),
            fallback=lambda *given, place=place: _key_gradients(*given)[place],
        )(of_keys)
        for place, of in enumerate(("key", "value"))
    )
    return queries, key, value


_backwards = {width: _backward_operators(width) for width in WIDTHS}


def _summed(grad: Any, groups: int, dtype: Any) -> Any:
    """Of (batch, tokens, heads, width), the sum of the heads of queries that share one of ``groups`` heads of keys."""
    if grad.shape[2] != groups:
        grad = grad.unflatten(2, (groups, -1)).sum(3, dtype=torch.float32)
    return grad.to(dtype).contiguous()


def _fake(do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool) -> Any:
    return tuple(t.new_empty((t.shape[0], t.shape[2], t.shape[1], t.shape[3])).transpose(1, 2) for t in (q, k, v))


_attention_backward = Composition(
    "attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, float scale, bool causal)"
    " -> (Tensor, Tensor, Tensor)",
    _by_kernels,
    _fake,
)


def _gradient(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, scale: float, causal: bool) -> Any:
    return _attention_backward(do.transpose(1, 2), q, k, v, o.transpose(1, 2), lse, scale, causal)


@cache
def _operator(width: int, *, lse: bool) -> TorchOp:
    """For heads of ``width``; with the logarithms of sums, which a gradient needs."""
    kernel = kernels.attention(width)
    if not lse:
        return op(name=f"tilewright::attention_{width}", outputs=("o",), fallback=_attended)(kernel)
    return op(
        name=f"tilewright::attention_{width}_lse",
        outputs=("o", "lse"),
        dtypes={"lse": "f32"},
        backward=_gradient,
        fallback=_attended_with_lse,
    )(kernel)


for _width in WIDTHS:  # all before torch.compile traces a call
    for _lse in (False, True):
        _operator(_width, lse=_lse)


# -- scores that a function changes ---------------------------------------------------------------------------------
def _with_scores(changed: Changed, q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """Attention by PyTorch in (batch, tokens, heads, width), and the logarithms; a row whose scores are all -inf is
    zeros."""
    group = q.shape[1] // k.shape[1]
    x, _ = _scores(q, _repeated(k, group), scale, causal, changed)
    y = torch.matmul(x.softmax(-1).nan_to_num(0.0), _repeated(v, group).to(x.dtype)).to(q.dtype)
    return y.transpose(1, 2).contiguous(), x.logsumexp(-1)


class _Scored:
    """Operators of a function of scores, each made when it is first needed. Their tensors are q, k, v and those that
    the function reads."""

    def __init__(self, mod: ScoreMod) -> None:
        self.mod = mod
        self._operators: dict[tuple[int, bool], TorchOp] = {}

    def operator(self, width: int, *, gradient: bool) -> TorchOp:
        """The operator for heads of ``width``; with ``gradient`` it also returns logarithms of sums and has a
        backward."""
        found = self._operators.get((width, gradient))
        if found is None:
            kernel = kernels.scored_attention(width, self.mod.score, self.mod.axes)
            if gradient:
                parts = self._backward_operators(width)

                def backward(
                    q: Tensor, k: Tensor, v: Tensor, c0: Any, c1: Any, c2: Any, c3: Any, o: Tensor, lse: Tensor,
                    do: Tensor, scale: float, causal: bool,
                ) -> Any:  # fmt: skip
                    heads, read = (do.transpose(1, 2), q, k, v, o.transpose(1, 2)), (c0, c1, c2, c3)
                    return *_gradients(parts, *heads, lse, scale, causal, read), None, None, None, None

                results: dict[str, Any] = {"outputs": ("o", "lse"), "dtypes": {"lse": "f32"}}
                found = op(**results, backward=backward, fallback=self._attended)(kernel)
            else:
                found = op(outputs=("o",), fallback=lambda *given: self._attended(*given)[0])(kernel)
            self._operators[width, gradient] = found
        return found

    def _backward_operators(self, width: int) -> tuple[TorchOp, TorchOp]:
        slope, axes = self.mod.with_slope, self.mod.axes

        def by_pytorch(compute: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *given: compute(*given[:6], *given[10:], self._changed(given[6:10]))

        return (
            op(outputs=("dq",), fallback=by_pytorch(_query_gradient))(
                kernels.scored_query_gradient(width, slope, axes)
            ),
            op(outputs=("dk", "dv"), fallback=by_pytorch(_key_gradients))(
                kernels.scored_key_gradients(width, slope, axes)
            ),
        )

    def _changed(self, read: tuple[Any, ...]) -> Changed:
        return partial(self.mod.by_pytorch, read)

    def _attended(self, q: Any, k: Any, v: Any, *others: Any) -> tuple[Any, Any]:
        y, lse = _with_scores(self._changed(others[:4]), q, k, v, *others[4:6])
        return y, torch.where(lse == -torch.inf, torch.inf, lse).float()


_MOST_FUNCTIONS = 64
"""Functions of scores whose kernels are kept; of more, those used longest ago are made anew."""
_functions = OrderedDict[Hashable, _Scored]()


def _scored_by(function: Callable[..., Any], captures: Captures) -> _Scored:
    key, traced = captures.key, None
    if key is None:
        traced = ScoreMod(function, captures)
        key = traced.key
    found = _functions.pop(key, None) or _Scored(traced or ScoreMod(function, captures))
    _functions[key] = found
    if len(_functions) > _MOST_FUNCTIONS:
        _functions.popitem(last=False)
    return found


@constant
def _scored_operator(function: Callable[..., Any], width: int, gradient: bool) -> str:
    """The name of what a compiled graph calls, whose operators stay."""
    captures = Captures(function)
    if captures.tensors:
        fail(
            "JIT010",
            found=f"a score_mod that reads {len(captures.tensors)} tensors, under torch.compile",
            required="one that reads numbers alone, or a call outside of the compiled function",
            help="torch.compiler.disable a function around ops.attention: one break of the graph",
        )
    found = _scored_by(function, captures)
    _of_graphs.append(found)
    return found.operator(width, gradient=gradient).name.partition("::")[2]


_of_graphs: list[_Scored] = []


def _scored(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, score_mod: Callable[..., Any], out: Tensor | None
) -> Tensor:
    gradient = wants_gradient((q, k, v))
    width = next((w for w in _SCORED_WIDTHS if w == q.shape[-1]), 0)  # a number also of a graph's symbol
    options = {"scale": scale, "causal": causal, "group": q.shape[1] // k.shape[1]}
    if gradient and out is not None:
        fail("JIT011", found="a gradient through out=", required="tensors that need none, or torch.no_grad()")
    served = is_of_kernels(q, k, v, _SCORED_WIDTHS) and max(*q.shape[:3], k.shape[2]) <= MOST_PLACES
    if torch.compiler.is_compiling() and not served:
        return stored(_scored_by_pytorch(q, k, v, scale, causal, score_mod), out)
    if torch.compiler.is_compiling():
        run = getattr(torch.ops.tilewright_ops, _scored_operator(score_mod, width, gradient)).default
        # Nobody reads the result: by the call Dynamo learns what the function reads, and compiles again if it changes.
        score_mod(q.new_zeros(()).float(), *(q.new_zeros((), dtype=torch.int64) for _ in range(4)))
        found = run(q, k, v, None, None, None, None, *options.values(), None, None)
        return stored((found[0] if gradient else found).transpose(1, 2), out)
    captures = Captures(score_mod)
    learned, by_kernels = wants_gradient(tuple(captures.tensors)), q.is_cuda or is_simulated()
    if not served or any(t.dtype not in READ for t in captures.tensors) or (learned and not by_kernels):
        return stored(_scored_by_pytorch(q, k, v, scale, causal, score_mod), out)
    if learned:
        fail(
            "JIT011",
            found="a gradient of a tensor that a score_mod reads",
            required="tensors that need none, or torch.no_grad()",
            help="torch.nn.attention.flex_attention has gradients of such tensors",
        )
    run = _scored_by(score_mod, captures).operator(width, gradient=gradient)
    read = (*captures.tensors, *(None,) * (MOST_TENSORS - len(captures.tensors)))
    if out is None:
        found = run(q, k, v, *read, **options)
        return (found[0] if gradient else found).transpose(1, 2)
    require_alike(out, q)
    run(q, k, v, *read, **options, out=out.transpose(1, 2))
    return out


def _scored_by_pytorch(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, score_mod: Callable[..., Any]
) -> Tensor:
    return _with_scores(lambda *given: (score_mod(*given), None), q, k, v, scale, causal)[0].transpose(1, 2)


# -- windows, softcap and sinks ---------------------------------------------------------------------------------------
def _packed(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, window: int | None, softcap: float | None, sinks: Any
) -> tuple[Tensor, Tensor]:
    """As sequences of one length, and the logarithms. Of packed sequences the last query stands beside the last key,
    here the first beside the first: keys behind the last query are left out."""
    batch, _, queries, _ = q.shape
    if causal:
        if queries > k.shape[2]:
            misfit("attention", f"{queries} queries, {k.shape[2]} keys", "as many keys, or no causal=True")
        k, v = k[:, :, :queries], v[:, :, :queries]
    places = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
    options: dict[str, Any] = {"causal": causal, "scale": scale, "window": window, "softcap": softcap, "sinks": sinks}
    cu_q, cu_k = places * queries, places * k.shape[2]
    q, k, v = (t.transpose(1, 2).flatten(0, 1) for t in (q, k, v))
    y, lse = varlen_attention_with_lse(q, k, v, cu_q, cu_k, **options)
    return y.unflatten(0, (batch, queries)).transpose(1, 2), lse.unflatten(1, (batch, queries)).transpose(0, 1)


# -- the functions --------------------------------------------------------------------------------------------------


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    score_mod: Callable[..., Any] | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """softmax(scale q k^T) v, for q of (batch, heads, tokens, width) and k, v of (batch, groups, keys, width).

    ``groups`` divides heads. ``causal``: query i sees keys up to i. ``scale`` is 1 / sqrt(width) if not given. Heads of
    64, 128 or 256 elements of bfloat16 or float16 run on kernels, forward and backward, others on PyTorch's attention.
    Under autocast in its dtype. The result lies in memory as (batch, tokens, heads, width), as that of PyTorch's flash
    attention, so that to join the heads of a token moves nothing; so do gradients.

    ``window``: of the keys that a query sees, the last so many (causal only). ``softcap``: scores x become
    softcap tanh(x / softcap). ``sinks``, one a head of queries, are scores of a key without a value. These three run
    on ``varlen_attention``, which takes rows of tokens: heads that lie before tokens are copied.

    ``score_mod(score, batch, head, query, key)``, as that of ``torch.nn.attention.flex_attention``, changes each scaled
    score; a query whose scores are all -inf has zeros. It is traced once, and functions of one text and one set of
    numbers share a kernel: positions are integers of 64 bits, numbers that it reads constants; it may read elements of
    up to four tensors, ``slopes[head]``, whose gradient is refused (JIT011), as branches are (JIT010). A function that
    reads an object or a container, or is one, is traced at each call. Its kernels have heads of 64 and 128.
    """
    q, k, v, factor = _given(q, k, v, scale, causal=causal, window=window, softcap=softcap)
    if window is not None or softcap is not None or sinks is not None:
        if score_mod is not None:
            misfit("attention", "a score_mod beside window, softcap or sinks", "these in the score_mod")
        return stored(_packed(q, k, v, factor, causal, window, softcap, sinks)[0], out)
    if score_mod is not None:
        return _scored(q, k, v, factor, causal, score_mod, out)
    if not q.shape[0] and q.shape[-1] == v.shape[-1]:  # of which PyTorch's attention on a GPU makes None
        return stored(q + (k.sum() + v.sum()), out)
    if not is_of_kernels(q, k, v) or factor <= 0:  # kernels take the greatest score before they scale
        grouped: dict[str, Any] = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}  # SDPA takes no symbol
        y = _F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=factor, **grouped)
        return stored(y, out)
    if wants_gradient((q, k, v)):
        return stored(_run(q, k, v, factor, causal, lse=True)[0], out)
    return _run(q, k, v, factor, causal, lse=False, out=out)


def attention_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(attention, the logarithm of each row's sum of exponentials in float32, of (batch, heads, tokens), sinks counted
    in). The second has no gradient. JIT010 for heads, dtypes or scales that the kernel has not."""
    q, k, v, factor = _given(q, k, v, scale, causal=causal, window=window, softcap=softcap)
    if window is not None or softcap is not None or sinks is not None:
        return _packed(q, k, v, factor, causal, window, softcap, sinks)
    if not k.shape[2]:
        return attention(q, k, v, causal=causal, scale=scale), q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
    if not is_of_kernels(q, k, v) or factor <= 0:
        found = f"heads of {q.shape[-1]} elements of {q.dtype}, scale {factor}"
        misfit("attention_with_lse", found, f"heads of {WIDTHS} elements of bfloat16 or float16, a scale above 0")
    return _run(q, k, v, factor, causal, lse=True)


def _run(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, *, lse: bool, out: Any = None) -> Any:
    operator, options = (
        _operators[int(q.shape[-1]), lse],  # a tensor under torch.jit.trace
        {"scale": scale, "causal": causal, "group": q.shape[1] // k.shape[1]},
    )
    if out is not None:
        require_alike(out, q)
        operator(q, k, v, **options, out=out.transpose(1, 2))
        return out
    found = operator(q, k, v, **options)
    return (found[0].transpose(1, 2), found[1]) if lse else found.transpose(1, 2)


_operators = {(width, lse): _operator(width, lse=lse) for width in WIDTHS for lse in (False, True)}


def _given(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, **options: Any
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Operands in autocast's dtype, whose shapes fit (JIT010), and the scale."""
    require_tensors("attention", (q, k, v))
    require_options("attention", scale=scale, **options)
    q, k, v = to_low_precision(q, k, v)
    _check(q, k, v)
    return q, k, v, q.shape[-1] ** -0.5 if scale is None else scale


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    fits = q.dim() == k.dim() == 4 and k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    fits = fits and q.dtype == k.dtype == v.dtype and q.dtype.is_floating_point
    if not fits or not k.shape[1] or not k.shape[3] or q.shape[1] % k.shape[1]:
        misfit(
            "attention",
            ", ".join(f"{name} of {tuple(t.shape)}, {t.dtype}" for name, t in (("q", q), ("k", k), ("v", v))),
            "floats of one dtype: q of (batch, heads, tokens, width), k, v of (batch, groups, keys, width), groups "
            "dividing heads",
        )


def is_of_kernels(q: Tensor, k: Tensor, v: Tensor, widths: tuple[int, ...] = WIDTHS) -> bool:
    """A kernel has heads of this width and dtype."""
    some = q.numel() > 0 and k.shape[2] > 0  # without keys there is no greatest score
    return q.dtype in LOW and q.dtype == k.dtype == v.dtype and q.shape[-1] in widths and some
