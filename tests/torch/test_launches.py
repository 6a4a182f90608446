"""What reaches a kernel's program from an operator's call on a GPU, with stand-ins for tensors and driver."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from support.fake_driver import CUDA0, FakeDriver, FakeTensor
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright.ops import execution  # noqa: E402
from tilewright.runtime.program import Program  # noqa: E402

STREAM = 0xABC0
X, W, Y, Z = (0x1000_0000 * (i + 1) for i in range(4))


class OnGpu(FakeTensor):
    """As much of a CUDA tensor as a launch reads."""

    def size(self, axis: int) -> int:
        return self.shape[axis]

    def get_device(self) -> int:
        return 0

    def new_empty(self, shape: Any) -> OnGpu:
        return OnGpu(Z, tuple(shape), dtype=self.dtype, device=self.device)


@tw.op(dtypes={"top": tw.f32}, fallback=lambda *_: None)
@tw.kernel
def normed(
    x: tw.Tensor["M", "N"],
    w: tw.Tensor["N"] | None,
    y: tw.Tensor["M", "N"],
    top: tw.Tensor["M"],
    *,
    scale: tw.f32 = 2.0,
    twice: bool = False,
    bm=4,
):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    v = x[m, n].to(tw.f32) * scale
    v = v if w is None else v * w[n].to(tw.f32)
    top[m] = v.max(1)
    y[m, n] = v * 2 if twice else v


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Results are stand-ins at Y and Z; each test's programs load on its own driver, the stream is PyTorch's."""
    for operator in (normed, spread):
        monkeypatch.delitem(operator.signature.kernel.__dict__, "compiled", raising=False)
    fake = FakeDriver(locations=dict.fromkeys((X, W, Y, Z), 0))

    def empty(shape: Any, dtype: Any, device: Any) -> OnGpu:
        return OnGpu(Z, tuple(shape), dtype=str(dtype), device=device)

    def empty_like(source: OnGpu, memory_format: Any) -> OnGpu:
        return OnGpu(Y, source.shape, dtype=source.dtype, device=source.device)

    stand_in = SimpleNamespace(empty=empty, zeros=empty, are_deterministic_algorithms_enabled=lambda: False)
    monkeypatch.setattr(execution, "torch", stand_in)
    monkeypatch.setattr(execution, "_empty_like", empty_like)
    monkeypatch.setattr("tilewright.jit.pytorch.current_stream", lambda tensor: STREAM)
    monkeypatch.setattr("tilewright.runtime.load", lambda artifact: Program(artifact, fake))
    monkeypatch.setattr("tilewright.runtime.capability", lambda described: (9, 0))
    return fake


def run(*values: Any) -> tuple[Any, ...]:
    normed._execution = execution.Execution(normed.signature, None)
    return normed._execution.run(values)


def test_results_are_allocated_and_the_arguments_are_in_order(driver: FakeDriver) -> None:
    x, w = OnGpu(X, (6, 64)), OnGpu(W, (64,))
    y, top = run(x, w, 3.0, False, 4)
    assert (y.address, y.shape, y.dtype) == (Y, (6, 64), "torch.bfloat16")
    assert (top.address, top.shape, top.dtype, top.device) == (Z, (6,), "torch.float32", CUDA0)
    run(x, w, 5.0, False, 4)
    first, second = driver.launches
    assert first.stream == second.stream == STREAM
    assert first.words(4) == [X, W, Y, Z]
    assert driver.kinds().count("load") == 1
    scale = next(i for i in range(4, 16) if second.f32(i) == 5.0)
    assert scale


def test_absent_tensors_and_keywords_are_programs_of_their_own(driver: FakeDriver) -> None:
    x, w = OnGpu(X, (6, 64)), OnGpu(W, (64,))
    run(x, None, 2.0, False, 4)
    run(x, w, 2.0, True, 4)
    run(x, None, 2.0, True, 4)
    run(x, None, 2.0, False, 4)
    assert [launched.words(3)[1] for launched in driver.launches] == [Y, W, Y, Y]
    assert driver.kinds().count("load") == 3


def test_each_set_of_absent_tensors_is_a_program_of_its_own_loaded_once(driver: FakeDriver) -> None:
    x, w = OnGpu(X, (6, 64)), OnGpu(W, (64,))
    driver.words = 3
    ran = execution.Execution(normed.signature, None)
    for weight in (None, w, None, OnGpu(W + 16, (64,))):
        ran.run((x, weight, 2.0, False, 2))
    assert [words[1] for _, words in driver.snapshots] == [Y, W, Y, W + 16]
    assert driver.kinds().count("load") == 2


@tw.op(fallback=lambda *_: None)
@tw.kernel
def spread(a: tw.Tensor["M"], b: tw.Tensor["N"], y: tw.Tensor["M", "N"], *, bm=4):
    m = tw.grid(a.shape[0], bm)
    n = tw.axis(b.shape[0], upto=64)
    y[m, n] = a[m][:, None] + b[n][None, :]


def test_a_result_of_the_extents_of_several_tensors(driver: FakeDriver) -> None:
    ran = execution.Execution(spread.signature, None)
    (y,) = ran.run((OnGpu(X, (6,)), OnGpu(W, (64,)), 4))
    assert (y.address, y.shape, y.dtype) == (Z, (6, 64), "torch.bfloat16")
    (launched,) = driver.launches
    assert launched.words(3) == [X, W, Z]
    assert launched.stream == STREAM


def test_another_rank_is_refused(driver: FakeDriver) -> None:
    weights = OnGpu(W, (63,)), OnGpu(W, (1, 64))
    for x, w in ((OnGpu(X, (6,)), OnGpu(W, (64,))), *((OnGpu(X, (6, 64)), w) for w in weights)):
        with pytest.raises(tw.TilewrightError):
            run(x, w, 2.0, False, 4)
    assert not driver.launches


def test_an_output_that_is_an_input_is_refused(driver: FakeDriver) -> None:
    """Whether each element is read before it is written is not proved of two parameters."""
    x = OnGpu(X, (6, 64))
    normed._execution = execution.Execution(normed.signature, None)
    with pytest.raises(tw.TilewrightError) as caught:
        normed._execution.run_into((x, None, 2.0, False, 4), (x, OnGpu(Z, (6,), dtype="torch.float32")))
    assert caught.value.code == "RUN010"
    assert "the same tensor" in str(caught.value)


@pytest.mark.parametrize(
    ("use", "help"),
    [
        (lambda x: torch.exp(x), "use tw.exp"),
        (lambda x: torch.nn.functional.gelu(x), "tw.erf"),
        (lambda x: torch.sum(x, 0), "use x.sum(axis)"),
        (lambda x: torch.ones(16) * x, "pass the tensor as a parameter"),
        (lambda x: torch.tensor(2.0) * x, "tensor.item()"),
    ],
)
def test_functions_of_pytorch_on_tiles_are_refused_with_what_to_write(use: Any, help: str) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["N"], y: tw.Tensor["N"]):
        n = tw.grid(y, 16)
        y[n] = use(x[n])

    with pytest.raises(tw.TilewrightError) as told:
        kernel(torch.ones(20))
    (diagnostic,) = told.value.diagnostics
    assert diagnostic.code == "LNG007"
    assert help in diagnostic.help
