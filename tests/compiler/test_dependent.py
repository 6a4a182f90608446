"""Launches that begin while the launch before them ends."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import re

import pytest

import tilewright as tw
from support.slow import rest_slow
from tilewright.artifact.schema import Launch
from tilewright.jit import kernel
from tilewright.ops import kernels


@tw.kernel
def total(x: tw.Tensor["M", "K"], y: tw.Tensor["M"]):
    m = tw.grid(x.shape[0], 16)
    acc = tw.zeros(m, tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += x[m, k].sum(1)
    y[m] = acc


@tw.kernel
def spread(rows: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
    m = tw.grid(x.shape[0], 16)
    y[rows[m]] = x[m]


KERNELS = {
    "rows": (kernels.rms_norm, {"x": "bf16", "w": "bf16", "y": "bf16"}, {"N": 4096}, {}),
    "product": (kernels.matmul, dict.fromkeys(("a", "b", "c"), "bf16"), {}, {"extents": {"bm": 128, "bn": 128}}),
    "checked": (spread, {"rows": "i32"}, {}, {}),
    "two kernels": (total, {}, {}, {"split_k": 4}),
}
"""Each with what makes its variants few: extents that are static, and what its schedule pins."""


@pytest.mark.parametrize("name", rest_slow(KERNELS, ("rows",)))
def test_all_kernels_of_a_dependent_schedule_wait_and_are_proved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "1")
    given, dtypes, static, pins = KERNELS[name]
    artifact = given.compile(dtypes=dtypes, static=static, schedule=tw.Schedule(dependent=True, **pins))
    launches = [step for v in artifact.variants for step in v.steps if isinstance(step, Launch)]
    assert launches
    assert all(launch.early for launch in launches)
    for image in artifact.kernels:
        # one kernel at most waits: where the next ones were let begin first, they held SMs that split decoding needs
        assert re.findall(r"griddepcontrol\.(\w+)", image.ptx) == ["wait", "launch_dependents"]
        assert "ld.global.nc" not in image.ptx
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    plain = given.compile(dtypes=dtypes, static=static, schedule=tw.Schedule(**pins))
    assert not any(next(s for s in v.steps if isinstance(s, Launch)).early for v in plain.variants)


@pytest.mark.slow
def test_a_setting_makes_launches_dependent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_unpinned", kernel._unpinned.__wrapped__)
    compiled = kernels.softmax.compile(dtypes=dict.fromkeys("xy", "bf16"), static={"N": 4096})
    assert not any(s.early for v in compiled.variants for s in v.steps if isinstance(s, Launch))
    monkeypatch.setenv("TILEWRIGHT_DEPENDENT", "1")
    compiled = kernels.softmax.compile(dtypes=dict.fromkeys("xy", "bf16"), static={"N": 4096})
    assert all(s.early for v in compiled.variants for s in v.steps if isinstance(s, Launch))
