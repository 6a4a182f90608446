"""RMSNorm, LayerNorm, and RMSNorm fused with the residual that precedes it."""

from typing import Annotated

import tilewright as tw


@tw.kernel(numerics="fast")
def rms_norm(
    x: Annotated[tw.Tensor, "M", "N"],
    w: Annotated[tw.Tensor, "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    *,
    eps: Annotated[float, tw.f32] = 1e-6,
    bm: int = tw.auto,
    upto: int = 16384,
):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    scale = tw.rsqrt((row * row).mean(1) + eps)
    y[m, n] = row * scale[:, None] * w[n].to(tw.f32)


@tw.kernel(numerics="fast")
def layer_norm(
    x: Annotated[tw.Tensor, "M", "N"],
    w: Annotated[tw.Tensor, "N"],
    b: Annotated[tw.Tensor, "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    *,
    eps: Annotated[float, tw.f32] = 1e-5,
    bm: int = tw.auto,
    upto: int = 16384,
):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    centred = row - row.mean(1)[:, None]
    scale = tw.rsqrt((centred * centred).mean(1) + eps)
    y[m, n] = centred * scale[:, None] * w[n].to(tw.f32) + b[n].to(tw.f32)


@tw.kernel(numerics="fast")
def residual_rms_norm(
    x: Annotated[tw.Tensor, "M", "N"],
    residual: Annotated[tw.Tensor, "M", "N"],
    w: Annotated[tw.Tensor, "N"],
    total: Annotated[tw.Tensor, "M", "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    *,
    eps: Annotated[float, tw.f32] = 1e-6,
    bm: int = tw.auto,
    upto: int = 16384,
):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32) + residual[m, n].to(tw.f32)
    total[m, n] = row
    scale = tw.rsqrt((row * row).mean(1) + eps)
    y[m, n] = row * scale[:, None] * w[n].to(tw.f32)
