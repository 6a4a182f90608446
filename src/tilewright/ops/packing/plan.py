"""The inspector: from the bucket that each pair chooses to the place of each row, on the device or on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilewright.base.dtypes import dtype_named, i32, i64
from tilewright.diag import fail, shown
from tilewright.jit import lazy, pytorch
from tilewright.jit.index_handles import PlannedIndices, planned
from tilewright.jit.outputs import empty
from tilewright.ops.packing import kernels
from tilewright.ops.packing.policy import KEEP_ALL, MAX_BUCKETS, PackPolicy

_UNLIMITED = 2**31 - 1
MAX_ROWS = 2**31 - 2**21
"""An axis is no longer (RUN022)."""


@dataclass(frozen=True, eq=False)
class PackPlan:
    """The destinations of T tokens with k choices each, as 32-bit integers. Equal ids keep the order of their pairs, so
    that the plan is a function of the ids alone; no packed row has two pairs. P is ``blocks * policy.align``."""

    policy: PackPolicy
    slots: Any
    """(T, k): the packed row of each pair, -1 where it is dropped."""
    rows: Any
    """(P,): the token of each packed row, -1 where it has none."""
    pairs: Any
    """(P,): its pair, token * k + choice, or -1."""
    blocks: Any
    """(P / align,): the bucket of each block of rows, -1 behind the last."""
    offsets: Any
    """(buckets + 1,): where the rows of each bucket begin; the last is where rows end."""
    kept: Any
    """(buckets,): how many pairs each bucket has; what follows them up to the next offset is padding."""
    unique_slots: PlannedIndices | None = None
    """``slots``, for a ``tw.Unique`` parameter; None unless asked for."""
    unique_pairs: PlannedIndices | None = None
    """``pairs``, likewise."""

    @property
    def tokens(self) -> int:
        return int(self.slots.shape[0])

    @property
    def choices(self) -> int:
        """Buckets per token."""
        return int(self.slots.shape[1])

    @property
    def buckets(self) -> int:
        return int(self.kept.shape[0])

    @property
    def capacity(self) -> int:
        """P, the number of packed rows: known to the host, whatever the ids are."""
        return int(self.rows.shape[0])


def build_pack_plan(indices: Any, buckets: int, policy: PackPolicy = KEEP_ALL, *, unique: bool = False) -> PackPlan:
    """Share pairs out to buckets: ``indices`` of (tokens,) or (tokens, choices), i32 or i64; those that are no bucket,
    -1 say, are dropped.

    With ``unique`` the plan has ``unique_slots`` and ``unique_pairs`` besides, handles for ``tw.Unique`` parameters: a
    launch that gets one leaves out the check. ``slots`` and ``pairs`` are copies then, of which a launch knows nothing.

    Ids in a GPU's memory are planned there, by three kernels that nobody waits for; ids in the host's memory by NumPy.
    Raises JIT012 for ids, buckets or policies that make no plan.
    """
    if not isinstance(unique, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("JIT012", found=f"unique={shown(unique)}", required="True or False")
    _check(indices, buckets, policy)
    on_host = lazy.is_array(indices) or pytorch.is_on_cpu(indices)
    plan = (plan_on_host if on_host else plan_by_kernels)(indices, buckets, policy)
    return _with_handles(plan, proved=on_host) if unique else plan


def _with_handles(plan: PackPlan, *, proved: bool) -> PackPlan:
    """The plan with copies of what its handles own: their memory was written by the plan alone. On the host it is seen
    that no two are one place; nobody waits for the GPU to say so, where the kernels' construction is trusted."""
    if proved:
        from tilewright.ops.packing import host  # noqa: PLC0415 - NumPy loads with it

        assert host.are_converse(*map(_as_array, (plan.slots, plan.pairs))), "a plan has two pairs in one row"
    made = {name: planned(getattr(plan, name), f"the {name} of a pack plan") for name in ("slots", "pairs")}
    own = {name: handle.copy() for name, handle in made.items()}
    return replace(plan, **own, unique_slots=made["slots"], unique_pairs=made["pairs"])


def with_own_handles(plan: PackPlan) -> PackPlan:
    """The plan with a handle of its slots themselves, for one who shows them to nobody that could write them."""
    return replace(plan, unique_slots=planned(plan.slots, "the slots of a pack plan"))


def plan_by_kernels(indices: Any, buckets: int, policy: PackPolicy) -> PackPlan:
    """The plan by kernels, which arrays of the host run in the simulator."""
    ids, pairs = indices.reshape(-1), prod(indices.shape)
    parts, programs = -(-pairs // kernels.BLOCK), -(-pairs // kernels.PLACED)
    blocks = policy.block_count(pairs, buckets)
    rows, packed = (_shared(indices, blocks * policy.align, parts) for _ in range(2))
    shares = rows, packed, _shared(indices, blocks, programs)
    plan = _allocated(indices, buckets, policy, shares)
    counts, before = (empty(indices, (parts, buckets), i32) for _ in range(2))
    most = max(16, 1 << (buckets - 1).bit_length())
    limit = _UNLIMITED if policy.capacity is None else policy.capacity
    kernels.count_buckets(ids, counts, rows, packed)
    kernels.lay_out_buckets(counts, before, plan.kept, plan.offsets, capacity=limit, align=policy.align, most=most)
    kernels.place_pairs(
        *(ids, before, plan.offsets, plan.slots.reshape(-1), plan.rows, plan.pairs, shares[2]),
        capacity=limit,
        choices=plan.choices,
        align=policy.align,
        most=most,
    )
    return plan


def plan_on_host(indices: Any, buckets: int, policy: PackPolicy) -> PackPlan:
    """The same plan for ids in host memory, computed by NumPy."""
    from tilewright.ops.packing import host  # noqa: PLC0415 - NumPy loads with it

    plan = _allocated(indices, buckets, policy)
    ids = _as_array(indices)
    for name, found in host.planned(ids.reshape(plan.tokens, plan.choices), buckets, policy).items():
        _as_array(getattr(plan, name))[...] = found
    return plan


def _as_array(values: Any) -> Any:
    """The memory of a tensor of the host, or the array itself."""
    return lazy.arrays.of_tensor(values) if pytorch.is_tensor(values) else values


def _shared(indices: Any, extent: int, programs: int) -> Any:
    """Room for ``extent`` integers, alike for each of some programs and in whole vectors."""
    return empty(indices, (programs, -(-extent // (4 * max(programs, 1))) * 4), i32)


def _allocated(indices: Any, buckets: int, policy: PackPolicy, shares: tuple[Any, ...] | None = None) -> PackPlan:
    """An empty plan; rows, pairs and blocks at the head of ``shares``, if these are given."""
    tokens, choices = indices.shape if len(indices.shape) == 2 else (indices.shape[0], 1)
    blocks = policy.block_count(tokens * choices, buckets)
    extents = blocks * policy.align, blocks * policy.align, blocks
    if shares is None:
        shares = tuple(empty(indices, (extent,), i32) for extent in extents)
    rows, pairs, owners = (share.reshape(-1)[:extent] for share, extent in zip(shares, extents, strict=True))
    slots, offsets, kept = (empty(indices, shape, i32) for shape in ((tokens, choices), (buckets + 1,), (buckets,)))
    return PackPlan(policy, slots, rows, pairs, owners, offsets, kept)


def _check(indices: Any, buckets: int, policy: object) -> None:
    if not isinstance(policy, PackPolicy):
        fail("JIT012", found=f"policy={policy!r}", required="a tw.PackPolicy")
    if type(buckets) is not int or not 1 <= buckets <= MAX_BUCKETS:
        fail("JIT012", found=f"{buckets!r} buckets", required=f"a number from 1 to {MAX_BUCKETS}")
    shape, name = tuple(getattr(indices, "shape", ())), str(getattr(indices, "dtype", type(indices).__name__))
    if dtype_named(name) not in (i32, i64) or len(shape) not in (1, 2) or shape[1:] == (0,):
        fail("JIT012", found=f"indices of {shape}, {name}", required="i32 or i64 of (tokens,) or (tokens, choices)")
    rows = policy.block_count(prod(shape), buckets) * policy.align
    if max(rows, prod(shape)) > MAX_ROWS:
        fail("JIT012", found=f"{rows} packed rows for {prod(shape)} pairs", required=f"at most {MAX_ROWS}")
