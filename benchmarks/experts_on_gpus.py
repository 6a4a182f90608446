"""The layer of ``moe.py`` over the GPUs of a host, by ``examples/expert_parallel.py``, beside the same tokens on one.

    torchrun --nproc-per-node 2 benchmarks/experts_on_gpus.py --json benchmarks/results/experts_on_gpus.json

Tokens and experts are split evenly over the ranks, experts in their order (``contiguous``) or dealt by how many tokens
chose each (``by load``). Every variant is a CUDA graph; ranks meet at a barrier before each replay, behind a flush of
their L2 caches, and a time is the slowest rank's: the median of the rounds. Results are compared with one GPU's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from typing import Any

from harness import FLUSH_BYTES, document, relative_error, write
from moe_layer import Case

CASES = (
    Case(8192, 8, 2, 4096, 14336, 0.0),
    Case(8192, 8, 2, 4096, 14336, 1.0),
    Case(8192, 128, 8, 2048, 768, 0.0),
    Case(8192, 128, 8, 2048, 768, 1.0),
)
_ROOM = 1.25
"""Places for the pairs from a rank to a rank, of those that it would get if experts were chosen evenly."""


def route(torch: Any, x: Any, router: Any, k: int) -> tuple[Any, Any]:
    """Weights and experts of the k best, as ``ops.moe`` chooses them."""
    from tilewright.ops import kernels

    logits = torch.empty(len(x), len(router), device="cuda")
    weights, ids = torch.empty(len(x), k, device="cuda"), torch.empty(len(x), k, dtype=torch.int32, device="cuda")
    kernels.matmul(x, router, logits)
    kernels.choose(logits, weights, ids, k=k, normalise=True, most=max(16, len(router)))
    return weights, ids


class Times:
    """Of calls that are the same on every rank."""

    def __init__(self, torch: Any, rounds: int) -> None:
        self.torch, self.rounds = torch, rounds
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def median(self, call: Callable[[], Any]) -> float:
        """Microseconds."""
        torch, dist = self.torch, self.torch.distributed
        replay, found = captured(torch, call), list[float]()
        for _ in range(self.rounds + 2):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            dist.barrier()
            begin.record()
            replay()
            end.record()
            torch.cuda.synchronize()
            slowest = torch.tensor([begin.elapsed_time(end)], device="cuda")
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            found.append(float(slowest) * 1e3)
        return round(statistics.median(found[2:]), 1)


def captured(torch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """Replays ``call`` as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.distributed.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def by_load(ids: Any, experts: int, ranks: int) -> Any:
    """Experts in an order whose equal parts have about equal loads: dealt from the most chosen to the least, forth and
    back."""
    order = ids.flatten().long().bincount(minlength=experts).argsort(descending=True)
    rounds = order.view(-1, ranks).clone()
    rounds[1::2] = rounds[1::2].flip(1)
    return rounds.t().flatten()


def measured(torch: Any, case: Case, times: Times) -> dict[str, Any]:
    from expert_parallel import parallel_experts  # which ``harness`` has made importable

    from tilewright import ops

    dist = torch.distributed
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same tensors on every rank
    t, e, k, d, i = case.tokens, case.experts, case.choices, case.width, case.inner
    x, router = torch.randn(t, d, device="cuda").bfloat16(), torch.eye(e, d, device="cuda").bfloat16()
    x[:, :e] = torch.randn(t, e, device="cuda") - case.skew * torch.arange(1, e + 1, device="cuda").log()
    gate_up = torch.randn(e, 2 * i, d, device="cuda", dtype=torch.bfloat16) * d**-0.5
    down = torch.randn(e, d, i, device="cuda", dtype=torch.bfloat16) * i**-0.5
    alone = lambda: ops.moe(x, router, gate_up, down, k=k)  # noqa: E731
    whole, own = alone(), slice(rank * t // ranks, (rank + 1) * t // ranks)
    rows, room = x[own].contiguous(), round(_ROOM * t * k / ranks**2)
    found: dict[str, Any] = {"one GPU": times.median(alone)}
    errors = dict[str, float]()
    orders = {"contiguous": torch.arange(e, device="cuda"), "by load": by_load(route(torch, x, router, k)[1], e, ranks)}
    for placement, order in orders.items():
        here = order[rank * e // ranks : (rank + 1) * e // ranks]
        first, last, scores = gate_up[here].contiguous(), down[here].contiguous(), router[order].contiguous()

        def layer(room: int | None, first: Any = first, last: Any = last, scores: Any = scores) -> Any:
            weights, ids = route(torch, rows, scores, k)
            return parallel_experts(rows, ids, weights, first, last, room=room)

        for way, given in (("tokens", None), ("pairs", room)):
            if way == "pairs" and case.skew:
                continue  # most of the pairs of one rank would be dropped
            name = f"{way}, {placement}"
            errors[name] = relative_error(layer(given), whole[own].double())
            found[name] = times.median(lambda given=given: layer(given))
    return {
        "case": str(case),
        "microseconds": found,
        "of_one_gpu": {name: round(found["one GPU"] / us, 3) for name, us in found.items()},
        "apart_from_one_gpu": errors,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", default="", help="cases whose names contain this")
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--json", default="", help="where the document of the run goes")
    args = asked.parse_args()
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    times, rows = Times(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        if args.only in str(case):
            rows.append(measured(torch, case, times))
            torch.cuda.empty_cache()
            if dist.get_rank() == 0:
                print(json.dumps(rows[-1]), flush=True)
                write(document(torch, rounds=args.rounds, gpus=dist.get_world_size(), rows=rows), args.json)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
