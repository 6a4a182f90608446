"""The protocols that campaigns start from: written by hand, re-created bugs with their twins, compiled kernels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tilewright.protocol import Protocol, from_text

ROOT = Path(__file__).parents[2]
for folder in ("examples", "tests", "tests/verify"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))

from gallery import GALLERY  # noqa: E402
from museum import DECOYS, EXHIBITS  # noqa: E402
from protocols import attention, blackwell, cp_async, gemm, grids, grouped, split_k  # noqa: E402


def small() -> dict[str, Protocol]:
    """The hand-written protocols, at sizes that the model checker can handle."""
    return {
        "cooperative": gemm.cooperative(2, 1),
        "cooperative once": gemm.cooperative(2, 1, persistent=False),
        "multicast": gemm.multicast(2),
        "attention": attention.forward(2, 1, ordered=False),
        "multistage": cp_async.multistage(3),
        "cp.async producer": cp_async.producer_warps(2),
        "split-K": split_k.dsmem_reduce(2),
        "grouped": grouped.tensormap_update(2),
        "blackwell": blackwell.gemm(2),
        "last arriver": grids.by_fences(2),
        "in turn": grids.in_turn(2),
        "neighbours": grids.neighbours(3),
        "grid barrier": grids.grid_barrier(2),
        "by copy": grids.by_copy(2),
    }


def larger() -> dict[str, Protocol]:
    """The same at the sizes they run with."""
    return {
        "cooperative once, 4 stages": gemm.cooperative(4, 1, persistent=False),
        "cooperative once, 2 consumers": gemm.cooperative(2, 2, persistent=False),
        "cooperative, 4 stages": gemm.cooperative(4, 1),
        "cp.async producer, 4 stages": cp_async.producer_warps(4),
        "multistage, 5 stages": cp_async.multistage(5),
        "split-K, 4 stages": split_k.dsmem_reduce(4),
    }


def museum() -> Iterator[tuple[str, Protocol]]:
    """Bugs, twins and decoys."""
    for name, x in EXHIBITS.items():
        yield f"{name} bug", x.build(False)
        yield f"{name} twin", x.build(True)
    for name, build in DECOYS.items():
        made = build()
        if isinstance(made, Protocol):
            yield f"decoy {name}", made


def compiled() -> Iterator[tuple[str, Protocol]]:
    """What ``campaign.compiled`` wrote."""
    for path in sorted((ROOT / "tests/data/protocols").glob("*.txt")):
        yield f"compiled {path.stem}", from_text(path.read_text())


def asked() -> Iterator[tuple[str, Protocol]]:
    """What readers asked about: clusters, tensor memory, descriptors, loops over groups of iterations."""
    for path in sorted((ROOT / "tests/data/checked_protocols").glob("*.txt")):
        yield f"asked {path.stem}", from_text(path.read_text())


def everything() -> dict[str, Protocol]:
    """All of them, by name; names of roles say the line no more."""
    shown = {f"gallery {entry.name}": entry.build(False) for entry in GALLERY}
    return {**small(), **larger(), **dict(museum()), **shown, **dict(compiled()), **dict(asked())}


TILES = frozenset(("tiles", "groups", "programs", "$programs"))
"""Symbols that count tiles; the others count steps within one."""
