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


class Proxy(Enum):
    """The path by which memory is reached; crossing from one to the other needs a proxy fence (PTX ISA, memory
    consistency model, proxies)."""

    GENERIC = "generic"
    ASYNC = "async"
    TENSORMAP = "tensormap"
