"""Products on a real device: every order of both operands, under every form of schedule, at tiles of several widths."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from support import products as p
from tilewright import runtime

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

KERNELS = {"nt": p.nt, "nn": p.nn, "tn": p.tn, "tt": p.tt}
SCHEDULES = {
    "cluster": tw.Schedule(cluster=(2, 1)),
    "wide cluster": tw.Schedule(cluster=(1, 2)),
    "ping-pong": tw.Schedule(mode="pingpong"),
    "cooperative": tw.Schedule(consumers=2),
}
WIDTHS = {
    "cluster": (128, 160, 224),
    "wide cluster": (128,),
    "ping-pong": (72, 128, 160),
    "cooperative": (128, 200, 256),
}
SHAPES = ((256, 256, 64), (304, 520, 200), (1000, 2000, 1000))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", KERNELS)
def test_products(layout: str, schedule: str, dtype: str) -> None:
    """Against float64; of what no element of c is, and of all that lies between its rows, nothing is written."""
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    for width in WIDTHS[schedule]:
        dtypes = dict.fromkeys("abc", dtype)
        artifact = KERNELS[layout].compile(dtypes=dtypes, schedule=SCHEDULES[schedule], bm=128, bn=width)
        program = runtime.load(artifact)
        for m, n, k in SHAPES:
            a, b = torch.randn(m, k, device="cuda", dtype=kind), torch.randn(k, n, device="cuda", dtype=kind)
            whole = torch.full((m, n + 8), float("nan"), device="cuda", dtype=kind)
            c = whole[:, :n]
            left, right = a if layout[0] == "n" else a.t().contiguous(), b if layout[1] == "n" else b.t().contiguous()
            program.launch((left, right, c))
            exact = a.double() @ b.double()
            assert float((c.double() - exact).norm()) <= 3e-3 * float(exact.norm()), (width, m, n, k)
            assert bool(whole[:, n:].isnan().all())
