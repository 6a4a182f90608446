"""``ops.merge_states``: attention over parts of the keys is attention over all of them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402


def parts(dtype: Any, ends: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """Results and lse of parts of 24 keys, and of all that some part has; float64 of rounded inputs."""
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 5, n, 16, generator=random, dtype=torch.float64) for n in (7, 24, 24))
    scores = q @ k.transpose(-1, -2)

    def over(start: int, end: int) -> tuple[Any, Any]:
        lse = torch.logsumexp(scores[..., start:end], -1)
        weights = torch.exp(scores[..., start:end] - lse[..., None]) if end > start else scores[..., start:end]
        return weights @ v[..., start:end, :], lse

    found = [over(start, end) for start, end in zip((0, *ends), ends, strict=False)]
    y, lse = (torch.stack(each) for each in zip(*found, strict=True))
    return y.to(dtype), lse.float(), *over(0, ends[-1])


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ends", [(10, 24), (0, 3, 3, 24), (24,), (0, 0)])
def test_parts_are_the_whole(mode: Any, dtype: Any, ends: tuple[int, ...]) -> None:
    y, lse, expected, expected_lse = parts(dtype, ends)
    with mode():
        found, whole = ops.merge_states(y, lse)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(whole.double(), expected_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
def test_what_is_no_number_is_no_part_without_keys(mode: Any) -> None:
    y, lse, _, _ = parts(torch.float32, (10, 24))
    lse[0, 0, 0, 0] = lse[1, 0, 0, 1] = torch.nan
    lse[:, 0, 0, 2] = -torch.inf
    with mode():
        found, whole = ops.merge_states(y, lse)
    assert whole[0, 0, :2].isnan().all()
    assert found[0, 0, :2].isnan().all()
    assert whole[0, 0, 2] == -torch.inf
    assert not found[0, 0, 2].count_nonzero()
    assert whole.isnan().sum() == 2


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
def test_the_logarithm_of_keys_that_are_no_numbers_is_none(mode: Any) -> None:
    """It would say that there are no keys, and a part be left out."""
    q, k = torch.randn(2, 3, 4, 64).bfloat16()
    places = torch.tensor([0, 2, 3], dtype=torch.int32)
    k[1, 2] = torch.nan
    table = torch.tensor([[0], [1]], dtype=torch.int32)
    with mode():
        for packed in (False, True):
            y, lse = ops.varlen_attention_with_lse(q, k, k, places, places, packed=packed)
            assert lse.isnan().nonzero().tolist() == [[2, 0], [2, 1]]
            assert y[:2, 2].isnan().all()
        cache = k[None, :2].repeat(2, 8, 1, 1)
        cache[1] = 1.0
        for balanced in (False, True):
            y, lse = ops.paged_decode_with_lse(q[:2], cache, cache, table, table[:, 0] * 0 + 5, balanced=balanced)
            assert lse.isnan().nonzero().tolist() == [[0, 2]]
            assert y[0, 2].isnan().all()


def test_a_row_of_a_single_sequence() -> None:
    y, lse, expected, _ = parts(torch.float32, (10, 24))
    found, whole = ops.merge_states(y[:, 0, 0, 0], lse[:, 0, 0, 0])
    torch.testing.assert_close(found.double(), expected[0, 0, 0], rtol=1e-5, atol=1e-5)
    assert whole.shape == ()


def test_refusals() -> None:
    for y, lse in (((2, 3, 8), (3, 2)), ((8,), ())):
        with pytest.raises(tw.TilewrightError) as error:
            ops.merge_states(torch.zeros(y), torch.zeros(lse))
        assert error.value.diagnostics[0].code == "JIT010"
