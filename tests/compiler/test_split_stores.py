"""Stores at ``h*D + d``, where D is known at launch only: proved where d is below D, and nowhere else."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.lowered import lowered
from support.ptx_driver import run_artifact
from tilewright.base.verdict import Proved
from tilewright.compiler.proofs.stores import prove_stores

pytestmark = pytest.mark.sample(4)


@tw.kernel
def heads(x: tw.Tensor["H", "T", "D"], y: tw.Tensor["T", "H * D"]):
    h, t = tw.grid(x.shape[:2], (None, 8))
    d = tw.axis(x.shape[2], upto=64)
    y[t, h * x.shape[2] + d] = x[h, t, d]


@tw.kernel
def from_the_end(x: tw.Tensor["H", "T", "D"], y: tw.Tensor["T", "H * D"]):
    h, t = tw.grid(x.shape[:2], (None, 8))
    d = tw.axis(x.shape[2], upto=64)
    y[t, (x.shape[0] - 1 - h) * x.shape[2] + d] = x[h, t, d]


@tw.kernel
def all_but_one(x: tw.Tensor["H", "T", "D"], y: tw.Tensor["T", "H * D"]):
    h, t = tw.grid(x.shape[:2], (None, 8))
    d = tw.axis(x.shape[2], upto=64)
    y[t, (h + 1) * x.shape[2] + d] = x[h, t, d]


@tw.kernel
def one_short(x: tw.Tensor["H", "T", "D"], y: tw.Tensor["T", "H * D"]):
    h, t = tw.grid(x.shape[:2], (None, 8))
    d = tw.axis(x.shape[2] - 1, upto=64)
    y[t, h * x.shape[2] + d] = x[h, t, d]


KERNELS = {k.__name__: k for k in (heads, from_the_end, all_but_one, one_short)}


def _lowered(name: str):
    ((tiles, kernel),) = lowered(KERNELS[name], {"x": "f32", "y": "f32"}).values()
    return tiles, kernel


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_stored_is_what_is_promised(name: str) -> None:
    assert isinstance(prove_stores(*_lowered(name)), Proved)


@pytest.mark.parametrize(
    ("promised", "done"),
    [(a, b) for a in KERNELS for b in KERNELS if a != b and {a, b} != {"heads", "from_the_end"}],
)
def test_other_elements_than_promised_are_not_proved(promised: str, done: str) -> None:
    assert not isinstance(prove_stores(_lowered(promised)[0], _lowered(done)[1]), Proved)


@tw.kernel
def wider(x: tw.Tensor["H", "T", "E"], y: tw.Tensor["T", "H * D"], w: tw.Tensor["D"]):
    """Elements behind D are those of the next head."""
    h, t = tw.grid(x.shape[:2], (None, 8))
    d = tw.axis(x.shape[2], upto=64)
    y[t, h * w.shape[0] + d] = x[h, t, d] + w[0]


@tw.kernel
def in_pairs(x: tw.Tensor["H", "T", "D"], y: tw.Tensor["T", "H * D"]):
    h, t = tw.grid(x.shape[:2], (None, 8))
    d = tw.axis(x.shape[2], upto=64)
    y[t, h // 2 * x.shape[2] + d] = x[h, t, d]


@pytest.mark.parametrize("kernel", [wider, in_pairs], ids=lambda k: k.__name__)
def test_elements_that_two_heads_may_write_are_refused(kernel: tw.Kernel) -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        kernel.compile(dtypes={t.name: "f32" for t in kernel.tensors})
    assert refused.value.diagnostics[0].code.startswith("ACC")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 9, 12), (2, 17, 64)])
def test_simulator_and_ptx_machine_store_the_heads(shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = x.transpose(1, 0, 2).reshape(shape[1], -1)
    simulated, executed = np.zeros_like(expected), np.zeros_like(expected)
    heads(x, simulated)
    np.testing.assert_array_equal(simulated, expected)
    if shape[2] % 4 == 0:
        run_artifact(heads.compile(dtypes={"x": "f32", "y": "f32"}), {"x": x, "y": executed})
        np.testing.assert_array_equal(executed, expected)
