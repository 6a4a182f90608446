"""Memory spaces and execution grains: the coordinates in which every other room places data and work."""

from __future__ import annotations

from enum import Enum


class Space(Enum):
    """Where bytes live (PTX ISA, state spaces; TMEM: tcgen05)."""

    REGISTER = "register"
    SHARED = "shared"
    DISTRIBUTED_SHARED = "distributed_shared"
    TMEM = "tmem"
    GLOBAL = "global"


class Grain(Enum):
    """Who acts together, from one thread to the whole grid."""

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


class Proxy(Enum):
    """The path by which memory is reached; crossing from one to the other needs a proxy fence (PTX ISA, memory
    consistency model, proxies)."""

    GENERIC = "generic"
    ASYNC = "async"
    TENSORMAP = "tensormap"
