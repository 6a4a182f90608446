"""Decode over paged caches as an operator: kernels in the simulator and PyTorch's way beside float64, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402
from tilewright.ops import kernels  # noqa: E402
from tilewright.ops.functional import paged  # noqa: E402
from tilewright.ops.kernels import decode_parts, paged_decode_parts  # noqa: E402

pytestmark = pytest.mark.sample(3)

BF16 = torch.bfloat16
FAR = -(2**31)


@dataclass
class Case:
    """Pages dealt at random, NaN in every element that no sequence has, entries behind the last page far outside."""

    q: Any
    k: Any
    v: Any
    table: Any
    lengths: Any

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self.q, self.k, self.v, self.table, self.lengths


def drawn(
    lengths: list[int],
    page: int,
    *,
    tokens: int = 1,
    heads: int = 4,
    groups: int = 2,
    width: int = 64,
    dtype: Any = BF16,
) -> Case:
    random = torch.Generator().manual_seed(sum(lengths) + page)
    columns = max(1, -(-max(lengths, default=0) // page))
    order = torch.randperm(len(lengths) * columns + 3, generator=random)[: len(lengths) * columns]
    table = order.reshape(len(lengths), columns).int()
    shape = (table.numel() + 3, page, groups, width)
    k, v = (torch.randn(shape, generator=random).to(dtype) for _ in range(2))
    beyond = torch.ones(shape[:2], dtype=torch.bool)
    for b, length in enumerate(lengths):
        for t in range(length):
            beyond[table[b, t // page], t % page] = False
        table[b, max(0, -(-length // page)) :] = FAR
    k[beyond], v[beyond] = torch.nan, torch.nan
    q = torch.randn((len(lengths), tokens, heads, width), generator=random).to(dtype)
    return Case(q, k, v, table, torch.tensor(lengths, dtype=torch.int32))


def exact(case: Case, window: int | None = None) -> tuple[Any, Any]:
    """(attention, logarithms) in float64, a query at a time."""
    batch, tokens, heads, _ = case.q.shape
    page, groups = case.k.shape[1:3]
    y = torch.zeros(case.q.shape, dtype=torch.float64)
    lse = torch.full(case.q.shape[:-1], -torch.inf, dtype=torch.float64)
    for b, s, h in ((b, s, h) for b in range(batch) for s in range(tokens) for h in range(heads)):
        stop = int(case.lengths[b]) - tokens + s + 1
        seen = range(max(0, 0 if window is None else stop - window), stop)
        if len(seen):
            at = torch.tensor([int(case.table[b, t // page]) * page + t % page for t in seen])
            k, v = (x.flatten(0, 1)[at, h * groups // heads].double() for x in (case.k, case.v))
            scores = k @ case.q[b, s, h].double() * case.q.shape[-1] ** -0.5
            y[b, s, h], lse[b, s, h] = scores.softmax(0) @ v, scores.logsumexp(0)
    return y, lse


def agree(found: tuple[Any, Any], case: Case, window: int | None = None) -> None:
    (y, lse), (wanted, sums) = found, exact(case, window)
    assert (y.dtype, lse.dtype) == (case.q.dtype, torch.float32)
    assert float((y.double() - wanted).abs().max()) < 0.03
    torch.testing.assert_close(lse.double(), sums, rtol=0, atol=1e-2)


@pytest.fixture(params=["kernels", "PyTorch"])
def road(request: pytest.FixtureRequest) -> Any:
    """Both ways on which the operator computes on tensors of the CPU."""
    if request.param == "PyTorch":
        yield
        return
    with ops.simulated():
        yield


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("page", [1, 2, 16, 256])
def test_lengths_end_anywhere(page: int) -> None:
    case = drawn([0, 1, 64, 130], page)
    agree(ops.paged_decode_with_lse(*case.tensors), case)


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize(("tokens", "heads", "groups"), [(2, 4, 4), (8, 8, 1), (5, 6, 2)])
def test_several_tokens_and_groups_of_heads(tokens: int, heads: int, groups: int) -> None:
    """Sequences shorter than the new tokens, too: the first of these see nothing."""
    case = drawn([3, 70, 130], 16, tokens=tokens, heads=heads, groups=groups)
    agree(ops.paged_decode_with_lse(*case.tensors), case)


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("split", [64, 128, 4096])
def test_any_split_is_the_same_attention(split: int) -> None:
    case = drawn([200, 5, 0], 16)
    agree(ops.paged_decode_with_lse(*case.tensors, split=split), case)


def test_with_a_fixed_split_bits_do_not_depend_on_the_batch() -> None:
    case = drawn([200, 330, 64], 16)
    with ops.simulated():
        together = ops.paged_decode(*case.tensors, split=64)
        for b in range(3):
            alone = ops.paged_decode(
                case.q[b : b + 1], case.k, case.v, case.table[b : b + 1], case.lengths[b : b + 1], split=64
            )
            assert torch.equal(alone[0], together[b])


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize(("tokens", "window"), [(1, 40), (3, 40), (3, 2**40)])
def test_a_window_slides(tokens: int, window: int) -> None:
    case = drawn([0, 3, 150], 16, tokens=tokens)
    agree(ops.paged_decode_with_lse(*case.tensors, window=window), case, window)


@pytest.mark.usefixtures("road")
def test_layouts_and_strides() -> None:
    """HND; keys beside values in one tensor; queries out of a wider product."""
    case = drawn([100, 33], 32)
    wanted = ops.paged_decode(*case.tensors)
    k, v = (x.transpose(1, 2).contiguous() for x in (case.k, case.v))
    both = torch.stack((case.k, case.v), 1)
    qkv = torch.cat((case.q, case.q, case.q), 2)
    rest = case.tensors[3:]
    assert torch.equal(ops.paged_decode(case.q, k, v, *rest, layout="HND"), wanted)
    assert torch.equal(ops.paged_decode(case.q, both[:, 0], both[:, 1], *rest), wanted)
    assert torch.equal(ops.paged_decode(qkv[:, :, :4], case.k, case.v, *rest), wanted)


@pytest.mark.usefixtures("road")
def test_queries_without_an_axis_of_tokens() -> None:
    case = drawn([100, 33], 32)
    y, lse = ops.paged_decode_with_lse(*case.tensors)
    flat = replace(case, q=case.q[:, 0]).tensors
    got = ops.paged_decode_with_lse(*flat)
    assert torch.equal(got[0], y[:, 0])
    assert torch.equal(got[1], lse[:, 0])
    out = torch.empty_like(flat[0])
    assert ops.paged_decode(*flat, out=out) is out
    assert torch.equal(out, got[0])


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("page", [1, 4, 16])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_hostile_entries_are_pages_of_zeros(dtype: Any, page: int) -> None:
    """Outside of the pool, and a page twice; lengths below 0 and beyond the table."""
    case = drawn([100, 100, 100, 97], page)
    case.table = case.table.to(dtype)
    case.table[0, 1], case.table[1, 1], case.table[2, 1] = -1, len(case.k), 2**31 - 1
    case.table[3, 1] = case.table[3, 0]
    case.lengths = torch.tensor([100, 100, 2**31 - 1, -7], dtype=dtype)
    y = ops.paged_decode(*case.tensors)
    zeros = torch.zeros((1, *case.k.shape[1:]), dtype=BF16)
    held = replace(case, k=torch.cat((case.k, zeros)), v=torch.cat((case.v, zeros)), table=case.table.clone())
    held.table[:3, 1] = len(case.k)
    held.lengths = torch.tensor([100, 100, 0, 0])
    wanted = exact(held)[0]
    assert float((y[:2].double() - wanted[:2]).abs().max()) < 0.03
    assert y[2].isnan().any() or page < 16  # what the table's last page holds behind the sequence is part of it now
    assert not y[3].any()


def test_small_pages_that_do_not_lie_side_by_side() -> None:
    """Rows of pages of 4 tokens are copied one by one where the pages are as those of one token would lie."""
    case = drawn([30, 5, 0], 4)
    apart = torch.full((case.k.shape[0], 2, *case.k.shape[1:]), torch.nan, dtype=BF16)
    apart[:, 1] = case.k
    assert paged._has_small_pages(case.k, case.v)
    for k in (apart[:, 1], case.k.transpose(1, 2).contiguous().transpose(1, 2)):
        assert not paged._has_small_pages(k, case.v)
        agree(ops.paged_decode_with_lse(case.q, k, *case.tensors[2:]), case)


@pytest.mark.usefixtures("road")
def test_nothing_is_an_answer_too() -> None:
    """No sequences, no columns, no pages."""
    case = drawn([40, 40], 16)
    assert ops.paged_decode(case.q[:0], case.k, case.v, case.table[:0], case.lengths[:0]).shape == (0, 1, 4, 64)
    for tensors in (
        (case.q, case.k, case.v, case.table[:, :0], case.lengths),
        (case.q, case.k[:0], case.v[:0], case.table[:, :0], case.lengths),
    ):
        y, lse = ops.paged_decode_with_lse(*tensors)
        assert not y.any()
        assert (lse == -torch.inf).all()
    assert not ops.paged_decode(case.q, case.k[:0], case.v[:0], case.table, case.lengths).any()  # all lead outside


def test_pytorch_serves_other_dtypes_widths_and_pages() -> None:
    for case in (drawn([50, 7], 16, width=48), drawn([50, 7], 12), drawn([50, 7], 16, dtype=torch.float64)):
        y = ops.paged_decode(*case.tensors)
        assert y.dtype == case.q.dtype
        assert float((y.double() - exact(case)[0]).abs().max()) < 0.03


def arguments(**options: Any) -> tuple[Any, ...]:
    case = drawn([40, 9], 16, tokens=2)
    return (*case.tensors, None, None, None, 0.125, options.get("window"), options.get("split"), None)


@pytest.mark.parametrize("options", [{}, {"window": 5, "split": 64}])
def test_opcheck(options: dict[str, int]) -> None:
    torch.library.opcheck(torch.ops.tilewright.paged_decode.default, arguments(**options))
    given = arguments(**options)
    outs = torch.empty_like(given[0]), torch.empty(given[0].shape[:-1])
    torch.library.opcheck(torch.ops.tilewright.paged_decode_out.default, (*given, *outs))


def test_in_one_compiled_graph() -> None:
    case = drawn([40, 9], 16)
    layer = torch.compile(lambda *t: ops.paged_decode(*t) * 2, backend="aot_eager", fullgraph=True)
    assert torch.equal(layer(*case.tensors), ops.paged_decode(*case.tensors) * 2)


CASE = drawn([40, 9], 16)
Q, K, V, TABLE, LENGTHS = CASE.tensors


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: ops.paged_decode(Q[0, 0], K, V, TABLE, LENGTHS), "q, k_cache, v_cache, block_table, seq_lens of"),
        (lambda: ops.paged_decode(Q, K, V[:-1], TABLE, LENGTHS), "q, k_cache, v_cache, block_table, seq_lens of"),
        (lambda: ops.paged_decode(Q, K, V, TABLE[0], LENGTHS), "q, k_cache, v_cache, block_table, seq_lens of"),
        (lambda: ops.paged_decode(Q, K, V, TABLE.float(), LENGTHS), "block_table of torch.float32"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS.short()), "seq_lens of torch.int16"),
        (
            lambda: ops.paged_decode(Q, K.float(), V.float(), TABLE, LENGTHS),
            "q of torch.bfloat16, caches of torch.float32",
        ),
        (lambda: ops.paged_decode(*(x.int() for x in (Q, K, V)), TABLE, LENGTHS), "q of torch.int32"),
        (lambda: ops.paged_decode(Q[:, :, :3], K, V, TABLE, LENGTHS), "3 heads of queries, 2 of keys"),
        (lambda: ops.paged_decode(Q[..., :32], K, V, TABLE, LENGTHS), "heads of 32 elements in q, of 64"),
        (lambda: ops.paged_decode(Q.expand(2, 9, 4, 64), K, V, TABLE, LENGTHS), "9 query tokens"),
        (lambda: ops.paged_decode(Q[:, :0], K, V, TABLE, LENGTHS), "0 query tokens"),
        (lambda: ops.paged_decode(Q, K, V, TABLE[:1], LENGTHS), "2 sequences of queries, 1 rows of the table"),
        (
            lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS[:1]),
            "2 sequences of queries, 2 rows of the table, 1 lengths",
        ),
        (lambda: ops.paged_decode(Q, K, V, TABLE.to("meta"), LENGTHS), "tensors on cpu, cpu, cpu, meta, cpu"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, layout="NCHW"), "layout='NCHW'"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, window=0), "window=0"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, window=2.0), "window=2.0"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, split=100), "split=100"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, out=torch.empty(2, 4, 64)), "out of (2, 4, 64)"),
        (lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, out=torch.empty_like(Q).float()), "torch.float32"),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], found: str) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        call()
    assert caught.value.code == "JIT010"
    assert found in str(caught.value)


def test_there_is_no_gradient() -> None:
    q = Q.clone().requires_grad_()
    rest = (K, V, TABLE, LENGTHS, None, None, None, 0.1, None, None, None)
    for call in (
        lambda: ops.paged_decode(q, K, V, TABLE, LENGTHS),
        lambda: ops.paged_decode(Q, K, V, TABLE, LENGTHS, out=q),
        lambda: torch.ops.tilewright.paged_decode(q, *rest)[0].sum().backward(),
    ):
        with pytest.raises(tw.TilewrightError, match="JIT011"):
            call()
    with torch.no_grad():
        assert torch.equal(ops.paged_decode(q, K, V, TABLE, LENGTHS), ops.paged_decode(*CASE.tensors))


# -- parts that are listed --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("lengths", "tokens", "window"),
    [
        ([0, 1, 640, 64, 65, 0], 1, None),
        ([640, 640, 640], 1, None),
        ([0, 0], 1, None),
        ([3, 500, 129], 3, None),
        ([640, 0, 300, 41], 2, 40),
    ],
)
def test_listed_parts_agree(lengths: list[int], tokens: int, window: int | None) -> None:
    case = drawn(lengths, 16, tokens=tokens)
    if not case.table.shape[1]:
        case = replace(case, table=torch.zeros((len(lengths), 40), dtype=torch.int32))
    with ops.simulated():
        agree(ops.paged_decode_with_lse(*case.tensors, window=window, balanced=True), case, window)


@pytest.mark.parametrize("room", [1, 3, 17])
def test_every_step_is_in_one_part_and_long_parts_come_first(room: int) -> None:
    random = torch.Generator().manual_seed(room)
    lengths = torch.randint(-70, 2000, (40,), generator=random).int()
    lengths[:2] = torch.tensor([2**31 - 1, -(2**31)])
    owner, begin, until, first, whole, rest = found = [torch.full((40 + room,), -7).int() for _ in range(6)]
    with ops.simulated():
        decode_parts(64)(lengths, *found, columns=25, least=1)
    steps = -(-lengths.long().clamp(0, 25 * 64) // 64)
    sizes = until - begin
    assert sorted(zip(owner[sizes > 0].tolist(), begin[sizes > 0].tolist(), strict=True)) == sorted(
        (b, int(sizes.max()) * i) for b in range(40) for i in range(-(-int(steps[b]) // int(sizes.max())))
    )
    assert torch.equal(sizes, sizes.sort(descending=True).values)
    assert torch.equal(torch.zeros(40).long().index_add_(0, owner.long(), sizes.long()), steps)
    for b in range(40):
        rows = [*range(int(first[b]), int(first[b] + whole[b])), *([int(rest[b])] if rest[b] >= 0 else [])]
        assert [(int(owner[p]), int(sizes[p])) for p in rows[:-1]] == [(b, int(sizes.max()))] * len(rows[:-1])
        assert sum(int(sizes[p]) for p in rows) == steps[b]


def test_hostile_lengths_and_tables_are_listed_too() -> None:
    case = drawn([200, 90, 300], 16)
    case.lengths[:] = torch.tensor([-5, 2**31 - 1, 90])
    case.table[1:] = torch.tensor([FAR, 2**31 - 1])[torch.arange(case.table.shape[1]) % 2]
    with ops.simulated():
        y, lse = ops.paged_decode_with_lse(*case.tensors, balanced=True)
    assert (lse[0] == -torch.inf).all()
    assert not y.any()  # pages outside count as zeros
    assert torch.allclose(lse[1:], torch.tensor([case.table.shape[1] * 16, 90.0]).log()[:, None, None], atol=1e-2)


# -- caches of 8-bit floats -------------------------------------------------------------------------------------------
def in_eight_bits(case: Case, dtype: Any, scales: tuple[Any, Any]) -> Case:
    """The case with its caches divided by scales, and rounded; NaN stays NaN."""
    k, v = ((x.float() / s[:, None]).to(dtype) for x, s in zip((case.k, case.v), scales, strict=True))
    return replace(case, k=k, v=v)


def scaled(case: Case, scales: tuple[Any, Any]) -> Case:
    """What the caches mean."""
    k, v = (x.float() * s[:, None] for x, s in zip((case.k, case.v), scales, strict=True))
    return replace(case, k=k, v=v)


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("page", [1, 16, 64])
def test_a_cache_of_8_bits_with_a_scale_for_each_head(page: int, dtype: Any) -> None:
    scales = torch.tensor([0.02, 0.5]), torch.tensor([1.5, 0.01])
    case = in_eight_bits(drawn([0, 1, 64, 130], page), dtype, scales)
    found = ops.paged_decode_with_lse(*case.tensors, k_scale=scales[0], v_scale=scales[1])
    agree(found, scaled(case, scales))


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("q_dtype", [BF16, torch.float16])
def test_a_cache_of_8_bits_with_one_scale_or_none(q_dtype: Any) -> None:
    scales = torch.full((2,), 0.25), torch.ones(2)
    case = in_eight_bits(drawn([3, 200], 16, tokens=2, dtype=q_dtype), torch.float8_e4m3fn, scales)
    wanted = ops.paged_decode_with_lse(*case.tensors, k_scale=0.25)
    agree(wanted, scaled(case, scales))
    for k_scale in (torch.tensor(0.25), torch.tensor([0.25])):
        assert torch.equal(ops.paged_decode(*case.tensors, k_scale=k_scale), wanted[0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("width", [64, 128, 256])
def test_kernels_over_a_cache_of_8_bits_fit_the_registers(width: int) -> None:
    """The simulator warns of what the assembler would refuse."""
    scales = torch.tensor([0.02, 0.5]), torch.tensor([1.5, 0.01])
    case = in_eight_bits(drawn([3, 200], 16, width=width), torch.float8_e4m3fn, scales)
    with ops.simulated():
        agree(ops.paged_decode_with_lse(*case.tensors, k_scale=scales[0], v_scale=scales[1]), scaled(case, scales))


def test_a_cache_of_8_bits_with_listed_parts_and_a_window() -> None:
    scales = torch.tensor([0.02, 0.5]), torch.tensor([1.5, 0.01])
    case = in_eight_bits(drawn([0, 500, 64, 130], 16), torch.float8_e4m3fn, scales)
    with ops.simulated():
        found = ops.paged_decode_with_lse(
            *case.tensors, k_scale=scales[0], v_scale=scales[1], window=100, balanced=True
        )
    agree(found, scaled(case, scales), 100)


@pytest.mark.parametrize("page", [1, 16])
def test_listed_parts_of_8_bits_keep_their_pipelines(page: int) -> None:
    """In steps of 128 keys registers spilled, and what was left without pipelines took ten times as long. Two CTAs
    share an SM: one converts while the other multiplies. Rows of pages of one token are copied by threads: tensor
    copies of 128 bytes took nine times as long as those of pages of 16."""
    dtypes = {"q": "bf16", **dict.fromkeys("kv", "e4m3"), **dict.fromkeys(("k_scale", "v_scale"), "f32")}
    listed = dict.fromkeys(("owner", "begin", "until", "lengths", "pages"), "i32")
    artifact = paged_decode_parts(128, 1, page).compile(dtypes=dtypes | listed)
    (image,) = artifact.kernels
    assert image.spill_bytes == 0
    assert ("cp_async" if page == 1 else "tma_load") in image.transport_ir
    assert "2 CTAs an SM" in str(artifact.plan)


def test_parts_are_listed_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    case = drawn([640, 0, 300, 41], 16, tokens=2)
    assert ops.decode_parts(*case.tensors) is None
    monkeypatch.setattr(paged, "_is_worth_a_list", lambda *_: True)
    with ops.simulated():
        parts = ops.decode_parts(*case.tensors, window=100)
        assert parts is not None
        for layer in (case, replace(case, k=case.v, v=case.k, q=-case.q)):
            agree(ops.paged_decode_with_lse(*layer.tensors, window=100, parts=parts), layer, 100)
        whole = ops.paged_decode(*case.tensors, parts=ops.decode_parts(*case.tensors))
        assert torch.equal(whole, ops.paged_decode(*case.tensors, balanced=True))


def test_parts_of_any_integers_touch_nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    case = drawn([640, 0, 300, 41], 16)
    monkeypatch.setattr(paged, "_is_worth_a_list", lambda *_: True)
    with ops.simulated():
        parts = ops.decode_parts(*case.tensors)
        assert parts is not None
        parts.random_(-(2**31), 2**31 - 1, generator=torch.Generator().manual_seed(0))
        parts[:, ::3].clamp_(-2, 50)
        y = ops.paged_decode(*case.tensors, parts=parts)
    assert not y.isnan().any()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"k_scale": 2.0}, "k_scale with a cache of torch.bfloat16"),
        ({"balanced": True, "split": 64}, "balanced=True, split=64"),
        ({"balanced": 3}, "balanced=3"),
        ({"balanced": True, "parts": torch.zeros((6, 8), dtype=torch.int32)}, "parts with"),
        ({"parts": torch.zeros((6, 2), dtype=torch.int32)}, "parts of"),
        ({"parts": torch.zeros((6, 8))}, "parts of"),
    ],
)
def test_scales_and_parts_that_do_not_fit(options: dict[str, Any], found: str) -> None:
    with pytest.raises(tw.TilewrightError, match=found) as error:
        ops.paged_decode(*drawn([3, 200], 16).tensors, **options)
    assert error.value.code == "JIT010"


def test_scales_of_another_shape() -> None:
    case = in_eight_bits(drawn([3], 16), torch.float8_e5m2, (torch.ones(2), torch.ones(2)))
    for scale in (torch.ones(3), torch.ones(2).double()):
        with pytest.raises(tw.TilewrightError, match="v_scale of"):
            ops.paged_decode(*case.tensors, v_scale=scale)


# -- latent attention -------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("road")
@pytest.mark.parametrize(("tokens", "split"), [(1, None), (2, 64)])
def test_values_are_the_heads_of_keys(tokens: int, split: int | None) -> None:
    """One head of keys of 576 elements, of which 512 are its value, for all queries."""
    case = drawn([0, 3, 150], 16, tokens=tokens, heads=8, groups=1, width=576)
    found = ops.paged_decode_with_lse(*replace(case, v=case.k[..., :512]).tensors, split=split)
    wanted, sums = exact(replace(case, v=case.k))
    assert found[0].shape == (3, tokens, 8, 512)
    assert float((found[0].double() - wanted[..., :512]).abs().max()) < 0.03
    torch.testing.assert_close(found[1].double(), sums, rtol=0, atol=1e-2)
    out = torch.empty_like(found[0])
    ops.paged_decode(*replace(case, v=case.k[..., :512]).tensors, split=split, out=out)
    assert torch.equal(out, found[0])


def test_values_of_any_other_width_by_pytorch() -> None:
    case = drawn([5, 40], 16, heads=4, groups=2, width=64)
    y = ops.paged_decode(*replace(case, v=case.v[..., :24]).tensors)
    assert float((y.double() - exact(case)[0][..., :24]).abs().max()) < 0.03


@pytest.mark.parametrize(("count", "step"), [(2, 4), (5, 8), (16, 16), (17, 32), (70, 32)])
def test_states_of_any_number_of_parts_are_merged(count: int, step: int) -> None:
    """In as few steps as their number needs, of which the last may be short."""
    random = torch.Generator().manual_seed(count)
    o, lse = torch.randn(count, 3, 64, generator=random), 3 * torch.randn(count, 3, generator=random)
    lse[:, 1] = -torch.inf
    y, whole = torch.full((3, 64), torch.nan), torch.full((3,), torch.nan)
    options = paged._merging(count)
    assert options["bc"] == step
    with ops.simulated():
        kernels.merge_states(o, lse, y, whole, **options)
    weights = lse.double().softmax(0).nan_to_num()
    assert torch.allclose(y.double(), (weights[..., None] * o).sum(0), atol=1e-5)
    assert torch.allclose(whole.double(), lse.double().logsumexp(0), atol=1e-5)
