"""Kernels with one sync op dropped or shifted after their certificate, run on a GPU: do refuted ones do harm?

    python benchmarks/contract_mutants.py build
    python benchmarks/contract_mutants.py run --json benchmarks/results/contract_mutants_h200.json

``build`` lowers and proves the matmul, then breaks the *lowered* kernel (``unsafe``: nothing else can, a compiler call
always certifies), keeps the mutants that the checker refutes, delays the op that the counterexample overtakes, bounds
every wait by a trap, and assembles. Controls are the unbroken kernel with each of the delays. ``run`` launches every
one in its own process, for a trap ends the process's context: wrong results, traps and time-outs are harm.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
ARTIFACTS = ROOT / "artifacts" / "contract_mutants"
sys.path.insert(0, str(ROOT.parent / "src"))
sys.path.insert(0, str(ROOT.parent / "examples"))

STAGES = 3
SHAPE = (2048, 2048, 1024)
REPEATS = 6
WAIT_NS = 200_000_000
DELAY_NS = 20_000
PROCESS_SECONDS = 40
AT_ONCE = 4
"""Processes that share the GPU; most of their time goes into starting."""

DELAYS = {
    "TmaLoad": r"\btma_load_",
    "TmaStore": r"\btma_store_",
    "Wgmma": r"wgmma\.fence",
    "WgmmaCall": r"\bwgmma_n\d+",
    "Write": r"\bstmatrix_x4\(",
}
"""Where the op that a counterexample overtakes stands in the source; of a warpgroup's ops one warp is delayed."""

PRESUMED = {
    "WgmmaFence": "ptxas finds the register dependence itself and serialises the wgmmas (its remark says so)",
    "WgmmaCommit": "ptxas waits for the accumulators before it reads them, and three stages hide the early release",
    "WgmmaWait": "a refill arrives later than the tensor cores need for one stage; before the registers are read ptxas "
    "waits by itself",
    "BulkWait": "a store has read its panel long before the next tile's main loop ends, and before the CTA's memory is "
    "given to another",
    "BulkCommit": "as for the wait: the store has read its panel before the CTA's memory is given to another",
    "NamedBarrierSync": "the panel's last store has long read it when the next tile's epilogue begins",
    "FenceProxyAsync": "stores to shared memory are done when bar.sync returns; the ISA does not promise it to the "
    "asynchronous proxy",
}
"""Why a refuted mutant may do no harm here; presumed from the code and the timing, not measured."""

BOUNDED = f"""__device__ __forceinline__ void mbarrier_wait(unsigned bar, unsigned parity) {{
  if (!mbarrier_passed(bar, parity, {WAIT_NS}ull)) asm volatile("trap;");
}}
__device__ __forceinline__ void delay_ns(unsigned long long span) {{
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < span);
}}"""


@dataclass(frozen=True)
class Mutation:
    """One op of the lowered kernel, by its number among those of the walk, and what is done to it."""

    number: int
    kind: str


# -- building --------------------------------------------------------------------------------------------------------
def program() -> Any:
    """The proved matmul: one variant, persistent, three stages."""
    from matmul import matmul

    from tilewright.base.dtypes import bf16
    from tilewright.compiler.program import plan
    from tilewright.compiler.requests import Request, default_facts
    from tilewright.hw.target import SM90A
    from tilewright.lang.schedule import Schedule
    from tilewright.lang.signature import Signature

    signature = Signature.of({t.name: bf16 for t in matmul.tensors}, static=None, keywords={})
    schedule = Schedule(stages=STAGES, consumers=1, extents={"bm": 64, "bn": 128})
    return plan(Request(matmul, signature, default_facts(matmul), SM90A, schedule))


def mutations(kernel: Any) -> Iterator[Mutation]:
    """Every sync op dropped; every slot and parity shifted."""
    from tilewright.transport import asynchronous as a
    from tilewright.transport import dialect as t

    dropped = (
        *(a.MbarrierInit, a.MbarrierArrive, a.MbarrierArriveExpectTx, a.MbarrierWait, a.BulkCommit, a.BulkWait),
        *(a.FenceProxyAsync, a.WgmmaFence, a.WgmmaCommit, a.WgmmaWait, a.NamedBarrierSync),
    )
    in_role = {id(op) for role in kernel.walk() if isinstance(role, a.Role) for op in role.walk()}
    for number, op in enumerate(kernel.walk()):
        if isinstance(op, dropped) or (isinstance(op, t.Barrier) and id(op) in in_role):
            yield Mutation(number, "drop")
        if isinstance(op, a.MbarrierWait):
            yield Mutation(number, "flip parity")
        if isinstance(op, a.MbarrierWait | a.MbarrierArrive | a.MbarrierArriveExpectTx | a.TmaLoad):
            yield Mutation(number, "shift slot")


def unsafe(kernel: Any, mutation: Mutation) -> tuple[Any, str]:
    """A copy of a certified kernel with one op broken, and the words for it. For tests alone."""
    from tilewright.tile.dialect import ExprAttr
    from tilewright.transport.asynchronous import mbarriers_of

    broken = kernel.clone()
    op = list(broken.walk())[mutation.number]
    bars = getattr(op, "bars", None)
    hint = "" if bars is None else f" {bars.owner.hint.data}"
    words = f"{mutation.kind} {type(op).__name__}{hint}"
    match mutation.kind:
        case "drop":
            around = op.parent_op()
            op.detach()
            while around is not None and not any(block.ops for region in around.regions for block in region.blocks):
                empty, around = around, around.parent_op()
                empty.detach()
        case "flip parity":
            op.attributes["parity"] = ExprAttr.of(1 - op.parity.expr)
        case _:
            op.attributes["index"] = ExprAttr.of((op.index.expr + 1) % mbarriers_of(op.bars).slots.data)
    return broken, words


def build() -> None:
    """Writes one artifact for every refuted mutant and every control."""
    from tilewright.artifact.bundle import to_bytes
    from tilewright.compiler.build import build as build_artifact

    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for old in ARTIFACTS.glob("*"):
        old.unlink()
    planned = program()
    (variant,) = planned.variants
    certified = build_artifact(planned)
    rows: list[dict[str, str]] = []
    used: dict[str, None] = {"": None}
    for mutation in mutations(variant.transport):
        broken, words = unsafe(variant.transport, mutation)
        verdict = refuted(broken)
        if verdict is None:
            print(f"not refuted: {words}")
            continue
        code, detail, other = verdict
        delay = delayed_op(code, other, words)
        used[delay] = None
        name = f"m{mutation.number}_{mutation.kind.replace(' ', '_')}"
        artifact, remarks = assembled(certified, broken, delay)
        (ARTIFACTS / f"{name}.twb").write_bytes(to_bytes(artifact))
        rows.append({"name": name, "mutant": words, "code": code, "detail": detail, "delayed": delay, "ptxas": remarks})
        print(f"{name}: {words}: {code}, delays {delay or 'nothing'}")
    for delay in used:
        name = f"control_{delay or 'plain'}"
        artifact, remarks = assembled(certified, variant.transport, delay)
        (ARTIFACTS / f"{name}.twb").write_bytes(to_bytes(artifact))
        rows.append({"name": name, "mutant": "", "code": "", "detail": "", "delayed": delay, "ptxas": remarks})
    for name, kernel in debug_builds(variant.transport):
        (ARTIFACTS / f"{name}.twb").write_bytes(to_bytes(debug_build(certified, kernel)))
        rows.append({"name": name, "mutant": "", "code": "", "detail": "", "delayed": "", "ptxas": ""})
    (ARTIFACTS / "index.json").write_text(json.dumps(rows, indent=1) + "\n")


def debug_builds(kernel: Any) -> Iterator[tuple[str, Any]]:
    """The kernel, and one whose loads nobody expects: its debug build must say who hangs where."""
    from tilewright.transport import asynchronous as a

    yield "debug_plain", kernel
    number = next(i for i, op in enumerate(kernel.walk()) if isinstance(op, a.MbarrierArriveExpectTx))
    yield "debug_hang", unsafe(kernel, Mutation(number, "drop"))[0]


def debug_build(certified: Any, kernel: Any) -> Any:
    """The certified artifact with the debug build of ``kernel`` in it."""
    from tilewright.codegen.assemble import assemble
    from tilewright.codegen.cuda import emit_kernel

    (image,) = certified.kernels
    emitted = emit_kernel(kernel, debug=True)
    made = assemble(emitted.source, "sm_90a", image.symbol)
    return replace(certified, kernels=(replace(image, source=emitted.source, cubin=made.cubin, ptx=made.ptx),))


def refuted(kernel: Any) -> tuple[str, str, str] | None:
    """Code, detail and the other side of the clash, if the checker refutes the kernel's protocol."""
    from tilewright.base.verdict import Refuted
    from tilewright.transport.protocol import protocols_of
    from tilewright.verify import verify

    for protocol in protocols_of(kernel):
        verification = verify(protocol)
        if isinstance(verification.proof, Refuted):
            labels = verification.diagnostics[0].labels
            other = labels[0].message.rpartition(": ")[2] if labels else ""
            timeline = verification.proof.witness
            return timeline.code, timeline.detail, other
    return None


def delayed_op(code: str, other: str, words: str) -> str:
    """The op that must come first and is overtaken; of phase faults the consumer's work, of deadlocks none."""
    if code in ("MBR012", "MBR021", "MBR010", "MBR011", "MBR031"):
        return ""
    if other in ("TmaLoad", "TmaStore", "Write"):
        return other
    return "WgmmaCall" if "WgmmaFence" in words else "Wgmma"


def assembled(certified: Any, kernel: Any, delay: str) -> tuple[Any, str]:
    """The certified artifact with the code of ``kernel`` in it, waits bounded and one kind of op delayed; and what
    ptxas says of it."""
    from tilewright.codegen import debug
    from tilewright.codegen.assemble import assemble, defects
    from tilewright.codegen.asynchronous_prelude import FUNCTIONS
    from tilewright.codegen.cuda import emit_kernel

    (image,) = certified.kernels
    emitted = emit_kernel(kernel)
    waiting = debug.FUNCTIONS["mbarrier_passed"] + "\n" + BOUNDED
    source = emitted.source.replace(FUNCTIONS["mbarrier_wait"], waiting)
    assert source != emitted.source
    if delay:
        source = delayed(source, DELAYS[delay], one_warp=delay in ("Wgmma", "WgmmaCall", "Write"))
    made = assemble(source, "sm_90a", image.symbol)
    remarks = "; ".join(d.partition(":")[2].strip()[:120] for d in defects(made)[:1])
    return replace(certified, kernels=(replace(image, source=source, cubin=made.cubin, ptx=made.ptx),)), remarks


def delayed(source: str, pattern: str, *, one_warp: bool) -> str:
    """The source with a delay before each first line of a run of lines that match, inside the roles."""
    head, mark, body = source.partition("  // role ")
    guard = "if ((threadIdx.x >> 5 & 3) == 3) " if one_warp else ""
    lines: list[str] = []
    matched = False
    for line in body.splitlines():
        hit = re.search(pattern, line) is not None
        if hit and not matched:
            lines.append(f"{re.match(r' *', line)[0]}{guard}delay_ns({DELAY_NS}ull);")  # type: ignore[index]
        if not line.strip().startswith("//"):
            matched = hit
        lines.append(line)
    return head + mark + "\n".join(lines) + "\n"


# -- running ---------------------------------------------------------------------------------------------------------
def one(name: str) -> None:
    """Launches one artifact a few times with fresh data and prints what came out."""
    import torch

    from tilewright import runtime
    from tilewright.artifact.bundle import from_bytes

    m, n, k = SHAPE
    sets = [
        tuple(torch.randn(s, device="cuda", generator=_seeded(torch, i)).bfloat16() for s in ((m, k), (n, k)))
        for i in range(REPEATS)
    ]
    expected = [a.float() @ b.float().t() for a, b in sets]
    kernel = runtime.load(from_bytes((ARTIFACTS / f"{name}.twb").read_bytes(), name))
    wrong: list[int] = []
    for (a, b), exact in zip(sets, expected, strict=True):
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        kernel.launch((a, b, c))
        torch.cuda.synchronize()
        near = (c.float() - exact).abs() <= 1.0 + 0.02 * exact.abs()
        wrong.append(int((~near).sum()))
    print(json.dumps({"wrong_elements": wrong}))


def _seeded(torch: Any, seed: int) -> Any:
    return torch.Generator(device="cuda").manual_seed(seed)


def run(json_path: str, budget_s: float, only: str) -> None:
    """Every artifact in a process of its own; a table, and JSON."""
    rows: list[dict[str, Any]] = json.loads((ARTIFACTS / "index.json").read_text())
    rows = [r for r in rows if r["name"].startswith(only)]
    begin = time.perf_counter()

    def launched(row: dict[str, Any]) -> None:
        late = time.perf_counter() - begin > budget_s
        row.update({"outcome": "not run"} if late else outcome_of(row["name"]))
        if row["outcome"] == "right" and row["mutant"]:
            row["presumed_reason"] = PRESUMED[row["mutant"].split()[1]]
        wrong = row.get("wrong_elements", "")
        print(f"{row['name']:28} {row['code']:7} {row['outcome']:9} {wrong} {row['mutant']}", flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(launched, sorted(rows, key=lambda r: r["name"])))
    broken = [r for r in rows if r["mutant"] and r["outcome"] != "not run"]
    document = {
        "command": "python " + " ".join(sys.argv),
        "date": str(date.today()),
        "kernel": f"matmul {SHAPE}, {STAGES} stages, tile 64x128, waits trap after {WAIT_NS // 10**6} ms",
        "mutants": len(broken),
        "harmed": sum(r["outcome"] != "right" for r in broken),
        "rows": rows,
    }
    print(f"{document['harmed']} of {document['mutants']} refuted mutants did harm")
    if json_path:
        Path(json_path).write_text(json.dumps(document, indent=1) + "\n")


def outcome_of(name: str) -> dict[str, Any]:
    """'right', 'wrong', 'trap' or 'time-out', with what there is to say."""
    command = [sys.executable, __file__, "one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"outcome": "time-out"}
    if done.returncode:
        said = [line.strip() for line in done.stdout.splitlines() if line.startswith("tilewright:")]
        errors = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
        return {"outcome": "trap", "message": " ".join([*said[:1], *errors[-1:]])[:300]}
    found = json.loads(done.stdout.splitlines()[-1])
    return {"outcome": "wrong" if any(found["wrong_elements"]) else "right", **found}


def main() -> None:
    """``build`` here, ``run`` where the GPU is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("build", "run", "one"))
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="", help="run those whose names begin so")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which no further mutant is started")
    args = parser.parse_args()
    if args.action == "build":
        build()
    elif args.action == "one":
        one(args.name)
    else:
        run(args.json, args.budget, args.only)


if __name__ == "__main__":
    main()
