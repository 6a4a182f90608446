"""Several devices in one process: each call runs where its tensors lie, whichever device is PyTorch's current one."""

from __future__ import annotations

from typing import Any

import pytest

from support.example_cases import load
from support.pytorch import torch_or_skip
from tilewright.diag import TilewrightError

torch = torch_or_skip()

from support import operators  # noqa: E402
from tilewright import ops  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs on this machine"),
]

PLACES = "cuda:1", "cuda:0", "cuda:1"
"""Plans and guards of one device must not serve the other."""

OPERATORS = (
    "softmax",
    "rms_norm",
    "rms_norm_backward",
    "cross_entropy",
    "linear",
    "embedding",
    "cumsum",
    "grouped_matmul",
    "attention_lse",
    "experts",
    "quantize_rows",
)


axpy, matmul = load("axpy").axpy, load("matmul").matmul


def placed(values: tuple[Any, ...], device: str) -> tuple[Any, ...]:
    return tuple(v.detach().to(device) if isinstance(v, torch.Tensor) else v for v in values)


def flat(result: Any) -> list[Any]:
    return [result] if isinstance(result, torch.Tensor) else [r for r in result if isinstance(r, torch.Tensor)]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_run_where_their_tensors_lie(name: str) -> None:
    overload, arguments = operators.CALLS[name]
    expected = flat(overload(*placed(arguments(), "cpu")))
    for device in PLACES:
        found = flat(overload(*placed(arguments(), device)))
        assert [str(t.device) for t in found] == [device] * len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            if theirs.is_floating_point():
                torch.testing.assert_close(ours.cpu().float(), theirs.float(), rtol=2e-2, atol=2e-2)
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("current", [0, 1])
def test_a_kernel_runs_where_its_tensors_lie(current: int) -> None:
    with torch.cuda.device(current):
        for device in PLACES * 4:  # often enough that calls are guarded
            x, y = torch.randn(1000, device=device), torch.randn(100, 1000, device=device)
            z = torch.full_like(y, float("nan"))
            axpy(x, y, z, alpha=3.0)
            torch.testing.assert_close(z, 3 * x + y)
            assert torch.cuda.current_device() == current


def test_products_with_workspaces_on_either_device() -> None:
    for device in PLACES:  # few tiles, many steps: the parts of K add up in a workspace
        a, b = (torch.randn(128, 16384, device=device).bfloat16() for _ in range(2))
        c = torch.full((128, 128), float("nan"), device=device, dtype=torch.bfloat16)
        matmul(a, b, c)
        torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=2e-2, atol=2.0)


def test_streams_and_graphs_of_another_device() -> None:
    x, y = torch.randn(1000, device="cuda:1"), torch.randn(64, 1000, device="cuda:1")
    z = torch.full_like(y, float("nan"))
    side = torch.cuda.Stream("cuda:1")
    side.wait_stream(torch.cuda.current_stream("cuda:1"))
    with torch.cuda.stream(side):
        axpy(x, y, z, alpha=2.0)
    side.synchronize()
    torch.testing.assert_close(z, 2 * x + y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(1), torch.cuda.graph(graph):
        axpy(x, y, z, alpha=2.0)
    z.fill_(float("nan"))
    x.normal_()
    graph.replay()
    torch.cuda.synchronize(1)
    torch.testing.assert_close(z, 2 * x + y)


def test_tensors_of_two_devices_are_refused() -> None:
    x, y = torch.ones(8, device="cuda:0"), torch.ones(8, 8, device="cuda:1")
    z = torch.full_like(y, -1)
    with pytest.raises(TilewrightError, match="RUN011"):
        axpy(x, y, z, alpha=1.0)
    with pytest.raises(TilewrightError):
        ops.rms_norm(y, x)
    assert (z == -1).all()


def test_compiled_for_another_device() -> None:
    @torch.compile(fullgraph=True)
    def block(x: Any, weight: Any) -> Any:
        return ops.rms_norm(x, weight) + 1

    for device in PLACES:
        x, weight = torch.randn(16, 256, device=device), torch.randn(256, device=device)
        expected = torch.nn.functional.rms_norm(x, (256,), weight, 1e-6) + 1
        torch.testing.assert_close(block(x, weight), expected, rtol=1e-4, atol=1e-4)


def test_gradients_on_another_device() -> None:
    x = torch.randn(32, 512, device="cuda:1", requires_grad=True)
    weight = torch.randn(512, device="cuda:1", requires_grad=True)
    ops.rms_norm(x, weight).square().sum().backward()
    ours = x.grad.clone(), weight.grad.clone()
    x.grad = weight.grad = None
    torch.nn.functional.rms_norm(x, (512,), weight, 1e-6).square().sum().backward()
    for found, expected in zip(ours, (x.grad, weight.grad), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
