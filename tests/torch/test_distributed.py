"""A model over ``ops`` on two processes: replicated (DDP), sharded (FSDP2), and patched, beside one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.pytorch import torch_or_skip

torch = torch_or_skip()

from torch.distributed.fsdp import fully_shard  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import ops  # noqa: E402

RANKS, TOKENS, WIDTH, INNER, CLASSES = 2, 6, 16, 8, 10


class Model(torch.nn.Module):
    """A norm with a residual, a gated unit, and the loss of a linear layer; a norm of PyTorch for ``tw.patch``."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        shapes = {"norm": (WIDTH,), "gate_up": (2 * INNER, WIDTH), "down": (WIDTH, INNER), "head": (CLASSES, WIDTH)}
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.randn(shape, generator=random) * 0.3))
        self.last = torch.nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x: Any, target: Any) -> Any:
        y, total = ops.add_rms_norm(x, x.sin(), self.norm)
        gate, up = ops.linear(y, self.gate_up).chunk(2, -1)
        y = self.last(ops.linear(ops.swiglu(gate, up), self.down, residual=total))
        return ops.linear_cross_entropy(y, self.head, target)


def given() -> tuple[Any, Any]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn((RANKS * TOKENS, WIDTH), generator=random)
    return x, torch.randint(0, CLASSES, (RANKS * TOKENS,), generator=random)


def trained(model: Any, x: Any, target: Any) -> Any:
    """After three steps."""
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(x, target).backward()
        optimizer.step()
    return model


def replicated(model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model)


def sharded(model: Any) -> Any:
    mesh = torch.distributed.init_device_mesh("cpu", (RANKS,))
    fully_shard(model.last, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def compiled(model: Any) -> Any:
    return torch.compile(replicated(model), backend="aot_eager")


WAYS = {"DDP": replicated, "FSDP2": sharded, "DDP, compiled": compiled}
CASES = (("DDP", False), ("FSDP2", False), ("FSDP2", True), ("DDP, compiled", True))
"""How it is spread out, and whether it was patched before."""


def whole(parameter: Any) -> Any:
    return (parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter).detach()


def on_rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    x, target = (t.chunk(RANKS)[rank] for t in given())
    for case, (way, patched) in enumerate(CASES):
        model = Model()
        if patched:
            assert "rms_norm" in str(tw.patch(model))
        model = trained(WAYS[way](model), x, target)
        torch.save([whole(p) for p in model.parameters()], f"{folder}/{case} {rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(on_rank, (str(tmp_path),), nprocs=RANKS)
    wanted = [p.detach() for p in trained(Model(), *given()).parameters()]
    for case in range(len(CASES)):
        for rank in range(RANKS):
            for got, expected in zip(torch.load(tmp_path / f"{case} {rank}.pt"), wanted, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
