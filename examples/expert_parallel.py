"""Experts of a layer on several ranks: rows travel to the rank that owns their expert, and their results back.

Each rank has its own tokens, and experts rank * n .. (rank + 1) * n - 1 of all. Both exchanges have a fixed size, so
that no host waits for counts: ``room`` rows from a rank to a rank, beyond which pairs are dropped. Forward and
gradients.

    torchrun --nproc-per-node 2 examples/expert_parallel.py
"""

import os
from importlib import import_module
from typing import Any

from tilewright import ops

torch: Any = import_module("torch")  # whose members have no types that a checker reads
dist: Any = import_module("torch.distributed")
all_to_all_single: Any = import_module("torch.distributed.nn.functional").all_to_all_single


def parallel_experts(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, room: int = 0) -> Any:
    """``ops.experts`` of this rank's tokens by the experts of all ranks, of which ``gate_up`` and ``down`` are those
    here. Every rank calls it with tensors of the same shapes; ``room`` is enough for any ids if it is 0."""
    ranks, here = dist.get_world_size(), down.shape[0]
    room = room or ids.numel()
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
    received = all_to_all_single(torch.empty_like(sent), sent)
    y = ops.experts(received, mine[:, None], received.new_ones((len(mine), 1)), gate_up, down)
    back = all_to_all_single(torch.empty_like(y), y.contiguous())

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
