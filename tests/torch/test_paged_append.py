"""Keys and values appended to paged caches: the kernel in the simulator and PyTorch's way, beside float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

pytestmark = pytest.mark.sample(3)

BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
PAGES, PAGE, GROUPS, WIDTH = 5, 16, 2, 64


@pytest.fixture(params=["kernels", "PyTorch"])
def road(request: pytest.FixtureRequest) -> Any:
    """Both ways on which the operator computes on tensors of the CPU."""
    if request.param == "PyTorch":
        yield
        return
    with ops.simulated():
        yield


def drawn(tokens: int = 21, dtype: Any = BF16, size: float = 1.0) -> tuple[Any, ...]:
    """key, value, slots: of these some are no slot."""
    random = torch.Generator().manual_seed(tokens)
    key, value = ((torch.randn((tokens, GROUPS, WIDTH), generator=random) * size).to(dtype) for _ in range(2))
    slots = torch.randperm(PAGES * PAGE, generator=random)[:tokens].int()
    slots[:3] = torch.tensor([-1, PAGES * PAGE, -(2**31)])[:tokens]
    return key, value, slots


def caches(dtype: Any) -> tuple[Any, Any]:
    return torch.full((PAGES, PAGE, GROUPS, WIDTH), 3).to(dtype), torch.full((PAGES, PAGE, GROUPS, WIDTH), 3).to(dtype)


def turned(key: Any, cos: Any, sin: Any) -> Any:
    """In float64."""
    first, second = key.double().chunk(2, -1)
    c, s = cos[:, None].double(), sin[:, None].double()
    return torch.cat((first * c - second * s, second * c + first * s), -1)


def assert_holds(cache: Any, slots: Any, rows: Any) -> None:
    """The rows are in their slots within half a unit in the last place, and every other slot holds its 3."""
    held = (slots >= 0) & (slots < PAGES * PAGE)
    stored = cache.double().flatten(0, 1)
    found, wanted = stored[slots[held].long()], rows[held]
    info = torch.finfo(cache.dtype)
    wanted = wanted.clamp(info.min, info.max)
    limit = wanted.abs() * info.eps * 0.51 + info.smallest_normal * info.eps * 0.51
    assert bool(((found - wanted).abs() <= limit).all())
    others = torch.ones(PAGES * PAGE, dtype=torch.bool)
    others[slots[held].long()] = False
    assert bool((stored[others] == 3).all())


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("dtype", [BF16, E4M3, E5M2])
@pytest.mark.parametrize("rotated", [False, True])
def test_rows_go_to_their_slots(dtype: Any, rotated: bool) -> None:
    """Some scales are so small that e4m3 has no such numbers: they become its greatest."""
    key, value, slots = drawn()
    k, v = caches(dtype)
    angles = torch.rand((len(key), WIDTH // 2)) * 6
    turns = {"cos": angles.cos(), "sin": angles.sin()} if rotated else {}
    eight = dtype in (E4M3, E5M2)
    scales = [torch.tensor([0.1, 0.001]), torch.tensor([2.0, 0.3])] if eight else [torch.ones(2), torch.ones(2)]
    options = {"k_scale": scales[0], "v_scale": scales[1]} if eight else {}
    ops.paged_append(key, value, k, v, slots, **turns, **options)
    rows = turned(key, **turns) if rotated else key.double()
    assert_holds(k, slots, rows / scales[0][:, None].double())
    assert_holds(v, slots, value.double() / scales[1][:, None].double())


@pytest.mark.usefixtures("road")
def test_layouts_and_tables_of_angles() -> None:
    """HND caches; angles as models keep them, both halves alike; wide slots; key and value out of one product."""
    key, value, slots = drawn()
    angles = torch.rand((len(key), WIDTH // 2))
    cos, sin = angles.cos(), angles.sin()
    wanted = caches(BF16)
    ops.paged_append(key, value, *wanted, slots, cos=cos, sin=sin)
    both = torch.cat((key, value), 1)
    k, v = (x.transpose(1, 2).contiguous() for x in caches(BF16))
    twice = {"cos": torch.cat((cos, cos), 1), "sin": torch.cat((sin, sin), 1)}
    ops.paged_append(both[:, :GROUPS], both[:, GROUPS:], k, v, slots.long(), layout="HND", **twice)
    assert torch.equal(k.transpose(1, 2), wanted[0])
    assert torch.equal(v.transpose(1, 2), wanted[1])


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("tokens", [0, 21])
@pytest.mark.parametrize("dtype", [BF16, E4M3])
def test_queries_are_turned_with_the_keys(tokens: int, dtype: Any) -> None:
    """Of all tokens, also those that no slot takes; out of one product with the keys, which lie between them."""
    key, value, slots = drawn(tokens)
    both = torch.cat((torch.randn(tokens, 6, WIDTH).to(BF16), key), 1)
    angles = torch.rand((tokens, WIDTH // 2)) * 6
    turns = {"cos": angles.cos(), "sin": angles.sin()}
    wanted, found = caches(dtype), caches(dtype)
    assert ops.paged_append(key, value, *wanted, slots, **turns) is None
    got = ops.paged_append(both[:, 6:], value, *found, slots, **turns, query=both[:, :6])
    torch.testing.assert_close(got.double(), turned(both[:, :6], **turns), rtol=4e-3, atol=4e-3)
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("heads", [3, 0])
def test_queries_that_do_not_fit(heads: int) -> None:
    key, value, slots = drawn()
    with pytest.raises(tw.TilewrightError, match="JIT010"):
        ops.paged_append(key, value, *caches(BF16), slots, query=torch.randn(21, heads, WIDTH).to(BF16))


@pytest.mark.usefixtures("road")
def test_nothing_to_append() -> None:
    key, value, slots = drawn(0)
    k, v = caches(BF16)
    ops.paged_append(key, value, k, v, slots)
    assert bool((k == 3).all())


def test_what_is_appended_is_attended_to() -> None:
    """A sequence of 21 tokens through an 8-bit cache and decode, beside attention over what was given."""
    key, value, _ = drawn()
    k, v = caches(E4M3)
    slots = torch.arange(21).int() + 2 * PAGE
    options = {"k_scale": 0.02, "v_scale": 0.02}
    ops.paged_append(key, value, k, v, slots, **options)
    q = torch.randn((1, 4, WIDTH)).to(BF16)
    y = ops.paged_decode(q, k, v, torch.tensor([[2, 3]]).int(), torch.tensor([21]).int(), **options)
    x = torch.einsum("grd,tgd->grt", q[0].view(GROUPS, 2, WIDTH).double(), key.double()) * WIDTH**-0.5
    wanted = torch.einsum("grt,tgd->grd", x.softmax(-1), value.double()).view(4, WIDTH)
    assert float((y[0].double() - wanted).abs().max()) < 0.1


def test_a_slot_that_is_named_twice_is_reported() -> None:
    key, value, slots = drawn()
    slots[5] = slots[4]
    with ops.simulated(), pytest.raises(tw.TilewrightError, match="RUN023"):
        ops.paged_append(key, value, *caches(BF16), slots)


def test_in_one_compiled_graph_and_opcheck() -> None:
    key, value, slots = drawn()
    k, v = caches(BF16)
    angles, query = torch.rand((len(key), WIDTH // 2)), torch.randn(len(key), 6, WIDTH).to(BF16)
    for rest in ((None,) * 6, (angles.cos(), angles.sin(), None, None, query, torch.empty_like(query))):
        torch.library.opcheck(torch.ops.tilewright.paged_append.default, (key, value, k, v, slots, *rest))
    wanted = caches(BF16)
    ops.paged_append(key, value, *wanted, slots)
    step = torch.compile(lambda *t: ops.paged_append(*t), backend="aot_eager", fullgraph=True)
    k, v = caches(BF16)
    step(key, value, k, v, slots)
    assert torch.equal(k, wanted[0])
    turns = {"cos": angles.cos(), "sin": angles.sin()}
    turning = torch.compile(lambda *t: ops.paged_append(*t, **turns, query=query), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(turning(key, value, k, v, slots), ops.rotary(query[None], **turns)[0])


KEY, VALUE, SLOTS = drawn()
K, V = caches(BF16)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: ops.paged_append(KEY[0], VALUE, K, V, SLOTS), "key, value, k_cache, v_cache, slot_mapping of"),
        (lambda: ops.paged_append(KEY, VALUE, K, V[:-1], SLOTS), "key, value, k_cache, v_cache, slot_mapping of"),
        (lambda: ops.paged_append(KEY, VALUE, K, V, SLOTS[:-1]), "20 slots"),
        (lambda: ops.paged_append(KEY[:, :1], VALUE[:, :1], K, V, SLOTS), "21 tokens of 1 heads of 64"),
        (lambda: ops.paged_append(KEY, VALUE, K, V, SLOTS, cos=KEY[:, 0]), "cos and sin of (21, 64) and None"),
        (lambda: ops.paged_append(KEY, VALUE, K, V, SLOTS.float()), "slot_mapping of torch.float32"),
        (lambda: ops.paged_append(KEY.float(), VALUE.float(), K, V, SLOTS), "key and value of torch.float32"),
        (lambda: ops.paged_append(KEY, VALUE, K, V, SLOTS, k_scale=2.0), "k_scale with a cache of torch.bfloat16"),
        (lambda: ops.paged_append(KEY, VALUE, K, V, SLOTS, layout="DNH"), "layout='DNH'"),
        (lambda: ops.paged_append(KEY, VALUE, K, V, SLOTS.to("meta")), "tensors on cpu, cpu, cpu, cpu, meta"),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], found: str) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        call()
    assert caught.value.code == "JIT010"
    assert "paged_append: " in str(caught.value)
    assert found in str(caught.value)


def test_there_is_no_gradient() -> None:
    with pytest.raises(tw.TilewrightError, match="JIT011"):
        ops.paged_append(KEY.clone().requires_grad_(), VALUE, *caches(BF16), SLOTS)
