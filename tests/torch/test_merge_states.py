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
