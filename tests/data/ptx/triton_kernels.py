"""The sources of triton_*.ptx: `python triton_kernels.py` writes them into this folder (Triton 3.9, no GPU needed)."""

# pyright: basic, reportMissingImports=false
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax_kernel(out, x, stride, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + column, mask=column < n, other=-float("inf"))
    e = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + column, e / tl.sum(e, 0), mask=column < n)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    ap, bp = a + rm[:, None] * sa + rk[None, :], b + rk[:, None] * sb + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(ap, mask=(rm[:, None] < M) & (rk[None, :] < K - k * BK), other=0.0)
        y = tl.load(bp, mask=(rk[:, None] < K - k * BK) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BK
        bp += BK * sb
    tl.store(c + rm[:, None] * sc + rn[None, :], acc.to(tl.bfloat16), mask=(rm[:, None] < M) & (rn[None, :] < N))


def compiled(kernel, signature, constants, capability):
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(ASTSource(kernel, types, constants), target=target, options={"num_warps": 4}).asm["ptx"]


if __name__ == "__main__":
    here = Path(__file__).parent
    softmax = {"out": "*fp32", "x": "*fp32", "stride": "i32", "n": "i32"}
    matmul = {**dict.fromkeys("abc", "*bf16"), **dict.fromkeys(("M", "N", "K", "sa", "sb", "sc"), "i32")}
    (here / "triton_softmax_90.ptx").write_text(compiled(softmax_kernel, softmax, {"BLOCK": 1024}, 90))
    for capability in (80, 90):
        text = compiled(matmul_kernel, matmul, {"BM": 64, "BN": 64, "BK": 32}, capability)
        (here / f"triton_matmul_{capability}.ptx").write_text(text)
