"""A load that NVRTC puts behind the same thread's stores to other elements reads what the IR's does; no other does."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import functools
import re

import pytest

import tilewright as tw
from support.parsed import transport_kernel
from tilewright.artifact.schema import Launch
from tilewright.validate.transport_to_ptx import compare


@tw.kernel
def doubled(y: tw.Tensor["M"]):
    m = tw.grid(y, 256)
    y[m] = y[m] * 2.0


@tw.kernel
def added(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 256)
    y[m] = y[m] * 2.0 + x[m]


@tw.kernel
def kept(y: tw.Tensor["M"], z: tw.Tensor["M"]):
    m = tw.grid(y, 256)
    old = y[m]
    y[m] = old * 2.0
    z[m] = old


KERNELS = {"doubled": (doubled, "y"), "added": (added, "xy"), "kept": (kept, "yz")}


@functools.cache
def compiled(name: str):
    kernel, tensors = KERNELS[name]
    artifact = kernel.compile(dtypes=dict.fromkeys(tensors, "f32"))
    image = artifact.kernels[-1]
    steps = (step for variant in artifact.variants for step in variant.steps)
    launch = next(step for step in steps if isinstance(step, Launch) and step.kernel == image.symbol)
    return image, launch


def decided(name: str, ptx: str) -> bool:
    image, launch = compiled(name)
    try:
        return not compare(transport_kernel(image.transport_ir), ptx, launch.args, launch.grid[0], 1)
    except Exception:
        return False


STORE = re.compile(r"\tst\.global\.v4\.f32 \t\[(%rd\d+)\], (\{.*\});\n\tld\.global\.v4\.f32 \t(\{.*\}), \[\1\+512\];\n")
"""Of the first vector, and behind it the load of the second."""


def moved(name: str, first: str, load: str) -> str:
    """The PTX with another first store and load behind it; ``@`` stands for the address, ``V`` and ``W`` for words."""
    ptx = compiled(name)[0].ptx
    found = STORE.search(ptx)
    assert found is not None
    words = {"@": found[1], "V": found[2], "W": found[3]}
    text = "".join(words.get(c, c) for c in f"\t{first}\n\t{load}\n")
    return ptx.replace(found[0], text, 1)


ST, LD = "st.global.v4.f32 [@], V;", "ld.global.v4.f32 W, [@+512];"
ELSEWHERE = (0, 4, 8, 12, 16, 496, 500, 504, 508, 516, 520, 524, 528, 1024)
MUTANTS = {
    **{f"load at {at}": (ST, LD.replace("512", str(at))) for at in ELSEWHERE},
    **{f"store at {at}": (ST.replace("[@]", f"[@+{at}]"), LD) for at in (4, 16, 496, 500, 508, 512, 516, 524, 528)},
    **{f"stored at {at}, too": (f"{ST} {ST.replace('[@]', f'[@+{at}]')}", LD) for at in (500, 508, 512, 516, 524)},
    **{
        f"behind {sync}": (ST, f"{sync}; {LD}")
        for sync in ("bar.sync 0", "membar.gl", "fence.acq_rel.gpu", "fence.sc.cta", "bar.warp.sync 0xffffffff")
    },
    **{
        f"ld.{form}": (ST, LD.replace("ld.global", f"ld.{form}"))
        for form in ("volatile.global", "relaxed.gpu.global", "acquire.gpu.global", "global.nc")
    },
    **{
        f"st.{form}": (ST.replace("st.global", f"st.{form}"), LD)
        for form in ("volatile.global", "relaxed.gpu.global", "release.gpu.global")
    },
    "no load": (ST, ""),
    "no store": ("", LD),
    "a predicated load": (ST, f"@%p1 {LD}".replace("@%", "\0%")),
}


@pytest.mark.parametrize("name", ["doubled", "added"])
def test_a_load_moved_behind_a_store_to_other_elements(name: str) -> None:
    assert STORE.search(compiled(name)[0].ptx)
    assert decided(name, compiled(name)[0].ptx)
    assert decided(name, moved(name, ST, LD))


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", ["doubled", "added"])
def test_other_changes_are_not_taken(name: str, mutant: str) -> None:
    assert not decided(name, moved(name, *MUTANTS[mutant]).replace("\0", "@"))


VECTOR = re.compile(r"\tst\.global\.v4\.(?:f32|u32) \t\[(%rd\d+)(\+512)?\], (\{.*\});\n")


def test_loads_behind_a_store_to_the_same_element() -> None:
    """What ``z`` gets is loaded again, into the registers that are stored, before and behind each store."""
    ptx = compiled("kept")[0].ptx
    assert decided("kept", ptx)
    block = ptx[ptx.index("$L__BB0_1:") : ptx.index("bra.uni", ptx.index("$L__BB0_1:"))]
    stores = list(VECTOR.finditer(block))
    assert len(stores) == 4
    loaded = re.findall(r"ld\.global\.v4\.\w+ \t(\{.*\}), \[(%rd\d+)(\+512)?\];", block)
    y = loaded[0][1]
    seen: dict[bool, int] = {True: 0, False: 0}
    for k, z in enumerate(stores):
        if z[1] == y:
            continue
        first = int((z[2] or "+0")[1:])
        for before in stores[: k + 1]:
            written = {int((s[2] or "+0")[1:]) for s in stores[: stores.index(before)] if s[1] == y}
            reads = f"\tld.global.v4.u32 {z[3]}, [{y}+{first}];\n"
            changed = block[: before.start()] + reads + block[before.start() :]
            right = first not in written
            if right:
                continue  # NVRTC's own order, or a register that others use
            seen[decided("kept", ptx.replace(block, changed))] += 1
    assert seen[False]
    assert not seen[True]
