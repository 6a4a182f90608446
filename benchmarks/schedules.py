"""Pinned schedules beside the compiler's own choice, and what a turn of their loops takes beside what was predicted.

    python benchmarks/schedules.py build
    python benchmarks/schedules.py run --json benchmarks/results/schedules.json

A turn's time is the slope between two lengths of the loop where every SM has one set of tiles, in cycles of the clock
seen in the run; the prediction is the critical cycle (``protocol.cycle``), which has no price for element-wise work.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import ARTIFACTS, Timer, document, load, parser, relative_error, store, write

SMS = 132
ROWS, COLUMNS = 11, 12
"""Tiles of a matmul that give each SM one; heads and blocks of queries likewise."""
PREDICTED = ARTIFACTS / "schedules_predicted.json"
LENGTHS = (4096, 8192)
"""Of the contracted axis, or of the keys."""


@dataclass(frozen=True)
class Case:
    """A kernel, ``matmul`` or ``attention`` of a head width, with a tile's rows, columns and steps, and other pins.

    ``tiles``: how many an SM has under way at once. ``own``: nothing is pinned, the compiler chooses this tile.
    """

    kernel: str
    width: int
    rows: int
    columns: int
    step: int
    consumers: int = 2
    tiles: int = 1
    own: bool = False

    @property
    def name(self) -> str:
        """The artifact."""
        tile = f"{self.rows}x{self.columns if self.kernel == 'matmul' else self.step}"
        how = "own" if self.own else f"{self.consumers}_consumers{'_in_turn' if self.tiles > 1 else ''}"
        return f"schedules_{self.kernel}{self.width or ''}_{tile}_{how}"

    def schedule(self, tw: Any) -> Any:
        """The pins."""
        if self.own:
            return None
        matmul = self.kernel == "matmul"
        tile = {"bm": self.rows, "bn": self.columns} if matmul else {"bq": self.rows, "bk": self.step}
        return tw.Schedule(mode="pingpong" if self.tiles > 1 else "cooperative", consumers=self.consumers, extents=tile)


CASES = (
    Case("matmul", 0, 128, 256, 64),
    *(Case("matmul", 0, 128, n, 64, tiles=2) for n in (160, 176, 192, 208)),
    *(Case("matmul", 0, 192, n, 64, consumers=3) for n in (128, 144, 160, 192)),
    Case("attention", 128, 128, 128, 128, own=True),
    *(Case("attention", 128, 192, 128, n, consumers=3) for n in (64, 80)),
    Case("attention", 64, 128, 64, 128, own=True),
    *(Case("attention", 64, 192, 64, n, consumers=3) for n in (64, 96, 128)),
)


def build() -> None:
    """Compile every case; keep its predicted cycles a turn."""
    import attention
    import matmul

    import tilewright as tw
    from tilewright.jit.critical import critical_cycles
    from tilewright.transport.protocol import protocols_of
    from tilewright.transport.text import transport_kernel

    found: dict[str, Any] = {}
    for case in CASES:
        kernel = matmul.matmul if case.kernel == "matmul" else attention.forward(case.width)
        names = dict.fromkeys("abc" if case.kernel == "matmul" else "qkvo", "bf16")
        artifact, _ = store(case.name, kernel.compile, dtypes=names, schedule=case.schedule(tw))
        (image,) = artifact.kernels
        if case.own:
            assert f"bq={case.rows}, bk={case.step}," in artifact.plan[0], artifact.plan[0]
        critical = critical_cycles(protocols_of(transport_kernel(image.transport_ir))[0])
        cycles = None if isinstance(critical, str) else min(cycle.cycles for cycle in critical)
        found[case.name] = {"plan": artifact.plan[0], "predicted_cycles": cycles}
        print(case.name, cycles, artifact.plan[0])
    PREDICTED.write_text(json.dumps(found))


def run(args: Any) -> None:
    """Time every case beside its peer, and at two lengths of its loop."""
    import torch

    timer, predicted, rows = Timer(torch, args.rounds), json.loads(PREDICTED.read_text()), list[dict[str, Any]]()
    for kind in dict.fromkeys((c.kernel, c.width) for c in CASES):
        cases = [c for c in CASES if (c.kernel, c.width) == kind and args.only in c.name]
        if not cases:
            continue
        launches, outputs, peer = beside_peer(torch, cases)
        exact = peer().float()
        seconds = timer.medians({**launches, "peer": peer})
        others = other_shapes(torch, timer, cases)
        clock = float(timer.clocks[-1].split()[0]) * 1e6
        for case in cases:
            slope = turn_seconds(torch, timer, case)
            row = {
                "case": case.name,
                **predicted[case.name],
                "measured_cycles": round(slope * clock, 1),
                "milliseconds": round(1e3 * seconds[case.name], 4),
                "of_peer": round(seconds["peer"] / seconds[case.name], 3),
                "of_peer_elsewhere": others[case.name],
                "difference_from_peer": relative_error(outputs[case.name], exact),
            }
            rows.append(row)
            print({k: v for k, v in row.items() if k != "plan"}, flush=True)
    write(document(torch, **timer.conditions(), rows=rows), args.json)


SHAPES = ((8000, 8000, 8000), (4096, 14336, 4096), (2816, 4992, 4096))
"""Further products, M, N and K: in the second and third tiles of 208 columns fill their waves best."""


def other_shapes(torch: Any, timer: Timer, cases: list[Case]) -> dict[str, dict[str, float]]:
    """Each matmul's share of cuBLAS at further shapes."""
    found: dict[str, dict[str, float]] = {case.name: {} for case in cases}
    for m, n, k in SHAPES if cases[0].kernel == "matmul" else ():
        a, b = (torch.randn(x, k, device="cuda").bfloat16() for x in (m, n))
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        launches: dict[str, Any] = {case.name: launched(case, {"a": a, "b": b}, out) for case in cases}
        seconds = timer.medians({**launches, "peer": lambda a=a, b=b: torch.matmul(a, b.t())})
        for case in cases:
            found[case.name][f"{m}x{n}x{k}"] = round(seconds["peer"] / seconds[case.name], 3)
    return found


def beside_peer(torch: Any, cases: list[Case]) -> tuple[dict[str, Any], dict[str, Any], Callable[[], Any]]:
    """Launches and outputs by case at one large shape, and cuBLAS or cuDNN on the same arguments."""
    torch.manual_seed(0)
    first = cases[0]
    if first.kernel == "matmul":
        a, b = (torch.randn(4096, 4096, device="cuda").bfloat16() for _ in range(2))
        arguments, shape = {"a": a, "b": b}, (4096, 4096)

        def peer() -> Any:
            return torch.matmul(a, b.t())
    else:
        shape = (4, 16, 4096, first.width)
        q, k, v = (torch.randn(shape, device="cuda").bfloat16() for _ in range(3))
        arguments = {"q": q, "k": k, "v": v}

        def peer() -> Any:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    launches: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for case in cases:
        outputs[case.name] = torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        launches[case.name] = launched(case, arguments, outputs[case.name])
        launches[case.name]()
    torch.cuda.synchronize()
    return launches, outputs, peer


def turn_seconds(torch: Any, timer: Timer, case: Case) -> float:
    """One turn of the loop on every SM at once."""
    launches: dict[str, Any] = {}
    for length in LENGTHS:
        if case.kernel == "matmul":
            m, n = case.rows * ROWS * case.tiles, case.columns * COLUMNS
            a, b = (torch.randn(x, length, device="cuda").bfloat16() for x in (m, n))
            arguments, out = {"a": a, "b": b}, (m, n)
        else:
            q = torch.randn(1, ROWS, case.rows * COLUMNS, case.width, device="cuda").bfloat16()
            k, v = (torch.randn(1, ROWS, length, case.width, device="cuda").bfloat16() for _ in range(2))
            arguments, out = {"q": q, "k": k, "v": v}, tuple(q.shape)
        launches[str(length)] = launched(case, arguments, torch.empty(out, device="cuda", dtype=torch.bfloat16))
    seconds = timer.medians(launches)
    short, long = LENGTHS
    return (seconds[str(long)] - seconds[str(short)]) / ((long - short) / case.step) / case.tiles


def launched(case: Case, arguments: dict[str, Any], out: Any) -> Callable[[], object]:
    """A launch of a case."""
    program = load(case.name)
    named = {**arguments, "c": out, "o": out, "scale": case.width**-0.5 if case.width else 0.0}
    values = tuple(named[p.name] for p in program.artifact.parameters)
    return lambda: program.launch(values)


def main() -> None:
    args = parser(__doc__, "cases whose name contains this").parse_args()
    build() if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
