"""State spaces of memory, and the levels of the thread hierarchy."""

from __future__ import annotations

from enum import Enum


class Space(Enum):
    """State spaces (PTX ISA; TMEM: tcgen05)."""

    REGISTER = "register"
    SHARED = "shared"
    DISTRIBUTED_SHARED = "distributed_shared"
    TMEM = "tmem"
    GLOBAL = "global"


class ThreadGroup(Enum):
    """A level of the thread hierarchy, from one thread to the whole grid (CUDA C++ Programming Guide)."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    CTA = "cta"
    CLUSTER = "cluster"
    GRID = "grid"


WARP_THREADS = 32
"""Threads of a warp (PTX ISA 9.1, 10: WARP_SZ; CUDA C++ Programming Guide, SIMT architecture)."""

WARPGROUP_THREADS = 128
"""Four consecutive warps, the first a multiple of four (PTX ISA 9.1, 9.7.15.1)."""
