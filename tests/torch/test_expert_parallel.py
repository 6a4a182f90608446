"""``examples/expert_parallel.py`` on two processes of the CPU gives what one process computes, gradients too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.example_cases import load
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

RANKS, TOKENS, EXPERTS, K, WIDTH, INNER = 2, 12, 6, 2, 16, 8


def given(skewed: bool) -> tuple[Any, ...]:
    """x, ids, weights, gate_up, down of all ranks; some ids are no expert."""
    random = torch.Generator().manual_seed(3)
    x = torch.randn((RANKS * TOKENS, WIDTH), generator=random, dtype=torch.float64)
    ids = torch.randint(-1, EXPERTS + 1, (RANKS * TOKENS, K), generator=random)
    ids = torch.full_like(ids, EXPERTS - 1) if skewed else ids
    weights = torch.rand((RANKS * TOKENS, K), generator=random)
    gate_up = torch.randn((EXPERTS, 2 * INNER, WIDTH), generator=random, dtype=torch.float64)
    down = torch.randn((EXPERTS, WIDTH, INNER), generator=random, dtype=torch.float64)
    return x, ids, weights, gate_up, down


CASES = [(skewed, room) for skewed in (False, True) for room in (None, TOKENS * K)]
"""Of all tokens to one expert, too: one rank has no rows."""


def on_rank(rank: int, folder: str) -> None:
    parallel_experts = load("expert_parallel").parallel_experts
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    tokens, here = (slice(rank * n, (rank + 1) * n) for n in (TOKENS, EXPERTS // RANKS))
    for case, (skewed, room) in enumerate(CASES):
        x, ids, weights, gate_up, down = given(skewed)
        own = [t.clone().requires_grad_() for t in (x[tokens], weights[tokens], gate_up[here], down[here])]
        y = parallel_experts(own[0], ids[tokens], *own[1:], room=room)
        y.sin().sum().backward()
        torch.save([y.detach(), *(t.grad for t in own)], f"{folder}/{case} {rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_are_as_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(on_rank, (str(tmp_path),), nprocs=RANKS)
    for case, (skewed, _) in enumerate(CASES):
        found = [torch.load(tmp_path / f"{case} {rank}.pt") for rank in range(RANKS)]
        x, ids, weights, gate_up, down = given(skewed)
        leaves = [t.requires_grad_() for t in (x, weights, gate_up, down)]
        y = ops.experts(x, ids, weights, gate_up, down)
        y.sin().sum().backward()
        for ours, wanted in zip(zip(*found, strict=True), (y.detach(), *(t.grad for t in leaves)), strict=True):
            torch.testing.assert_close(torch.cat(ours), wanted, rtol=1e-5, atol=1e-6)
