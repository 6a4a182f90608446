"""``ops.quantize``, and ``ops.linear`` of 8-bit floats with scales of rows and of blocks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

pytestmark = pytest.mark.sample(3)

F = torch.nn.functional
MODES = pytest.mark.parametrize("mode", [nullcontext, ops.simulated])


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def spread(scale: Any, rows: int, width: int) -> Any:
    """Of blocks of 128 x 128 the scale of every element."""
    return scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :width]


@MODES
@pytest.mark.parametrize("block", [None, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantize(mode: Any, block: int | None, dtype: Any) -> None:
    x = (drawn(2, 3, 300) * torch.tensor([1e-3, 1.0, 50.0])[:, None]).to(dtype)
    x[0, 0, :256] = 0
    with mode():
        y, scale = ops.quantize(x, block=block)
    assert y.dtype == torch.float8_e4m3fn
    assert y.shape == x.shape
    assert scale.shape == ((2, 3, 3) if block else (2, 3))
    each = scale.repeat_interleave(128, -1)[..., :300] if block else scale[..., None]
    assert ((y.float() * each - x.float()).abs() <= x.float().abs() / 16 + each / 512).all()
    parts = y.float().abs().split(128, -1) if block else [y.float().abs()]
    for part, of in zip(parts, x.split(128, -1) if block else [x], strict=True):
        assert torch.equal(part.amax(-1), torch.where((of == 0).all(-1), 0.0, 448.0))


def test_the_fallback_has_the_kernels_bits() -> None:
    x = drawn(7, 200)
    expected = [ops.quantize(x, block=block) for block in (None, 128)]
    with ops.simulated():
        found = [ops.quantize(x, block=block) for block in (None, 128)]
    for (y, scale), (other, its) in zip(found, expected, strict=True):
        assert torch.equal(y.view(torch.uint8), other.view(torch.uint8))
        torch.testing.assert_close(scale, its, rtol=1e-6, atol=0)


@MODES
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(2, 35, 200, 400), (5, 20, 130, 128), (1, 70, 256, 272)])
@pytest.mark.parametrize("blocks", [False, True])
def test_linear(mode: Any, dtype: Any, shape: tuple[int, int, int, int], blocks: bool) -> None:
    batch, rows, out, width = shape
    x, x_scale = ops.quantize(drawn(batch, rows, width), block=128 if blocks else None)
    if blocks:
        weight = drawn(out, width, seed=1).to(torch.float8_e4m3fn)
        scale = drawn(-(-out // 128), -(-width // 128), seed=2).abs()
        wide = weight.double() * spread(scale, out, width)
        exact = x.double() * x_scale.repeat_interleave(128, -1)[..., :width]
    else:
        weight, scale = ops.quantize(drawn(out, width, seed=1))
        wide, exact = weight.double() * scale[:, None], x.double() * x_scale[..., None]
    bias, residual = drawn(out, seed=3), drawn(batch, rows, out, seed=4)
    expected = F.silu(F.linear(exact, wide, bias.double())) + residual
    with mode():
        scales = {"x_scale": x_scale, "weight_scale": scale}
        y = ops.linear(x, weight, bias, activation="silu", residual=residual, **scales, dtype=dtype)
        plain = ops.linear(x, weight, **scales, dtype=dtype)
    assert y.dtype == plain.dtype == (dtype or torch.bfloat16)
    relative = 2**-7 if dtype is None else 2**-9
    for found, of in ((y, expected), (plain, F.linear(exact, wide))):
        assert float((found.double() - of).abs().max()) <= relative * float(of.abs().max())


@pytest.mark.parametrize("shape", [(0, 16), (3, 0)])
def test_nothing_to_multiply(shape: tuple[int, int]) -> None:
    for block in (None, 128):
        y, scale = ops.quantize(torch.zeros(shape), block=block)
        weight, of_weight = ops.quantize(torch.zeros(5, shape[1]))
        if block:
            of_weight = torch.zeros(1, -(-shape[1] // 128))
        result = ops.linear(y, weight, x_scale=scale, weight_scale=of_weight)
        assert torch.equal(result, torch.zeros(shape[0], 5, dtype=torch.bfloat16))


def test_in_a_whole_graph_and_into_out() -> None:
    weight, scale = ops.quantize(drawn(40, 200, seed=1))

    def layer(x: Any) -> Any:
        y, each = ops.quantize(x)
        return ops.linear(y, weight, x_scale=each, weight_scale=scale) + 1

    x = drawn(6, 200).bfloat16()
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))
    y, each = ops.quantize(x)
    out = x.new_empty(6, 40)
    assert ops.linear(y, weight, x_scale=each, weight_scale=scale, out=out) is out
    assert torch.equal(out + 1, layer(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(out + 1, layer(x))


def test_gradients_are_refused() -> None:
    with pytest.raises(tw.TilewrightError) as error:
        ops.quantize(drawn(3, 8).requires_grad_())[1].sum().backward()
    assert error.value.diagnostics[0].code == "JIT011"


X, WEIGHT, EACH = torch.zeros(3, 200).to(torch.float8_e4m3fn), torch.zeros(5, 200).to(torch.float8_e4m3fn), torch.ones


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: ops.quantize(drawn(3, 8), block=64), "block=64"),
        (lambda: ops.quantize(torch.zeros(3, 8, dtype=torch.int32)), "int32"),
        (lambda: ops.linear(X, WEIGHT), "None, None"),
        (lambda: ops.linear(X, WEIGHT, x_scale=EACH(3), weight_scale=EACH(4)), r"\(4,\)"),
        (lambda: ops.linear(X, WEIGHT, x_scale=EACH(3, 2), weight_scale=EACH(5)), r"\(3, 2\)"),
        (lambda: ops.linear(X, WEIGHT, x_scale=EACH(3).double(), weight_scale=EACH(5)), "float64"),
        (lambda: ops.linear(X, WEIGHT, x_scale=EACH(3), weight_scale=EACH(5), dtype=torch.float64), "float64"),
        (lambda: ops.linear(X.bfloat16(), WEIGHT.bfloat16(), x_scale=EACH(3), weight_scale=EACH(5)), "bfloat16"),
        (lambda: ops.linear(drawn(3, 4), drawn(5, 4), dtype=torch.float32), "dtype=torch.float32"),
    ],
)
def test_refusals(call: Any, found: str) -> None:
    with pytest.raises(tw.TilewrightError, match=found) as error:
        call()
    assert error.value.diagnostics[0].code == "JIT010"


def test_long_rows_are_quantised_as_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(5, 300).bfloat16()
    with ops.simulated():
        short = ops.quantize(x)
        monkeypatch.setattr("tilewright.ops.functional.eight_bits.ONE_TILE", 256)
        monkeypatch.setattr("tilewright.ops.functional.eight_bits._rows", None)
        found = ops.quantize(x)
    for a, b in zip(found, short, strict=True):
        assert torch.equal(a.float(), b.float())
