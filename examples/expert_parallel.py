"""Experts of a layer on several ranks: rank r has its own tokens, and experts r * n .. (r + 1) * n - 1 of all.

Nobody waits for counts: what travels has a size that the host knows. Forward and gradients.

    torchrun --nproc-per-node 2 examples/expert_parallel.py
"""

import os
from importlib import import_module
from typing import Any

from tilewright import ops

torch: Any = import_module("torch")  # whose members have no types that a checker reads
dist: Any = import_module("torch.distributed")
collectives: Any = import_module("torch.distributed.nn.functional")  # with gradients


def parallel_experts(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, room: int | None = None) -> Any:
    """``ops.experts`` of this rank's tokens by the experts of all ranks, of which ``gate_up`` and ``down`` are those
    here. Every rank calls it with tensors of the same shapes.

    Without ``room`` each rank gathers the tokens of all, and returns what its experts add to them: ranks - 1 rows for
    each token of a rank, and nothing is dropped. With ``room`` pairs of a token and an expert travel, at most ``room``
    from a rank to a rank, beyond which they are dropped: fewer rows where a token has fewer choices than there are
    ranks."""
    if room is not None:
        return _by_pairs(x, ids, weights, gate_up, down, room)
    local = _gathered(ids) - dist.get_rank() * down.shape[0]  # those of other ranks are no experts here
    return Reduce.apply(ops.experts(Gather.apply(x), local, Gather.apply(weights), gate_up, down))


def _gathered(x: Any) -> Any:
    """The rows of all ranks."""
    found = x.new_empty((dist.get_world_size() * len(x), *x.shape[1:]))
    dist.all_gather_into_tensor(found, x.contiguous())
    return found


def _reduced(x: Any) -> Any:
    """This rank's rows of the sum over ranks."""
    found = x.new_empty((len(x) // dist.get_world_size(), *x.shape[1:]))
    dist.reduce_scatter_tensor(found, x.contiguous())
    return found


class Gather(torch.autograd.Function):
    """Rows of all ranks, whose gradients are added up."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return _gathered(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return _reduced(dy)


class Reduce(torch.autograd.Function):
    """Sums over ranks of this rank's rows, whose gradients all ranks take."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return _reduced(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return _gathered(dy)


def _by_pairs(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, room: int) -> Any:
    ranks, here = dist.get_world_size(), down.shape[0]
    owner = torch.where((ids >= 0) & (ids < ranks * here), ids // here, -1)
    rows, plan = ops.permute(x, owner, ranks, capacity=room)

    # the rows of each rank, and after them padding: place (r, i) has packed row offsets[r] + i
    place = torch.arange(room, device=x.device)
    held = (place < plan.kept[:, None]).flatten()
    packed = torch.where(held, (plan.offsets[:-1, None] + place).flatten(), 0).long()
    local = torch.where(held, ids.flatten()[plan.pairs[packed].clamp(min=0).long()] % here, -1)
    sent = torch.where(held[:, None], rows[packed], 0)

    mine = torch.empty_like(local)
    dist.all_to_all_single(mine, local)
    received = collectives.all_to_all_single(torch.empty_like(sent), sent)
    y = ops.experts(received, mine[:, None], received.new_ones((len(mine), 1)), gate_up, down)
    back = collectives.all_to_all_single(torch.empty_like(y), y.contiguous())

    behind = torch.where(held, packed, len(rows))  # padding goes behind the last row
    found = back.new_zeros((len(rows) + 1, back.shape[1])).index_copy(0, behind, back)
    return ops.unpermute(found[:-1], plan, weights)


def main() -> None:
    """A layer on each rank's device."""
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    torch.manual_seed(dist.get_rank())
    x = torch.randn(64, 128, device=device).bfloat16()
    weights, ids = torch.randn(64, 8, device=device).softmax(1).topk(2, 1)
    gate_up, down = (torch.randn(*s, device=device).bfloat16() * 0.1 for s in ((4, 128, 128), (4, 128, 64)))
    print(dist.get_rank(), parallel_experts(x, ids, weights, gate_up, down).float().norm())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
