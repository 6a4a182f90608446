"""Every function of ``tilewright.ops`` asked the same questions: a small call of each, and what PyTorch's own operators
would answer."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

import tilewright as tw
from support.operators import normal
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tilewright import ops  # noqa: E402

F = torch.nn.functional
BF16 = torch.bfloat16
TARGET = torch.tensor([3, 0, -100, 7, 1, 2])
IDS = torch.tensor([[0, 1], [2, 1], [1, 0], [0, 2], [2, 0], [1, 2]])
OFFSETS = torch.tensor([0, 2, 6], dtype=torch.int32)


@dataclass(frozen=True)
class Asked:
    """A call: the function on the tensors that ``made`` returns; the first ``floats`` of them may want gradients."""

    function: Callable[..., Any]
    made: Callable[[], tuple[Any, ...]]
    floats: int = 1
    gradient: bool = True
    out: bool = True
    rows: bool = True  # of any number, none included
    fakes: bool = True  # of CUDA, where PyTorch is a build of the CPU


def _low(*shape: int) -> Any:
    return normal(*shape, dtype=BF16)


def _eight(*shape: int) -> Any:
    return normal(*shape).to(torch.float8_e4m3fn)


def _pages() -> tuple[Any, ...]:
    table = torch.tensor([[3, 1, 4], [5, -1, -1]], dtype=torch.int32)
    lengths = torch.tensor([40, 9], dtype=torch.int32)
    return _low(2, 4, 64), _low(8, 16, 2, 64), _low(8, 16, 2, 64), table, lengths


def _unpermuted(y: Any, ids: Any, weights: Any) -> Any:
    packed, plan = ops.permute(y, ids, 3)
    return ops.unpermute(packed, plan, weights)


n = normal
HEADS = (1, 2, 6, 64)
ASKED: dict[str, Asked] = {
    "softmax": Asked(ops.softmax, lambda: (n(6, 10),)),
    "log_softmax": Asked(ops.log_softmax, lambda: (n(6, 10),)),
    "cumsum": Asked(ops.cumsum, lambda: (n(6, 10),)),
    "rms_norm": Asked(ops.rms_norm, lambda: (n(6, 10), n(10)), 2),
    "layer_norm": Asked(ops.layer_norm, lambda: (n(6, 10), n(10), n(10)), 3),
    "add_rms_norm": Asked(ops.add_rms_norm, lambda: (n(6, 10), n(6, 10), n(10)), 3, out=False),
    "add_layer_norm": Asked(ops.add_layer_norm, lambda: (n(6, 10), n(6, 10), n(10), n(10)), 4, out=False),
    "swiglu": Asked(ops.swiglu, lambda: (n(6, 10), n(6, 10)), 2),
    "geglu": Asked(ops.geglu, lambda: (n(6, 10), n(6, 10)), 2),
    "cross_entropy": Asked(ops.cross_entropy, lambda: (n(6, 10), TARGET), out=False, rows=False),
    "linear_cross_entropy": Asked(
        ops.linear_cross_entropy, lambda: (n(6, 8), n(10, 8), TARGET), 2, out=False, rows=False
    ),
    "rms_norm_rotary": Asked(
        ops.rms_norm_rotary, lambda: (n(1, 5, 3, 8), n(8), n(5, 4), n(5, 4)), 2, out=False, fakes=False
    ),
    "rotary": Asked(ops.rotary, lambda: (n(1, 5, 3, 8), n(5, 4), n(5, 4)), out=False, fakes=False),
    "embedding": Asked(lambda w, i: ops.embedding(i, w), lambda: (n(8, 10), TARGET.clamp(0)), out=False, rows=False),
    "index_add": Asked(
        lambda x, s, i: ops.index_add(x, 0, i, s), lambda: (n(8, 10), n(6, 10), TARGET.clamp(0)), 2, out=False
    ),
    "linear": Asked(ops.linear, lambda: (n(6, 10), n(4, 10), n(4)), 3),
    "matmul": Asked(ops.matmul, lambda: (n(6, 10), n(10, 4)), 2),
    "quantize": Asked(ops.quantize, lambda: (n(6, 10),), gradient=False, out=False),
    "linear of 8 bits": Asked(
        lambda x, w, a, b: ops.linear(x, w, x_scale=a, weight_scale=b, dtype=BF16),
        lambda: (_eight(6, 16), _eight(16, 16), n(6).abs(), n(16).abs()),
        0,
        gradient=False,
        out=False,
        rows=False,
        fakes=False,
    ),
    "grouped_matmul": Asked(ops.grouped_matmul, lambda: (n(6, 10), n(2, 4, 10), OFFSETS), 2),
    "attention": Asked(ops.attention, lambda: (_low(*HEADS), _low(*HEADS), _low(*HEADS)), 3),
    "attention, score_mod": Asked(
        lambda q, k, v, **o: ops.attention(q, k, v, score_mod=_capped, **o),
        lambda: (_low(*HEADS), _low(*HEADS), _low(*HEADS)),
        3,
    ),
    "attention_with_lse": Asked(
        ops.attention_with_lse, lambda: (_low(*HEADS), _low(*HEADS), _low(*HEADS)), 3, out=False, rows=False
    ),
    "varlen_attention": Asked(
        ops.varlen_attention, lambda: (_low(6, 4, 64), _low(6, 2, 64), _low(6, 2, 64), OFFSETS, OFFSETS), 3, rows=False
    ),
    "varlen_attention_with_lse": Asked(
        ops.varlen_attention_with_lse,
        lambda: (_low(6, 4, 64), _low(6, 2, 64), _low(6, 2, 64), OFFSETS, OFFSETS),
        3,
        out=False,
        rows=False,
    ),
    "paged_decode": Asked(ops.paged_decode, _pages, 3, gradient=False, rows=False, fakes=False),
    "paged_decode_with_lse": Asked(
        ops.paged_decode_with_lse, _pages, 3, gradient=False, out=False, rows=False, fakes=False
    ),
    "merge_states": Asked(ops.merge_states, lambda: (n(3, 6, 10), n(3, 6)), 2, gradient=False, out=False, rows=False),
    "experts": Asked(
        lambda x, w, g, d, i: ops.experts(x, i, w, g, d),
        lambda: (_low(6, 64), n(6, 2).abs(), _low(3, 128, 64), _low(3, 64, 64), IDS),
        4,
        out=False,
    ),
    "moe": Asked(
        lambda x, r, g, d: ops.moe(x, r, g, d, k=2),
        lambda: (_low(6, 64), _low(3, 64), _low(3, 128, 64), _low(3, 64, 64)),
        4,
        out=False,
    ),
    "permute": Asked(lambda x, i: ops.permute(x, i, 3)[0], lambda: (n(6, 10), IDS), out=False),
    "unpermute": Asked(lambda x, w, i: _unpermuted(x, i, w), lambda: (n(6, 10), n(6, 2).abs(), IDS), 2, out=False),
}


def _capped(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 2.0 * torch.tanh(score / 2.0)


def _outputs(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _attempted(call: Callable[[], Any]) -> tuple[Any, str]:
    """What the call returns, or what it refuses."""
    try:
        return call(), ""
    except (tw.TilewrightError, RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        return None, f"{type(error).__name__}: {error}"


def _same(found: Any, wanted: Any) -> None:
    for got, exact in zip(_outputs(found), _outputs(wanted), strict=True):
        assert got.dtype == exact.dtype
        torch.testing.assert_close(got.float(), exact.float(), rtol=2e-2, atol=2e-2, equal_nan=True)


def test_all_are_asked() -> None:
    asked = {name.partition(",")[0] for name in ASKED}
    assert set(ops.__all__) - asked == {"simulated", "decode_parts", "paged_append"}  # of integers, and in place


@pytest.mark.parametrize("name", ASKED)
def test_strides_inference_mode_and_determinism(name: str) -> None:
    """What lies otherwise in memory, computed under other modes, is the same."""
    asked = ASKED[name]
    given = asked.made()
    wanted = asked.function(*given)
    apart = [torch.stack((t, t), -1)[..., 0] if t.dtype != torch.float8_e4m3fn else t for t in given]
    _same(asked.function(*apart), wanted)
    with torch.inference_mode():
        _same(asked.function(*given), wanted)
    torch.use_deterministic_algorithms(True)
    try:
        _same(asked.function(*given), wanted)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", [n for n, a in ASKED.items() if a.rows])
def test_no_rows(name: str) -> None:
    asked = ASKED[name]
    given = asked.made()
    rows = given[0].shape[0]
    none = [t[:0] if t.dim() > 1 and t.shape[0] == rows else t for t in given]
    if name == "grouped_matmul":
        none[2] = OFFSETS * 0
    for got, full in zip(_outputs(asked.function(*none)), _outputs(asked.function(*given)), strict=True):
        assert got.dim() == full.dim()
        assert got.dtype == full.dtype
        assert got.numel() == 0


@pytest.mark.parametrize("name", ASKED)
def test_compiled_and_exported(name: str) -> None:
    asked = ASKED[name]
    given = asked.made()
    torch._dynamo.reset()
    wanted = asked.function(*given)
    _same(torch.compile(asked.function, backend="aot_eager", fullgraph=True)(*given), wanted)

    class Model(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return asked.function(*tensors)

    _same(torch.export.export(Model(), given).module()(*given), wanted)


@pytest.mark.parametrize("name", ASKED)
def test_out(name: str) -> None:
    asked = ASKED[name]
    given = asked.made()
    wanted = _outputs(asked.function(*given))[0]
    if not asked.out:
        with pytest.raises(TypeError):
            asked.function(*given, out=wanted)
        return
    out = torch.empty_like(wanted)
    assert asked.function(*given, out=out) is out
    _same(out, wanted)
    for wrong in (wanted.new_empty((*wanted.shape, 1)), torch.empty_like(wanted, dtype=torch.float64)):
        with pytest.raises(tw.TilewrightError, match="JIT010"):
            asked.function(*given, out=wrong)
    if asked.gradient:
        with pytest.raises(tw.TilewrightError, match="JIT011"):
            asked.function(*_wanting(asked, given), out=out)


def _wanting(asked: Asked, given: tuple[Any, ...]) -> list[Any]:
    return [t.clone().requires_grad_() if i < asked.floats else t for i, t in enumerate(given)]


@pytest.mark.parametrize("name", ASKED)
def test_gradients_and_their_own(name: str) -> None:
    """There are some or a refusal, of gradients' gradients as well; none is silently zero."""
    asked = ASKED[name]
    leaves = _wanting(asked, asked.made())[: asked.floats]
    if not leaves:
        return
    given = (*leaves, *asked.made()[asked.floats :])
    if not asked.gradient:
        with pytest.raises((tw.TilewrightError, RuntimeError)):
            sum(y.float().sum() for y in _outputs(asked.function(*given))).backward()
        return
    y = _outputs(asked.function(*given))[0]
    grads = torch.autograd.grad(y.float().square().sum(), leaves, create_graph=True)
    assert all(g.shape == t.shape and g.dtype == t.dtype for g, t in zip(grads, leaves, strict=True))
    wide = sum(g.float().square().sum() for g in grads)
    twice, error = _attempted(lambda: torch.autograd.grad(wide, leaves, allow_unused=True))
    assert "JIT011" in error if error else any(t is not None and bool(t.any()) for t in twice)


@pytest.mark.parametrize("name", ASKED)
def test_batches(name: str) -> None:
    """``vmap`` is right, or refused."""
    asked = ASKED[name]
    given = asked.made()
    if given[0].dtype == torch.float8_e4m3fn:
        return
    batched = torch.stack((given[0], given[0] * 0.5))
    axes = (0, *(None,) * (len(given) - 1))
    found, error = _attempted(lambda: torch.vmap(asked.function, axes)(batched, *given[1:]))
    if error:
        return
    each = [_outputs(asked.function(x, *given[1:])) for x in batched]
    _same(found, tuple(torch.stack(parts) for parts in zip(*each, strict=True)))


def _misfits(given: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Arguments of which one does not fit."""
    found: dict[str, tuple[Any, ...]] = {}
    for i, t in enumerate(given):

        def changed(value: Any, i: int = i) -> tuple[Any, ...]:
            return (*given[:i], value, *given[i + 1 :])

        if len(given) > 1:
            found[f"{i} longer"] = changed(torch.cat((t, t, t)))
            found[f"{i} with more axes"] = changed(t[None, None, None])
        if t.is_floating_point():
            found[f"{i} of integers"] = changed(t.to(torch.int32))
    return found


@pytest.mark.parametrize("name", [n for n, a in ASKED.items() if a.fakes and len(a.made()) > 1])
def test_tensors_of_two_devices(name: str) -> None:
    asked, errors = ASKED[name], (tw.TilewrightError, RuntimeError)
    real = asked.made()
    with FakeTensorMode(allow_non_fake_inputs=True):
        given, others = ([torch.empty(t.shape, dtype=t.dtype, device=d) for t in real] for d in ("cuda", "cpu"))
        assert all(y.is_cuda for y in _outputs(asked.function(*given)))
        for i, other in enumerate(others):
            with pytest.raises(errors):
                asked.function(*given[:i], other, *given[i + 1 :])


@pytest.mark.parametrize("name", ASKED)
def test_arguments_that_do_not_fit(name: str) -> None:
    asked, silent = ASKED[name], list[str]()
    for what, given in _misfits(asked.made()).items():
        found, error = _attempted(lambda given=given: asked.function(*given))
        if not error:
            silent.append(f"{what}: {', '.join(str(tuple(y.shape)) for y in _outputs(found))}")
    assert silent == TAKEN.get(name, [])


TAKEN: dict[str, list[str]] = {
    "cumsum": ["0 of integers: (6, 10)"],
    "rms_norm": ["0 longer: (18, 10)", "0 with more axes: (1, 1, 1, 6, 10)"],
    "layer_norm": ["0 longer: (18, 10)", "0 with more axes: (1, 1, 1, 6, 10)"],
    "linear_cross_entropy": ["0 with more axes: ()", "1 longer: ()", "2 with more axes: ()"],
    "rms_norm_rotary": ["0 longer: (3, 5, 3, 8)"],
    "rotary": ["0 longer: (3, 5, 3, 8)"],
    "embedding": [
        *("0 longer: (6, 10)", "0 of integers: (6, 10)"),
        *("1 longer: (18, 10)", "1 with more axes: (1, 1, 1, 6, 10)"),
    ],
    "index_add": ["0 longer: (24, 10)"],
    "linear": ["0 longer: (18, 4)", "0 with more axes: (1, 1, 1, 6, 4)"],
    "matmul": ["0 longer: (18, 4)", *(f"{i} with more axes: (1, 1, 1, 6, 4)" for i in range(2))],
    "grouped_matmul": ["0 longer: (18, 4)"],  # rows behind the last group
    "varlen_attention": ["0 longer: (18, 4, 64)"],  # and behind the last sequence
    "varlen_attention_with_lse": ["0 longer: (18, 4, 64), (4, 18)"],
    "moe": ["0 longer: (18, 64)", "0 with more axes: (1, 1, 1, 6, 64)"],
    "permute": ["0 of integers: (12, 10)"],
    "unpermute": ["0 of integers: (6, 10)", "1 with more axes: (6, 10)"],
}
"""What of these is computed: other rows, batches of rows, PyTorch's promotion and broadcasting."""


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "None": lambda t: None,
    "a list": lambda t: t.float().tolist(),
    "an array": lambda t: t.float().numpy(),
    "a number": lambda t: 2.0,
    "text": lambda t: "x",
    "no axes": lambda t: t.flatten()[0].clone(),
    "an axis less": lambda t: t.select(0, 0),
    "more axes": lambda t: t[None, None],
    "longer": lambda t: torch.cat((t, t, t)),
    "wider": lambda t: torch.cat((t, t, t), -1),
    "no rows": lambda t: t[:0],
    "no columns": lambda t: t[..., :0],
    "rows that are one": lambda t: t[:1].expand(t.shape),
    "turned": lambda t: t.transpose(0, -1),
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "8 bits": lambda t: t.float().to(torch.float8_e4m3fn),
    "complex": lambda t: t.float().to(torch.complex64),
    "flags": lambda t: t.float() > 0,
    "int32": lambda t: t.float().to(torch.int32),
    "uint8": lambda t: t.float().clamp(0, 7).to(torch.uint8),
    "sparse": lambda t: t.float().to_sparse(),
    "meta": lambda t: t.to("meta"),
}
"""What takes the place of a tensor."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", ASKED)
def test_hostile_arguments(name: str) -> None:
    """Each is refused by an error of ours, or computed alike by PyTorch and by the kernels in the simulator."""
    asked, wrong = ASKED[name], list[str]()
    given = asked.made()
    for i, t in enumerate(given):
        for what, change in HOSTILE.items():
            called = (*given[:i], change(t), *given[i + 1 :])
            try:
                found = _outputs(asked.function(*called))
                if what == "meta":
                    ok = all(y.is_meta for y in found)
                else:
                    with ops.simulated():
                        ok = all(map(_alike, _outputs(asked.function(*called)), found))
            except tw.TilewrightError as error:
                ok = "= found: " in str(error) and "= required: " in str(error)
            except Exception as error:
                if "cross_entropy" in name and "is out of bounds" in str(error):
                    continue  # of a number that is no class PyTorch tells on the CPU
                wrong.append(f"{i} {what}: {type(error).__name__}: {error}")
                continue
            if not ok:
                wrong.append(f"{i} {what}")
    assert not wrong


OPTIONS = ("x", 1.5, -7, 10**9, float("nan"), [1], None, torch.ones(2), True, 0)
"""What is given for each option."""


def _called(name: str) -> tuple[Any, ...]:
    """Tensors of a call as users order them."""
    made = ASKED[name].made()
    match name:
        case "embedding":
            return made[1], made[0]
        case "index_add":
            return made[0], 0, made[2], made[1]
        case "experts":
            return made[0], made[4], *made[1:4]
        case "permute":
            return made[0], made[1], 3
        case "unpermute":
            return ops.permute(made[0], made[2], 3)
        case _:
            return made


@pytest.mark.parametrize("name", [n for n in ASKED if n in ops.__all__])
def test_hostile_options(name: str) -> None:
    """Each is computed, or refused by an error of ours."""
    function, given, wrong = getattr(ops, name), _called(name), list[str]()
    needed: dict[str, Any] = {"k": 2} if name == "moe" else {}
    for option in list(inspect.signature(function).parameters)[len(given) :]:
        for value in OPTIONS:
            try:
                function(*given, **needed | {option: value})
            except tw.TilewrightError as error:
                if not all(part in str(error) for part in ("= found: ", "= required: ")):
                    wrong.append(f"{option}={value}: {error}")
            except Exception as error:
                if "is out of bounds" not in str(error):  # PyTorch's, of a class that is none
                    wrong.append(f"{option}={value}: {type(error).__name__}: {error}")
    assert not wrong


def _alike(got: Any, exact: Any) -> bool:
    if got.shape != exact.shape or got.dtype != exact.dtype:
        return False
    wide = torch.complex128 if exact.is_complex() else torch.float64
    got, exact = got.to(wide), exact.to(wide)
    off = torch.where((got == exact) | (got.isnan() & exact.isnan()), 0, (got - exact).abs())
    scale = exact.abs().nan_to_num(0, 0, 0)
    return not exact.numel() or float(off.max()) <= 2e-2 * max(1.0, float(scale.max()))


def _attended(q: Any, k: Any, v: Any, *_: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v)


def _rows_attended(q: Any, k: Any, v: Any, *_: Any) -> Any:
    return F.scaled_dot_product_attention(q, *(t.repeat_interleave(q.shape[-2] // t.shape[-2], -2) for t in (k, v)))


def _with_sums(y: Any) -> tuple[Any, Any]:
    return y, y.float()


def _decoded(q: Any, k: Any, *_: Any) -> Any:
    return F.scaled_dot_product_attention(q, *[k.reshape(-1, *k.shape[-2:])[:2, :1]] * 2)


AUTOCAST: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "rms_norm": lambda x, w: F.rms_norm(x, (10,), w),
    "layer_norm": lambda x, w, b: F.layer_norm(x, (10,), w, b),
    "add_rms_norm": lambda x, r, w: (F.rms_norm(x + r, (10,), w), x + r),
    "add_layer_norm": lambda x, r, w, b: (F.layer_norm(x + r, (10,), w, b), x + r),
    "swiglu": lambda g, u: F.silu(g) * u,
    "geglu": lambda g, u: F.gelu(g) * u,
    "cross_entropy": lambda x, t: F.cross_entropy(x, t),
    "linear_cross_entropy": lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
    "rms_norm_rotary": lambda x, w, c, s: F.rms_norm(x, (8,), w),
    "rotary": lambda x, c, s: x * c.repeat(1, 2)[:, None] + x * s.repeat(1, 2)[:, None],
    "embedding": lambda w, i: F.embedding(i, w),
    "index_add": lambda x, s, i: torch.index_add(x, 0, i, s),
    "linear": F.linear,
    "matmul": lambda a, b: a @ b,
    "quantize": lambda x: (x.to(torch.float8_e4m3fn), x.float()),
    "linear of 8 bits": lambda x, w, a, b: x.to(BF16),
    "grouped_matmul": lambda x, w, o: x @ w.select(0, 0).t(),
    "attention": _attended,
    "attention, score_mod": _attended,
    "attention_with_lse": lambda *given: _with_sums(_attended(*given)),
    "varlen_attention": _rows_attended,
    "varlen_attention_with_lse": lambda *given: _with_sums(_rows_attended(*given)),
    "paged_decode": _decoded,
    "paged_decode_with_lse": lambda *given: _with_sums(_decoded(*given)),
    "merge_states": lambda y, s: (y.select(0, 0), s.select(0, 0)),
    "experts": lambda x, w, g, d, i: F.linear(x, g.select(0, 0)),
    "moe": lambda x, r, g, d: F.linear(x, g.select(0, 0)),
    "permute": lambda x, i: x,
    "unpermute": lambda x, w, i: x,
}
"""What has the dtype that PyTorch's own functions give."""


@pytest.mark.parametrize(
    ("name", "device"), [(n, d) for n, a in ASKED.items() for d in ("cpu", "cuda") if d == "cpu" or a.fakes]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, BF16])
def test_autocast_gives_the_dtypes_of_pytorch(name: str, device: str, dtype: Any) -> None:
    """On fake tensors of CUDA. All floats of 16 or more bits have this dtype, but sums in float32."""
    asked = ASKED[name]
    given = [t.to(dtype) if t.is_floating_point() and t.element_size() > 1 else t for t in asked.made()]
    if name in ("merge_states", "linear of 8 bits"):
        given[1:] = [t.float() if t.element_size() > 1 else t for t in given[1:]]
    with FakeTensorMode(allow_non_fake_inputs=True) if device == "cuda" else nullcontext():
        made = given if device == "cpu" else [torch.empty(t.shape, dtype=t.dtype, device=device) for t in given]
        torch.set_autocast_enabled(device, True)
        try:
            found, wanted = _outputs(asked.function(*made)), _outputs(AUTOCAST[name](*made))
        finally:
            torch.set_autocast_enabled(device, False)
    assert [y.dtype for y in found] == [y.dtype for y in wanted]


@pytest.mark.parametrize("name", [n for n, a in ASKED.items() if a.out])
def test_out_that_shares_memory_with_an_argument(name: str) -> None:
    """The argument itself, and what lies a few elements behind it: the same results, or a refusal."""
    asked = ASKED[name]
    wanted = _outputs(asked.function(*asked.made()))[0]
    for i, t in enumerate(asked.made()):
        if t.shape != wanted.shape or t.dtype != wanted.dtype:
            continue
        for shift in (0, 2):
            room = t.new_empty(t.numel() + shift)
            given = list(asked.made())
            given[i] = room[: t.numel()].view(t.shape).copy_(t)
            out = room[shift:].view(t.shape)
            found, error = _attempted(lambda given=given, out=out: asked.function(*given, out=out))
            assert "RUN010" in error if error else torch.allclose(found.float(), wanted.float(), rtol=2e-2, atol=2e-2)
