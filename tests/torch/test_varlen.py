"""Attention over packed sequences as an operator: kernels in the simulator and PyTorch beside float64, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip
from support.slow import rest_slow

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

pytestmark = pytest.mark.sample(2)

BF16 = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """Sequences with ``rest`` rows behind the last one."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    width: int = 64
    heads: int = 4
    groups: int = 2
    dtype: Any = BF16
    index: Any = torch.int32
    rest: int = 3

    @property
    def tensors(self) -> tuple[Any, ...]:
        random = torch.Generator().manual_seed(sum(self.queries) + sum(self.keys))
        rows = (sum(self.queries) + self.rest, self.heads), (sum(self.keys), self.groups), (sum(self.keys), self.groups)
        made = [torch.randn((*shape, self.width), generator=random).to(self.dtype) for shape in rows]
        offsets = [torch.tensor([0, *accumulate(n)], dtype=self.index) for n in (self.queries, self.keys)]
        return (*made, *offsets)


def exact(
    tensors: tuple[Any, ...], causal: bool, window: int | None, softcap: float | None, sinks: Any
) -> tuple[Any, Any]:
    """(attention, logarithms) in float64, a sequence at a time; the last query of one is at its last key."""
    q, k, v, cu_q, cu_k = tensors
    y = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.zeros((q.shape[1], q.shape[0]), dtype=torch.float64)
    for (first, last), (begin, end) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        if first == last:
            continue
        keys, values = (x[begin:end].double().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        scores = torch.einsum("shd,thd->hst", q[first:last].double(), keys) * q.shape[-1] ** -0.5
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        behind = torch.arange(first - last, 0)[:, None] - torch.arange(begin - end, 0)
        if causal:
            scores[:, behind < 0] = -torch.inf
        if window is not None:
            scores[:, behind >= window] = -torch.inf
        if sinks is not None:
            scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, last - first, 1)], 2)
            values = torch.cat([values, torch.zeros(1, *values.shape[1:], dtype=torch.float64)])
        lse[:, first:last] = scores.logsumexp(2)
        y[first:last] = torch.einsum("hst,thd->shd", scores.softmax(2).nan_to_num(0.0), values)
    return y, lse


@pytest.fixture(params=["kernels", "PyTorch"])
def road(request: pytest.FixtureRequest) -> Any:
    """Both ways on which the operator computes on tensors of the CPU."""
    if request.param == "PyTorch":
        yield
        return
    with ops.simulated():
        yield


OPTIONS: dict[str, dict[str, Any]] = {
    "all keys": {},
    "causal": {"causal": True},
    "a window": {"causal": True, "window": 20},
    "soft scores and sinks": {"causal": True, "softcap": 3.0, "sinks": True},
}
UNEVEN = Case((3, 0, 70, 1, 9), (9, 4, 70, 0, 150))
"""No queries, no keys, more keys than queries and fewer."""
EVEN = Case((40, 3, 0, 130), (40, 3, 0, 130), rest=0)


@pytest.mark.parametrize("name", rest_slow(OPTIONS, ("causal", "soft scores and sinks")))
@pytest.mark.parametrize("case", [UNEVEN, EVEN], ids=["uneven", "even"])
def test_agrees_with_float64(road: None, case: Case, name: str) -> None:
    options, tensors = dict(OPTIONS[name]), case.tensors
    sinks = torch.linspace(-2, 2, case.heads) if options.pop("sinks", False) else None
    y, lse = ops.varlen_attention_with_lse(*tensors, **options, sinks=sinks)
    wanted, sums = exact(tensors, options.get("causal", False), options.get("window"), options.get("softcap"), sinks)
    assert (y.dtype, lse.dtype) == (case.dtype, torch.float32)
    assert float((y.double() - wanted).abs().max()) < 0.03
    rows = int(tensors[3][-1])
    torch.testing.assert_close(lse[:, :rows].double(), sums[:, :rows], rtol=0, atol=1e-2)
    assert not y[rows:].any()


@pytest.mark.parametrize("name", rest_slow(OPTIONS, ("causal",)))
def test_tiles_of_several_sequences(name: str) -> None:
    q, k, v, offsets, _ = Case((3, 0, 70, 1, 9, 60), (3, 0, 70, 1, 9, 60), rest=0).tensors
    q, k, v = (torch.cat([x, torch.full_like(x[:5], torch.nan)]) for x in (q, k, v))  # behind the last sequence
    options = dict(OPTIONS[name])
    sinks = torch.linspace(-2, 2, 4) if options.pop("sinks", False) else None
    with ops.simulated():
        y, lse = ops.varlen_attention_with_lse(q, k, v, offsets, offsets, **options, sinks=sinks, packed=True)
        apart = ops.varlen_attention(q, k, v, offsets, offsets, **options, sinks=sinks)
    given = (options.get("causal", False), options.get("window"), options.get("softcap"), sinks)
    wanted, sums = exact((q, k, v, offsets, offsets), *given)
    rows = int(offsets[-1])
    for found in (y, apart):
        assert float((found[:rows].double() - wanted[:rows]).abs().max()) < 0.03
    torch.testing.assert_close(lse[:, :rows].double(), sums[:, :rows], rtol=0, atol=1e-2)
    assert sinks is not None or not y[rows:].any()


# -- of a sequence's rows only some are used -------------------------------------------------------------------------
def chosen(tensors: tuple[Any, ...], lengths: tuple[Any, Any], left: bool) -> tuple[tuple[Any, ...], list[Any]]:
    """The rows that are used, packed; and which those of queries and of keys are. Others become NaN."""
    *rows, cu_q, cu_k = tensors
    places, cu = [], []
    for offsets, used in zip((cu_q, cu_k), lengths, strict=True):
        spans = [*pairwise(offsets.tolist())]
        taken = [b - a if used is None else min(max(int(used[i]), 0), b - a) for i, (a, b) in enumerate(spans)]
        spans = [(b - n, b) if left else (a, a + n) for n, (a, b) in zip(taken, spans, strict=True)]
        places.append(torch.cat([torch.arange(a, b) for a, b in spans]))
        cu.append(torch.tensor([0, *accumulate(taken)], dtype=offsets.dtype))
    of = places[0], places[1], places[1]
    packed = [x[at].clone() for x, at in zip(rows, of, strict=True)]
    for x, at in zip(rows, of, strict=True):
        x[:] = torch.nan
        x[at] = packed.pop(0)
        packed.append(x[at].clone())
    return (*packed, *cu), places


USED = torch.tensor([2, 5, 33, -4, 9]), torch.tensor([1, 4, 2**31 - 1, 3, 128])
LENGTHS = {"both": USED, "queries": (USED[0], None), "keys": (None, USED[1].to(torch.int32))}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("which", rest_slow(LENGTHS, ("keys",)))
def test_rows_that_are_not_used(road: None, which: str, left: bool) -> None:
    tensors, lengths = UNEVEN.tensors, LENGTHS[which]
    packed, (queries, keys) = chosen(tensors, lengths, left)
    options = {"causal": True, "window": 20, "sinks": torch.linspace(-2, 2, 4)} if which == "both" else {"causal": left}
    do = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(1)).to(BF16)
    found, lse = [], []
    for given, more, grad in (
        (tensors, {"seqused_q": lengths[0], "seqused_k": lengths[1], "left_padded": left}, do),
        (packed, {}, do[queries]),
    ):
        leaves = [x.clone().requires_grad_() for x in given[:3]]
        sinks = {"sinks": options["sinks"].clone().requires_grad_()} if "sinks" in options else {}
        y, sums = ops.varlen_attention_with_lse(*leaves, *given[3:], **options | sinks, **more)
        y.backward(grad)
        found.append([y, *(x.grad for x in leaves), *(x.grad for x in sinks.values())])
        lse.append(sums)
    wanted = exact(packed, options["causal"], options.get("window"), None, options.get("sinks"))[0]
    assert float((found[1][0].detach().double() - wanted).abs().max()) < 0.03
    for one, other, at in zip(found[0], found[1], (queries, queries, keys, keys, slice(None)), strict=False):
        scale = max(1.0, float(other.abs().max()))
        assert float((one[at].float() - other.float()).abs().max()) < 0.02 * scale
        rest = torch.ones(len(one), dtype=torch.bool)
        rest[at] = False
        assert not one[rest].any()
    torch.testing.assert_close(lse[0][:, queries], lse[1], rtol=0, atol=1e-2)


@pytest.mark.parametrize("window", [2**31 - 1, 2**40])
def test_windows_longer_than_any_sequence(road: None, window: int) -> None:
    """Rows less such a window would leave 32 bits."""
    *tensors, offsets, _ = Case((5, 70), (5, 70), heads=2, groups=1, rest=0).tensors
    found = []
    for of in (None, window):
        leaves = [x.clone().requires_grad_() for x in tensors]
        y = ops.varlen_attention(*leaves, offsets, offsets, causal=True, window=of)
        y.sum().backward()
        found.append([y, *(x.grad for x in leaves)])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_sequences_padded_to_one_length(road: None, left: bool) -> None:
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, h, 64, generator=random).to(BF16) for n, h in ((40, 4), (70, 2), (70, 2)))
    used = {"seqused_q": torch.tensor([40, 7]), "seqused_k": torch.tensor([33, 70])}
    y, lse = ops.varlen_attention_with_lse(q, k, v, **used, causal=True, left_padded=left)
    assert (y.shape, lse.shape) == (q.shape, (2, 4, 40))
    offsets = torch.tensor([0, 40, 80]), torch.tensor([0, 70, 140])
    rows = [x.flatten(0, 1) for x in (q, k, v)]
    same, sums = ops.varlen_attention_with_lse(*rows, *offsets, **used, causal=True, left_padded=left)
    assert torch.equal(y.flatten(0, 1), same)
    assert torch.equal(lse.transpose(0, 1).flatten(1), sums)
    out = torch.full_like(q, torch.nan)
    assert ops.varlen_attention(q, k, v, **used, causal=True, left_padded=left, out=out) is out
    assert torch.equal(out, y)


def test_values_of_one_sequence_stay_away_from_others() -> None:
    q, k, v, offsets, _ = Case((40, 30), (40, 30), rest=0).tensors
    v[:40] = torch.nan
    with ops.simulated():
        y = ops.varlen_attention(q, k, v, offsets, offsets)
    assert y[:40].isnan().all()
    assert y[40:].isfinite().all()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("offsets", [[0, 30, 20, 40], [-5, 10, 20, 40], [0, 10, 20, 41], [1, 10, 20, 40]])
def test_hostile_offsets_write_nothing_and_are_reported(offsets: list[int], packed: bool) -> None:
    q, k, v, good, _ = Case((10, 10, 20), (10, 10, 20), rest=0).tensors
    bad = torch.tensor(offsets, dtype=torch.int32)
    out = torch.full_like(q, 7.0)
    for given in ((bad, bad),) if packed else ((bad, good), (good, bad)):
        with ops.simulated(), pytest.raises(tw.TilewrightError, match="RUN023"):
            ops.varlen_attention(q, k, v, *given, out=out, packed=packed)
        with pytest.raises(tw.TilewrightError, match="ascending integers from 0 to at most 40"):
            ops.varlen_attention(q, k, v, *given)
    assert (out == 7.0).all()


def test_results_go_where_they_are_asked_for(road: None) -> None:
    tensors = UNEVEN.tensors
    out = torch.full_like(tensors[0], torch.nan)
    assert ops.varlen_attention(*tensors, out=out) is out
    assert torch.equal(out, ops.varlen_attention(*tensors))


def test_pytorch_serves_other_dtypes_and_widths() -> None:
    for case in (Case((5, 9), (5, 9), width=48), Case((5, 9), (7, 9), dtype=torch.float64, index=torch.int64)):
        y = ops.varlen_attention(*case.tensors, causal=True)
        assert y.dtype == case.dtype
        assert float((y.double() - exact(case.tensors, True, None, None, None)[0]).abs().max()) < 0.03


@pytest.mark.parametrize("options", [(False, None, None), (True, 5, 2.0)])
def test_opcheck(options: tuple[Any, ...]) -> None:
    q, *others = UNEVEN.tensors
    given = (q, *others, torch.zeros(4), None, torch.tensor([9, 3, 70, 0, 44]), 0.125, *options, True, False)
    torch.library.opcheck(torch.ops.tilewright.varlen_attention.default, given)
    outs = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    torch.library.opcheck(torch.ops.tilewright.varlen_attention_out.default, (*given, *outs))


def test_in_one_compiled_graph() -> None:
    tensors = UNEVEN.tensors

    def twice(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any) -> Any:
        return ops.varlen_attention(q, k, v, cu_q, cu_k, causal=True) * 2

    layer = torch.compile(twice, backend="aot_eager", fullgraph=True)
    assert torch.equal(layer(*tensors), ops.varlen_attention(*tensors, causal=True) * 2)


Q, K, V, CU_Q, CU_K = UNEVEN.tensors


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: ops.varlen_attention(Q[0], K, V, CU_Q, CU_K), "q, k, v, cu_seqlens_q, cu_seqlens_k of"),
        (lambda: ops.varlen_attention(Q, K, V[1:], CU_Q, CU_K), "q, k, v, cu_seqlens_q, cu_seqlens_k of"),
        (lambda: ops.varlen_attention(Q[..., :32], K, V, CU_Q, CU_K), "q, k, v, cu_seqlens_q, cu_seqlens_k of"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q[1:], CU_K), "5 offsets of queries, 6 of keys"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q[:1], CU_K[:1]), "1 offsets of queries, 1 of keys"),
        (lambda: ops.varlen_attention(Q[:, :3], K, V, CU_Q, CU_K), "3 heads of queries, 2 of keys"),
        (
            lambda: ops.varlen_attention(Q, K.half(), V.half(), CU_Q, CU_K),
            "q of torch.bfloat16, k and v of torch.float16",
        ),
        (lambda: ops.varlen_attention(Q.int(), K.int(), V.int(), CU_Q, CU_K), "q of torch.int32"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q.float(), CU_K), "cu_seqlens_q of torch.float32"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K.short()), "cu_seqlens_k of torch.int16"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, sinks=torch.zeros(2)), "sinks of (2,)"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K.to("meta")), "tensors on cpu, cpu, cpu, cpu, meta"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, causal=True, window=0), "window=0"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, window=5), "window=5 without causal=True"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, softcap=0.0), "softcap=0.0"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, packed=True), "packed=True"),
        (lambda: ops.varlen_attention(Q, K, V), "no cu_seqlens"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, seqused_k=CU_K), "seqused_k of (6,), torch.int32"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, seqused_q=CU_Q[1:] * 0.5), "seqused_q of (5,), torch.float"),
        (lambda: ops.varlen_attention(Q[None], K, V), "q, k, v of (1, 86, 4, 64), (233, 2, 64), (233, 2, 64)"),
        (lambda: ops.varlen_attention(*[x[:80].view(2, 40, -1, 64)[:, :9] for x in (Q, K, V)]), "q of strides"),
        (lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, out=torch.empty(2, 4, 64)), "out of (2, 4, 64)"),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], found: str) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        call()
    assert caught.value.code == "JIT010"
    assert found in str(caught.value)


# -- gradients --------------------------------------------------------------------------------------------------------
def attended(tensors: tuple[Any, ...], causal: bool, window: int | None, softcap: float | None, sinks: Any) -> Any:
    """Attention in the dtype of its rows, by operations that PyTorch differentiates, of all scores at once."""
    q, k, v, cu_q, cu_k = tensors
    rows = [torch.arange(len(x)) for x in (q, k)]
    own = [torch.searchsorted(cu, at, right=True) for cu, at in zip((cu_q, cu_k), rows, strict=True)]
    left = [
        torch.cat([cu, cu.new_zeros(1)])[of] - at for cu, of, at in zip((cu_q, cu_k), own, rows, strict=True)
    ]  # how many rows of its sequence there are from each on
    seen = own[0][:, None] == own[1]
    if causal:
        seen &= left[1] >= left[0][:, None]
    if window is not None:
        seen &= left[1] < left[0][:, None] + window
    seen &= (rows[0] < cu_q[-1])[:, None] & (rows[1] < cu_k[-1])
    group = q.shape[1] // k.shape[1]
    x = torch.einsum("shd,thd->hst", q, k.repeat_interleave(group, 1)) * q.shape[-1] ** -0.5
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    weights = torch.where(seen, x.exp(), 0.0)
    total = weights.sum(-1) + (0.0 if sinks is None else sinks.exp()[:, None])
    y = torch.einsum("hst,thd->shd", weights, v.repeat_interleave(group, 1))
    return y / torch.where(total > 0, total, 1.0).T[..., None]


@pytest.mark.parametrize("name", rest_slow(OPTIONS, ("all keys", "a window", "soft scores and sinks")))
@pytest.mark.parametrize("case", [UNEVEN, EVEN], ids=["uneven", "even"])
def test_gradients_agree_with_float64(road: None, case: Case, name: str) -> None:
    options, (*rows, cu_q, cu_k) = dict(OPTIONS[name]), case.tensors
    sinks = torch.linspace(-2, 2, case.heads) if options.pop("sinks", False) else None
    do = torch.randn(rows[0].shape, generator=torch.Generator().manual_seed(1)).to(case.dtype)
    leaves = [x.clone().requires_grad_() for x in (*rows, *([] if sinks is None else [sinks]))]
    given = {"sinks": leaves[3]} if sinks is not None else {}
    y, lse = ops.varlen_attention_with_lse(*leaves[:3], cu_q, cu_k, **options, **given)
    assert not lse.requires_grad
    y.backward(do)
    wide = [x.detach().double().requires_grad_() for x in leaves]
    wanted = attended(
        (*wide[:3], cu_q, cu_k),
        options.get("causal", False),
        options.get("window"),
        options.get("softcap"),
        None if sinks is None else wide[3],
    )
    wanted.backward(do.double())
    for leaf, exact_ in zip(leaves, wide, strict=True):
        assert leaf.grad.dtype == leaf.dtype
        scale = max(1.0, float(exact_.grad.abs().max()))
        assert float((leaf.grad.double() - exact_.grad).abs().max()) < 0.02 * scale
    assert not leaves[0].grad[int(cu_q[-1]) :].any()


@pytest.mark.slow
def test_gradients_of_tiles_of_several_sequences() -> None:
    q, k, v, offsets, _ = Case((3, 70, 1, 60), (3, 70, 1, 60), rest=0).tensors
    found = []
    for packed in (False, True):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        with ops.simulated():
            ops.varlen_attention(
                *leaves, offsets, offsets, causal=True, packed=packed
            ).float().square().sum().backward()
        found.append([x.grad.float() for x in leaves])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.05)


@pytest.mark.slow
def test_gradients_of_other_dtypes_and_widths() -> None:
    case = Case((5, 9, 0), (7, 9, 2), width=12, dtype=torch.float64, index=torch.int64)
    *rows, cu_q, cu_k = case.tensors
    leaves = [x.requires_grad_() for x in (*rows, torch.linspace(-1, 1, case.heads, dtype=torch.float64))]

    def attention(q: Any, k: Any, v: Any, sinks: Any) -> Any:
        return ops.varlen_attention(q, k, v, cu_q, cu_k, causal=True, window=4, softcap=2.0, sinks=sinks)

    assert torch.autograd.gradcheck(attention, leaves)


def test_gradients_in_one_compiled_graph() -> None:
    *rows, cu_q, cu_k = UNEVEN.tensors

    def loss(q: Any, k: Any, v: Any) -> Any:
        return ops.varlen_attention(q, k, v, cu_q, cu_k, causal=True).float().square().sum()

    found = []
    for run in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        leaves = [x.clone().requires_grad_() for x in rows]
        run(*leaves).backward()
        found.append([x.grad for x in leaves])
    assert all(map(torch.equal, *found))


def test_what_has_no_gradient() -> None:
    q = Q.clone().requires_grad_()
    once = torch.autograd.grad(ops.varlen_attention(q, K, V, CU_Q, CU_K).sum(), q, create_graph=True)[0]
    for call in (
        lambda: ops.varlen_attention(q, K, V, CU_Q, CU_K, out=torch.empty_like(Q)),
        lambda: ops.varlen_attention(Q, K, V, CU_Q, CU_K, out=q),
        lambda: once.sum().backward(),
    ):
        with pytest.raises(tw.TilewrightError, match="JIT011"):
            call()
    with torch.no_grad():
        assert torch.equal(ops.varlen_attention(q, K, V, CU_Q, CU_K), ops.varlen_attention(Q, K, V, CU_Q, CU_K))
