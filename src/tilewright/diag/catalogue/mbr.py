"""MBR: protocols of barriers, asynchronous copies and fences. 001-009 are mistakes of form, 010 up are refutations."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_PTX = "PTX ISA 9.1"

CODES: tuple[Code, ...] = (
    Code(
        id="MBR001",
        title="a name of the protocol is missing or declared twice",
        why="Roles, buffers, barriers and symbols are referred to by name.",
        bad='b.mbarrier("full"); b.mbarrier("full")',
        good='b.mbarrier("full"); b.mbarrier("empty")',
        source="Tilewright protocol model",
    ),
    Code(
        id="MBR002",
        title="a size or count of the protocol is out of range",
        why="A barrier counts 1 to 2^20-1 arrivals; a region lies inside its buffer.",
        bad='b.mbarrier("full", count=0)',
        good='b.mbarrier("full", count=1)',
        source=f"{_PTX}, 9.7.13.15.9",
    ),
    Code(
        id="MBR003",
        title="an op is executed by the wrong grain of threads",
        why="Collective ops are undefined unless all their threads execute them.",
        bad="role.one(Wgmma(...))",
        good="role.all(Wgmma(...)) in a role of 128 threads",
        source=f"{_PTX}, 9.7.13, 9.7.15, 9.7.16",
    ),
    Code(
        id="MBR004",
        title="a loop's counter or step is not valid",
        why="A counter names one value at a time and must reach the end.",
        bad="a loop k inside a loop k",
        good="a loop k inside a loop t",
        source="Tilewright protocol model",
    ),
    Code(
        id="MBR005",
        title="an index uses a name that is not in scope",
        why="Slots, parities and bounds are expressions over counters, symbols and the CTA's rank.",
        bad="full[j % 4] where no loop j is open",
        good="full[k % 4] inside loop k",
        source="Tilewright protocol model",
    ),
    Code(
        id="MBR006",
        title="an op refers to something undeclared",
        why="A ring, barrier, buffer or counter must be declared before an op can use it.",
        bad='Wait(Slot("fulll"), parity)',
        good='Wait(Slot("full"), parity)',
        source="Tilewright protocol model",
    ),
    Code(
        id="MBR007",
        title="protocol text cannot be read",
        why="The notation is Python syntax with the protocol's own words; anything else is not guessed at.",
        bad="with role(producer):",
        good='with role("producer", 32):',
        source="Tilewright protocol notation",
    ),
)
