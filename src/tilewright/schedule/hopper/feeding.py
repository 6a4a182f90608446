"""The rings of a kernel: barriers and maps declared, stages filled by the producer, awaited and released."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.expr import Const, Expr, Sym, conjuncts, maximum, own
from tilewright.lang.axes import Span
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import Facts
from tilewright.schedule.hopper.arrangement import Arrangement
from tilewright.schedule.hopper.by_hand import HandOperands
from tilewright.schedule.hopper.operands import Copied, Fed, about_strides, index_value, map_axes
from tilewright.schedule.hopper.rings import Ring
from tilewright.schedule.hopper.thread_feeding import thread_copies
from tilewright.schedule.plan import Placement
from tilewright.schedule.tiles import coords_of, element, tensor_name
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


class RingLowering(HandOperands):
    """Lowers both sides of rings."""

    def __init__(self, kernel: tile.Kernel, placement: Placement, facts: Facts, arrangement: Arrangement):
        super().__init__(kernel, placement, facts, arrangement)
        self.rings = arrangement.rings
        self.declarations: list[Operation] = []
        self.data: dict[str, SSAValue] = {}
        self.full: dict[str, SSAValue] = {}
        self.empty: dict[str, SSAValue] = {}
        self.maps: dict[tuple[Operation, tuple[int, ...]], SSAValue] = {}
        self.guards: list[Expr] = []

    def declare(self) -> None:
        """Shared buffers, barriers and maps of the rings."""
        for ring in self.rings:
            dtype = element(ring.slots[0].copied.load.results[0])
            data = t.Shared(ring.name, dtype, ring.stages * ring.stage_bytes // dtype.bytes, 0)
            full = a.Mbarriers(f"{ring.name}_full", ring.stages, arrivals(ring))
            empty = a.Mbarriers(
                f"{ring.name}_empty", ring.stages, self.arrangement.warpgroups * (1 + len(self.others(ring)))
            )
            self.declarations += [data, full, empty]
            self.data[ring.name] = data.buffer
            self.full[ring.name], self.empty[ring.name] = full.bars, empty.bars
            for slot in ring.slots:
                if isinstance(slot.copied, Copied):
                    self.tensor_map(slot.copied.load, self.map_of(slot.copied))

    @property
    def fed(self) -> bool:
        """The producer's threads copy tiles, all of them: nothing of theirs is left to an elected one alone."""
        return any(ring.fed for ring in self.rings)

    def map_of(self, copied: Copied) -> TensorMapPlan:
        """The map through which a CTA fetches its share of a tile."""
        share = self.arrangement.shares.get(copied.load)
        return copied.map if share is None else share.map

    def others(self, ring: Ring) -> tuple[Expr, ...]:
        """Ranks of the other CTAs that fill a ring's stages."""
        if self.arrangement.cluster is None:
            return ()
        return self.arrangement.cluster.others(self.arrangement.shares[s.copied.load] for s in ring.slots)

    def tensor_map(self, op: tile.Load | tile.Store, plan: TensorMapPlan) -> SSAValue:
        """Declares the map through which an access copies boxes of one size, once."""
        if (op, plan.box) in self.maps:
            return self.maps[op, plan.box]
        declared = a.TensorMap(
            self.arguments[op.tensor],
            f"{tensor_name(op)}_map{sum(isinstance(d, a.TensorMap) for d in self.declarations)}",
            data_type=int(plan.data_type),
            address=plan.address,
            dims=plan.dims,
            # the stride of an axis with one element may be anything; every map wants a multiple of 16
            strides_bytes=[maximum(s // 16 * 16, 16) for s in plan.strides],
            box=plan.box,
            axes=map_axes(plan),
            swizzle=int(plan.swizzle),
            l2_promotion=int(plan.l2_promotion),
        )
        self.declarations.append(declared)
        # what the encoding of the map needs; what the copies need besides is the access' own condition
        self.guards += [g for g in conjuncts(plan.guard) if isinstance(op, tile.Load) or about_strides(g)]
        if isinstance(op, tile.Load):
            self.guards += _filled(op)
        self.maps[op, plan.box] = declared.map
        return declared.map

    def meeting(self) -> list[Operation]:
        """All threads that share barriers meet: those of the CTA, or of the cluster."""
        return [t.Barrier()] if self.arrangement.cluster is None else [a.ClusterArrive(), a.ClusterWait()]

    def parting(self) -> list[Operation]:
        """The end of a role: in a cluster no CTA ends while others may still arrive at its barriers."""
        return [] if self.arrangement.cluster is None else self.meeting()

    # -- stages ---------------------------------------------------------------------------------------------------
    def stage(self, ring: Ring, use: Expr) -> Expr:
        """Byte offset of the stage of use ``use``."""
        return use % ring.stages * ring.stage_bytes if ring.stages > 1 else Const(0)

    def fill(self, ring: Ring, at: Mapping[str, Expr] = MappingProxyType({})) -> None:
        """The producer's part of one use, of the tiles where counters have the values ``at``."""
        use = Sym(counter(ring))
        slot_index = use % ring.stages
        self.emit(a.MbarrierWait(self.empty[ring.name], slot_index, (use // ring.stages + 1) % 2))
        block = Block()
        with self.into(block):
            if ring.tx_bytes:
                self.emit(a.MbarrierArriveExpectTx(self.full[ring.name], slot_index, ring.tx_bytes))
            for slot in ring.slots:
                if isinstance(slot.copied, Copied):
                    self.fetch(ring, slot.copied, slot.offset, use, at)
        if self.fed and block.ops:
            self.emit(a.Elected(Region(block)))
        else:
            for op in list(block.ops):
                op.detach()
                self.block.add_op(op)
        if ring.fed:
            self.feed(ring, use, at)
        self.emit(a.Advance(counter(ring)))

    def feed(self, ring: Ring, use: Expr, at: Mapping[str, Expr]) -> None:
        """The copies that all of the producer's threads make, and their arrivals once these are done."""
        full, index = self.full[ring.name], use % ring.stages
        for asynchronous in (True, False):
            for fed, place in ((s.copied, s.offset) for s in ring.fed):
                if isinstance(fed, Fed) and fed.asynchronous is asynchronous:
                    tensor, begin = self.arguments[fed.load.tensor], self.stage(ring, use) + place
                    for copies in thread_copies(fed, tensor, self.data[ring.name], begin, at, self.placement.bounds):
                        self.emit(copies, fed.load)
            if asynchronous and ring.asynchronous:
                self.emit(a.CpAsyncMbarrierArrive(full, index))
        if ring.loaded:  # generic writes, which wgmma reads through the asynchronous proxy
            self.emit(a.FenceProxyAsync())
            self.emit(a.MbarrierArrive(full, index))

    def fetch(self, ring: Ring, copied: Copied, place: int, use: Expr, at: Mapping[str, Expr]) -> None:
        """The tensor copies of one tile into the stage of ``use``, or of this CTA's share of it."""
        load, plan, share = copied.load, self.map_of(copied), self.arrangement.shares.get(copied.load)
        first = [index_value(c, coords_of(load)).substitute(at) for c in plan.coordinates]
        offset = self.stage(ring, use) + place
        if share is not None and share.parts > 1:
            first[1] = first[1] + share.place * share.rows
            offset = offset + share.place * share.bytes
        for box in plan.boxes:
            copy = a.TmaLoad(
                self.maps[load, plan.box],
                self.data[ring.name],
                self.full[ring.name],
                coords=[c + s for c, s in zip(first, box.start, strict=True)],
                offset=offset + box.shared_offset_bytes,
                index=use % ring.stages,
                box_bytes=plan.box_bytes,
                ctas=share.receivers if share is not None else (),
            )
            self.emit(copy, load)

    def await_full(self, ring: Ring) -> None:
        """The consumers' wait for the tiles of one use."""
        use = Sym(counter(ring))
        self.emit(a.MbarrierWait(self.full[ring.name], use % ring.stages, use // ring.stages % 2))
        if ring.asynchronous:  # what cp.async wrote; who copied has not waited for it
            self.emit(a.FenceProxyAsync())

    def release(self, ring: Ring, use: Expr) -> None:
        """One thread of each consumer warpgroup gives the stage of ``use`` back."""
        self.emit(a.Elected(t.block(self.releases(ring, use))))

    def releases(self, ring: Ring, use: Expr) -> list[Operation]:
        """Arrivals at the empty barriers of all CTAs that fill the stage of ``use``."""
        bars, index = self.empty[ring.name], use % ring.stages
        return [a.MbarrierArrive(bars, index), *(a.MbarrierArrive(bars, index, rank) for rank in self.others(ring))]


def arrivals(ring: Ring) -> int:
    """Arrivals that fill a stage: one for all tensor copies, one of each thread that copies."""
    return (1 if ring.tx_bytes else 0) + a.WARPGROUP_THREADS * (ring.asynchronous + ring.loaded)


def _filled(load: tile.Load) -> Iterator[Expr]:
    """A map has no extent of 0, so that a copy that stands in no loop over an axis asks for an element of it."""
    for coord, dim in zip(coords_of(load), tile.tensor_type(load.tensor).dims, strict=True):
        if isinstance(coord, Span) and coord.origin.constant is not None and dim.expr.constant is None:
            yield Const(0) < dim.expr


def counter(ring: Ring) -> str:
    """The carried counter of a ring's uses."""
    return own(f"i_{ring.name}")
