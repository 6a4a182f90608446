"""``ops.embedding``, ``index_add``, ``cumsum`` and ``grouped_matmul`` by their kernels, in the simulator."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402
from tilewright.ops import kernels  # noqa: E402
from tilewright.ops.functional import grouped, indexed  # noqa: E402

pytestmark = pytest.mark.sample(3)

F = torch.nn.functional


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    random = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=random).to(dtype).requires_grad_()


def gradients(y: Any, *inputs: Any) -> tuple[Any, ...]:
    """Of a weighed sum of y's elements."""
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return torch.autograd.grad((y * weights).sum(), inputs)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_embedding(dtype: Any) -> None:
    weight, index = drawn(20, 24), torch.tensor([[0, 3, 3], [19, 2, 0]], dtype=dtype)
    expected = F.embedding(index, weight, padding_idx=3)
    with ops.simulated():
        y = ops.embedding(index, weight, padding_idx=-17)
        assert torch.equal(y, expected)
        assert torch.equal(*(gradients(z, weight)[0] for z in (y, expected)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("most", [3, 70, 300])
def test_the_gradient_of_a_table_whose_rows_are_named_often(dtype: Any, most: int) -> None:
    """Whole chunks of entries that name one row, parts of them, and rows that nobody names."""
    weight = drawn(9, 40, dtype=dtype)
    index = torch.cat(
        [torch.full((most,), 6), torch.arange(0, 9, 2), torch.full((most // 2,), 3), torch.tensor([9, -1])]
    )
    dy = torch.randn(len(index), 40, generator=torch.Generator().manual_seed(2)).to(dtype)
    with ops.simulated():
        (gradient,) = torch.autograd.grad(ops.embedding(index, weight), weight, dy)
    exact, named = torch.zeros(9, 40, dtype=torch.float64), (index >= 0) & (index < 9)
    exact.index_add_(0, index[named], dy[named].double())
    assert gradient.dtype == dtype
    torch.testing.assert_close(
        gradient.double(), exact.to(dtype).double(), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5
    )


def test_a_gradient_of_a_tables_gradient() -> None:
    weight, index = drawn(9, 40), torch.tensor([1, 1, 8, 0])
    with ops.simulated():
        (first,) = torch.autograd.grad(ops.embedding(index, weight).square().sum(), weight, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), weight)
    assert torch.equal(second, 2.0 * torch.bincount(index, minlength=9)[:, None].expand(9, 40))


def test_an_index_that_is_no_row_gives_zeros_and_has_no_gradient() -> None:
    weight, index = drawn(5, 8), torch.tensor([4, -1, 5, 1 << 40, -(1 << 40), 0])
    with ops.simulated():
        y = ops.embedding(index, weight)
        (gradient,) = gradients(y, weight)
    assert torch.equal(y[[0, 5]], weight[[4, 0]])
    assert not y[1:5].any()
    assert gradient[[0, 4]].all()
    assert not gradient[1:4].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_index_add(dtype: Any) -> None:
    x, source, index = drawn(7, 4, 6, dtype=dtype), drawn(5, 4, 6, dtype=dtype), torch.tensor([1, 1, 6, 0, 1])
    expected = torch.index_add(x, 0, index, source, alpha=2)
    with ops.simulated():
        y = ops.index_add(x, -3, index, source, alpha=2)
        torch.testing.assert_close(y, expected, rtol=2**-6, atol=2**-6)
        for mine, theirs in zip(gradients(y, x, source), gradients(expected, x, source), strict=True):
            assert torch.equal(mine, theirs)
        out_of_range = ops.index_add(x, 0, torch.tensor([7, -1, 1 << 40, -8, 2]), source)
    assert torch.equal(out_of_range[[0, 1, 3, 4, 5, 6]], x[[0, 1, 3, 4, 5, 6]])


def added_deterministically(x: Any, index: Any, source: Any) -> Any:
    """In the simulator, while PyTorch asks for deterministic algorithms."""
    torch.use_deterministic_algorithms(True)
    try:
        with ops.simulated():
            return ops.index_add(x, 0, index, source)
    finally:
        torch.use_deterministic_algorithms(False)


def test_index_add_in_the_order_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """As deterministic algorithms must, in more than one block of entries; sums by reductions are not asked."""
    x, source, index = drawn(7, 6), drawn(600, 6), torch.arange(600) * 7919 % 11 - 2
    inside = (index >= 0) & (index < 7)
    monkeypatch.setattr(kernels, "index_add", None)
    y = added_deterministically(x, index, source)
    expected = torch.index_add(x.double(), 0, index[inside], source[inside].double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_index_add_is_pytorchs_where_counts_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    x, source, index = drawn(7, 6), drawn(5, 6), torch.tensor([1, 1, 6, 0, 1])
    monkeypatch.setattr(indexed, "MOST_ROWS", 6)
    monkeypatch.setattr(kernels, "count_entries", None)
    y = added_deterministically(x, index, source)
    assert torch.equal(y, torch.index_add(x, 0, index, source))


@pytest.mark.parametrize(("dim", "length"), [(-1, 9), (0, 9), (1, 9), (-1, 256), (-1, 1025), (-1, 4200)])
def test_cumsum(dim: int, length: int) -> None:
    x = drawn(3, 50, 9) if length == 9 else drawn(2, 1, length)
    with ops.simulated():
        y = ops.cumsum(x, dim)
        found, (gradient,) = y, gradients(y, x)
    expected = torch.cumsum(x.double(), dim)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(gradient, gradients(expected.float(), x)[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("offsets", [[0, 10, 10, 33], [10, 10, 33], [0, 0, 0, 0], [0, 0, 40, 40]])
def test_grouped_matmul(offsets: list[int]) -> None:
    x, weight = drawn(40, 64, dtype=torch.bfloat16), drawn(3, 128, 64, dtype=torch.bfloat16)
    given = torch.tensor(offsets, dtype=torch.int32)
    starts = [0, *offsets][-4:]
    parts = [x[i:j] @ weight[g].t() for g, (i, j) in enumerate(pairwise(starts))]
    expected = torch.cat([*parts, x.new_zeros(40 - starts[-1], 128)])
    with ops.simulated():
        y = ops.grouped_matmul(x, weight, given)
        torch.testing.assert_close(y, expected, rtol=2**-6, atol=2**-6)
        for mine, theirs in zip(gradients(y, x, weight), gradients(expected, x, weight), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=2**-5, atol=2**-4)


def test_grouped_rows_have_the_same_bits_whatever_the_others() -> None:
    x, weight = drawn(300, 96, dtype=torch.bfloat16), drawn(3, 72, 96, dtype=torch.bfloat16)
    do = torch.randn(300, 72, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = []
    for parts in ([0, 20, 20, 290], [0, 20, 21, 300]), ([0, 20], [0, 20]):
        for offsets in parts:
            groups, rows = len(offsets) - 1, offsets[-1]
            leaf = x[:rows].detach().requires_grad_()
            with ops.simulated():
                given = torch.tensor(offsets, dtype=torch.int32)
                y = ops.grouped_matmul(leaf, weight[:groups], given, batch_invariant=True)
                y.backward(do[:rows])
            found.append((y[:20].detach(), leaf.grad[:20]))
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(found[0], one, strict=True))


@pytest.mark.parametrize("by", ["rows", "blocks"])
@pytest.mark.parametrize("simulated", [False, True])
def test_grouped_products_of_8_bits_with_scales(by: str, simulated: bool) -> None:
    random = torch.Generator().manual_seed(3)
    x, weight = (torch.randn(s, generator=random).to(torch.float8_e4m3fn) for s in ((40, 144), (3, 136, 144)))
    shapes = ((40,), (3, 136)) if by == "rows" else ((40, 2), (3, 2, 2))
    scales = tuple(torch.rand(s, generator=random) + 0.5 for s in shapes)
    offsets = torch.tensor([0, 10, 10, 33], dtype=torch.int32)
    if by == "rows":
        wide = [t.double() * scale[..., None] for t, scale in zip((x, weight), scales, strict=True)]
    else:
        each = scales[0].repeat_interleave(128, 1)[:, :144], torch.kron(scales[1], torch.ones(128, 128))[:, :136, :144]
        wide = [t.double() * scale for t, scale in zip((x, weight), each, strict=True)]
    expected = torch.zeros(40, 136, dtype=torch.float64)
    for g, (i, j) in enumerate(pairwise(offsets.tolist())):
        expected[i:j] = wide[0][i:j] @ wide[1][g].T
    with ops.simulated() if simulated else nullcontext():
        y = ops.grouped_matmul(x, weight, offsets[1:], scales=scales)
        out = torch.full_like(y, torch.nan)
        assert ops.grouped_matmul(x, weight, offsets, scales=scales, out=out) is out
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, out)
    torch.testing.assert_close(y.double(), expected, rtol=2**-7, atol=2**-6)
    with pytest.raises(tw.TilewrightError, match="JIT010"):
        ops.grouped_matmul(x, weight, offsets, scales=(scales[0], scales[1][:2]))


def test_one_tile_serves_any_number_of_rows() -> None:
    types = {"offsets": "i32", **dict.fromkeys("abc", "bf16")}
    for columns in (128, 4096):
        assert len(kernels.grouped_matmul.plan(dtypes=types, **grouped._tiles(columns)).variants) == 1


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: ops.embedding(torch.zeros(3), drawn(4, 5)), "torch.float32"),
        (lambda: ops.embedding(torch.zeros(3, dtype=torch.int64), drawn(5)), r"\(5,\)"),
        (lambda: ops.grouped_matmul(drawn(4, 8), drawn(2, 3, 8), torch.zeros(5, dtype=torch.int32)), r"\(5,\)"),
        (lambda: ops.grouped_matmul(drawn(4, 8), drawn(2, 3, 7), torch.zeros(3, dtype=torch.int32)), r"\(2, 3, 7\)"),
    ],
)
def test_refusals(call: Any, found: str) -> None:
    with pytest.raises(tw.TilewrightError, match=found) as error:
        call()
    assert error.value.diagnostics[0].code == "JIT010"
