"""A layer of experts by the kernels of ``tilewright.ops``, launch by launch, and its peer: what ``moe.py``,
``moe_crossover.py`` and ``packing.py`` time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness import Timer, document, load, write

UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Case:
    """Tokens, experts, choices, width, inner width, skew."""

    tokens: int
    experts: int
    choices: int
    width: int
    inner: int
    skew: float

    def __str__(self) -> str:
        return f"{self.tokens} tokens, {self.choices} of {self.experts}, {self.width}x{self.inner}, s = {self.skew:g}"


def rows_of(
    torch: Any, args: argparse.Namespace, cases: Iterable[Case], measured: Callable[[Timer, Case], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Check and time every case that is asked for; print its row, and write JSON after each."""
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in cases:
        if args.only in str(case):
            torch.manual_seed(0)
            rows.append(measured(timer, case))
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
            write(document(torch, **timer.conditions(), rows=rows), args.json)
    return rows


@cache
def program(name: str) -> Any:
    """What ``moe.py build`` has compiled, ready to launch."""
    return load(f"moe_{name}")


Steps = dict[str, Callable[[], object]]


class Layer:
    """Tensors of a case, and what its kernels launch, in order; with ``batch_invariant`` those that any number of
    tokens has."""

    def __init__(self, torch: Any, case: Case, *, batch_invariant: bool = False) -> None:
        self.torch, self.case = torch, case
        t, e, k, d, i = case.tokens, case.experts, case.choices, case.width, case.inner
        self.x = torch.randn(t, d, device="cuda").bfloat16()
        self.router = torch.eye(e, d, device="cuda").bfloat16()
        self.x[:, :e] = torch.randn(t, e, device="cuda") - case.skew * torch.arange(1, e + 1, device="cuda").log()
        self.gate_up = torch.randn(e, 2 * i, d, device="cuda", dtype=torch.bfloat16) * d**-0.5
        self.down = torch.randn(e, d, i, device="cuda", dtype=torch.bfloat16) * i**-0.5
        self.align = 128 if batch_invariant or t * k >= 96 * e else 64 if t * k > 4 * e else 16  # as ops.experts
        self.gathers = i <= 8192  # likewise
        self.score = "score64" if batch_invariant else "score"
        self.pairs = t * k
        filled = min(e, self.pairs)
        self.blocks = filled + (self.pairs - filled) // self.align
        self.forward = self._forward()

    def _empty(self, *shape: int, dtype: str = "bfloat16") -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device="cuda")

    def _shared(self, extent: int, programs: int) -> Any:
        """Integers that programs share, as ``tilewright.ops.packing`` lays them."""
        return self._empty(programs, -(-extent // (4 * programs)) * 4, dtype="int32")

    def _launch(self, name: str, *values: Any) -> Callable[[], object]:
        return lambda: program(name).launch(values)

    def _packing(self, x: Any, y: Any) -> Callable[[], object]:
        """Rows to their places, as ``tilewright.ops.packing.moving`` takes them there."""
        k = self.case.choices
        if k < 4:
            return self._launch("pack", self.rows, x, y)
        fill = self._launch("fill", self.rows.view(-1, 16), y.view(-1, 16, y.shape[1]))
        spread = self._launch(f"spread{k}", self.slots, x, y)
        return lambda: (fill(), spread())

    def _forward(self) -> Steps:
        """Every step, of which a forward takes some (``steps_of``)."""
        from tilewright.ops.packing.kernels import BLOCK, PLACED

        case, empty, at = self.case, self._empty, self._launch
        t, e, k, d, i = case.tokens, case.experts, case.choices, case.width, case.inner
        packed = self.blocks * self.align
        self.weights, self.ids = empty(t, k, dtype="float32"), empty(t, k, dtype="int32")
        counts, before = (empty(-(-self.pairs // BLOCK), e, dtype="int32") for _ in range(2))
        self.kept, self.offsets = empty(e, dtype="int32"), empty(e + 1, dtype="int32")
        every = [self._shared(packed, len(counts)) for _ in range(2)]
        owners, self.slots = self._shared(self.blocks, -(-self.pairs // PLACED)), empty(t, k, dtype="int32")
        self.rows, self.pair = (x.view(-1)[:packed] for x in every)
        self.block = owners.view(-1)[: self.blocks]
        self.packed, self.h, self.out = empty(packed, d), empty(packed, i), empty(packed, d)
        self.y, align = empty(t, d), self.align
        self.halves, self.logits = self.gate_up.view(e, 2, i, d), empty(t, e, dtype="float32")
        flat = self.ids.view(-1)
        place = (flat, before, self.offsets, self.slots.view(-1), self.rows, self.pair, owners, UNLIMITED, k)
        return {
            "score": at(self.score, self.x, self.router, self.logits),
            "choose": at(f"choose{k}", self.logits, self.weights, self.ids),
            "count": at("count", flat, counts, *every),
            "lay_out": at(f"lay_out{align}", counts, before, self.kept, self.offsets, UNLIMITED),
            "place": at(f"place{align}", *place),
            "pack": self._packing(self.x, self.packed),
            "gated": at(f"gated{align}", self.block, self.packed, self.halves, self.h),
            "gathered": at(f"gathered{align}", self.block, self.rows, self.x, self.halves, self.h),
            "down": at(f"down{align}", self.block, self.h, self.down, self.out),
            "unpack": at(f"unpack{k}", self.slots, self.out, self.weights, self.y),
        }

    def steps_of(self, *, gathers: bool) -> list[Callable[[], object]]:
        """A forward, by its way to the first product's rows."""
        left_out = {"pack", "gated"} if gathers else {"gathered"}
        return [step for name, step in self.forward.items() if name not in left_out]

    def backward(self) -> Steps:
        """Gradients of x, gate_up, down and the weights by row, behind a forward that kept both halves."""
        case, empty, at, align = self.case, self._empty, self._launch, self.align
        d, i, packed = case.width, case.inner, self.blocks * self.align
        kept, dkept, dh, h = empty(packed, 2, i), empty(packed, 2, i), empty(packed, i), empty(packed, i)
        dy, dout, dx = self.torch.randn_like(self.y), empty(packed, d), empty(case.tokens, d)
        dgate_up, ddown = self.torch.empty_like(self.gate_up), self.torch.empty_like(self.down)
        both, by_row = dkept.view(packed, 2 * i), empty(packed, dtype="float32")
        self.keep = at(f"kept{align}", self.block, self.packed, self.halves, kept, self.h)
        self.dy, self.gradients = dy, (dx, dgate_up, ddown)
        turned = self.down.transpose(1, 2), self.gate_up.transpose(1, 2)
        weighed = (self.pair, self.weights.view(-1), kept, dh, dkept, h, by_row)
        rows = {"dgate_up": (both, self.packed), "ddown": (dout, h)}
        sums = {name: [x.view(-1, 64, x.shape[1]) for x in pair] for name, pair in rows.items()}
        return {
            "pack dy": self._packing(dy, dout),
            "dh": at(f"inputs{align}", self.block, dout, turned[0], dh),
            "gated_backward": at("gated_backward", *weighed),
            "dpacked": at(f"inputs{align}", self.block, both, turned[1], self.out),
            "dx": at(f"add{case.choices}", self.slots, self.out, dx),
            "dgate_up": at("weights", self.offsets, *sums["dgate_up"], dgate_up),
            "ddown": at("weights", self.offsets, *sums["ddown"], ddown),
        }

    def by_pytorch(self, x: Any, gate_up: Any, down: Any) -> Any:
        """The peer: rows sorted by expert, torch._grouped_mm, and back in a sum. The routing has no gradient."""
        torch, k, e = self.torch, self.case.choices, self.case.experts
        weights, ids = torch.softmax((x.detach() @ self.router.t()).float(), -1).topk(k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        flat = ids.view(-1)
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=e).cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[order // k], gate_up.transpose(1, 2), offs=ends).chunk(2, 1)
        out = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.transpose(1, 2), offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        return (out[back].view(-1, k, out.shape[1]) * weights.to(out.dtype)[..., None]).sum(1)

    def exact(self, tokens: Any) -> Any:
        """Some rows of the result, in float64, with the experts that our router chose."""
        torch, i = self.torch, self.case.inner
        found = torch.zeros(len(tokens), self.case.width, dtype=torch.float64, device="cuda")
        p = torch.softmax(self.x[tokens].double() @ self.router.double().t(), -1).gather(1, self.ids[tokens].long())
        p = p / p.sum(-1, keepdim=True)
        for n, token in enumerate(tokens.tolist()):
            for j, e in enumerate(self.ids[token].tolist()):
                gate, up = (self.gate_up[e].double() @ self.x[token].double()).split(i)
                found[n] += p[n, j] * (self.down[e].double() @ (gate * torch.sigmoid(gate) * up))
        return found
