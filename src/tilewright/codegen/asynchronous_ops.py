"""Emits the asynchronous ops of Transport IR as CUDA C++: each op is one call of a prelude function."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Block, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.cached import cached_property
from tilewright.base.expr import Const
from tilewright.codegen import debug
from tilewright.codegen.asynchronous_prelude import TENSOR_MAP, wgmma
from tilewright.codegen.c_expr import c_type, identifier
from tilewright.codegen.elements import ElementWriter
from tilewright.codegen.shared_addresses import MATRIX_BASE, SHARED_BASE, SharedAddresses
from tilewright.codegen.storage import Storage
from tilewright.codegen.thread_copies import CopyOutWriter, ThreadCopyWriter
from tilewright.hw.rules.wgmma import MATRIX_ADDRESS_BITS
from tilewright.hw.spaces import WARP_THREADS, WARPGROUP_THREADS
from tilewright.tile.ops import tensor_type
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

ASYNCHRONOUS = frozenset(a.OPS)
LEADER = "leader"
_FIXED: dict[type[Operation], str] = {
    a.FenceProxyAsync: 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
    a.FenceMbarrierInit: 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");',
    a.ClusterArrive: 'asm volatile("barrier.cluster.arrive.release;" ::: "memory");',
    a.ClusterWait: 'asm volatile("barrier.cluster.wait.acquire;" ::: "memory");',
    a.BulkCommit: 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");',
    a.WgmmaFence: 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");',
    a.WgmmaCommit: 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
}
"""Ops that are one line, always the same."""
_COUNTERS_BYTES = 256
"""Left free for the counters that a debug build compares; without that room it compares none."""


def c_operand(text: str) -> str:
    """An expression's text as an operand."""
    return text if text.isalnum() else f"({text})"


def _leader(*, in_role: bool) -> str:
    """A condition that holds for the elected thread of the first warp, in a role of every warpgroup.

    Whole warps evaluate both halves, hence no ``&&``; the warp index is broadcast from one lane.
    """
    return f"elect_one() & (warp_of(tid){f' % {WARPGROUP_THREADS // WARP_THREADS}' if in_role else ''} == 0)"


class AsynchronousEmitter:
    """Writes asynchronous ops through the kernel's emitter, bodies of theirs by its ``block``."""

    def __init__(
        self, emitter: ElementWriter, addresses: SharedAddresses, block: Callable[[Block], None], *, debug: bool
    ):
        self.emitter, self.addresses, self.block, self.debug = emitter, addresses, block, debug
        self.maps: dict[str, str] = {}
        """C names of tensor maps by what the IR calls them."""
        self.hints: dict[SSAValue, str] = {}
        self.periods: dict[str, int] = {}
        """Of the counters of which only a remainder matters."""
        self.functions: dict[str, str] = {}
        self.roles = 0
        self.in_role = False
        self.label = "all"
        self.elected = False

    @cached_property
    def counters(self) -> dict[str, tuple[str, ...]]:
        """Per role its carried counters, for debug builds; none where there is no room for them."""
        kernel = self.emitter.kernel
        asked, limit = kernel.shared_bytes, kernel.target.shared_per_cta_bytes
        fits = asked is not None and asked.data + _COUNTERS_BYTES <= limit
        return {
            role.label.data: tuple(identifier(c.symbol.data) for c in role.walk() if isinstance(c, a.Counter))
            for role in kernel.body.block.ops
            if isinstance(role, a.Role) and fits
        }

    def prelude(self) -> str:
        """Types and instruction wrappers that the kernel uses."""
        maps = any(isinstance(op, a.TensorMap) for op in self.emitter.kernel.body.block.ops)
        return "\n\n".join(([TENSOR_MAP] if maps else []) + list(self.functions.values()))

    def opening(self) -> None:
        """The base of dynamic shared memory, aligned to the period of the widest swizzle."""
        line = self.emitter.line
        line("extern __shared__ char dynamic_shared[];")
        start, low = "(unsigned)__cvta_generic_to_shared(dynamic_shared)", f"{t.SHARED_BASE_ALIGN_BYTES - 1}u"
        line(f"const unsigned {SHARED_BASE} = ({start} + {low}) & ~{low};")
        if any(isinstance(op, a.Wgmma) for op in self.emitter.kernel.walk()):
            line(f"const unsigned {MATRIX_BASE} = {SHARED_BASE} & 0x{(1 << MATRIX_ADDRESS_BITS) - 1:x}u;")
        line(f"char* const shared = dynamic_shared + ({SHARED_BASE} - {start});")
        if self.debug:
            line(debug.declared(self.counters))
        cluster = self.emitter.kernel.cluster
        if cluster is not None:
            line(f"const int {identifier(a.CTA_RANK)} = cluster_rank();")
            self.emitter.declare(a.CTA_RANK, (0, cluster.data - 1))

    def closing(self) -> None:
        """The code after the roles."""
        if self.debug:
            for line in debug.compared(self.counters):
                self.emitter.line(line)

    def shared(self, op: t.Shared, memory: str, name: str) -> None:
        """A buffer in dynamic shared memory."""
        assert op.offset is not None
        self.addresses.offsets[op.buffer] = op.offset.data
        self.emitter.line(f"{memory}* const {name} = reinterpret_cast<{memory}*>(shared + {op.offset.data});")

    # -- ops ------------------------------------------------------------------------------------------------------
    def op(self, op: Operation) -> None:
        e = self.emitter
        fixed = _FIXED.get(type(op))
        if fixed is not None:
            e.line(fixed)
            return
        match op:
            case a.Role():
                self.role(op)
            case a.Elected():
                with e.braces(f"if ({LEADER if self.in_role else _leader(in_role=False)})"), e.binding({}):
                    self.elected = True
                    self.block(op.body.block)
                    self.leave(op.body.block)
                    self.elected = False
            case a.Counter():
                e.line(f"int {identifier(op.symbol.data)} = {op.start.data};")
                period = 0 if op.period is None else op.period.data
                e.declare(op.symbol.data, (0, MAX_EXTENT + period))
                if period:
                    self.periods[identifier(op.symbol.data)] = period
            case a.Advance():
                e.line(f"{identifier(op.symbol.data)} += {e.c(op.by.expr)};")
            case a.SetMaxRegisters():
                action = "dec" if op.count.data <= e.kernel.registers_at_launch else "inc"
                e.line(f'asm volatile("setmaxnreg.{action}.sync.aligned.u32 {op.count.data};");')
            case a.Mbarriers():
                self.addresses.offsets[op.bars] = op.offset.data
                self.hints[op.bars] = op.hint.data
            case a.TensorMap():
                self.maps[op.hint.data] = e.name(op.map, op.hint.data)
            case a.NamedBarrierSync():
                e.line(f"named_barrier_sync({e.c(op.id.expr)}, {op.threads.data});")
            case a.NamedBarrierArrive():
                e.line(f"named_barrier_arrive({e.c(op.id.expr)}, {op.threads.data});")
            case a.MbarrierInit() | a.MbarrierArrive() | a.MbarrierArriveExpectTx() | a.MbarrierWait():
                self.mbarrier(op)
            case a.LoadCoordinate():
                self.load_coordinate(op)
            case a.TmaLoad() | a.TmaStore() | a.BulkWait():
                self.copy(op)
            case a.ThreadCopies():
                ThreadCopyWriter(e, self.addresses, op).write()
            case a.CopyOut():
                CopyOutWriter(e, self.addresses, op).write()
            case a.ZeroFill():
                self.zero_fill(op)
            case a.CpAsyncMbarrierArrive():
                e.line(f"cp_async_arrive({self.addresses.barrier(op.bars, op.index.expr)});")
            case a.WgmmaWait():
                e.line(f'asm volatile("wgmma.wait_group.sync.aligned {op.pending.data};" ::: "memory");')
                for buffer in op.retired:
                    e.pin(buffer)
            case a.Wgmma():
                self.wgmma(op)
            case _:
                raise TypeError(f"no code for {op.name}")

    def zero_fill(self, op: a.ZeroFill) -> None:
        """Vectors of zeros, stored under their guards."""
        e = self.emitter
        vector = Storage(t.shared_of(op.shared).dtype.dtype, op.vector.data).vector
        e.comment(op)
        with e.registers(op.count.data):
            guard = "" if e.holds(op.guard.expr) else f"if ({e.c(op.guard.expr)}) "
            to = self.addresses.pointer(op.shared, op.offset.expr)
            e.line(f"{guard}*reinterpret_cast<{vector}*>({to}) = {{}};")

    def role(self, op: a.Role) -> None:
        """One branch of the if .. else chain over roles, the control flow that setmaxnreg requires."""
        e = self.emitter
        threads, first = op.threads.data, op.first.data
        last = first + threads == e.kernel.threads.data
        head = "" if last else f"if (warp_of((int)threadIdx.x) < {(first + threads) // WARP_THREADS})"
        if first:
            head = f"else {head}".rstrip()
        bounds = {t.THREAD: (0, threads - 1), a.WARPGROUP: (0, threads // a.WARPGROUP_THREADS - 1)}
        self.in_role, self.label = True, op.label.data
        e.line(f"// role {op.label.data}")
        constants = dict(e.constants)
        with e.braces(head), e.binding(bounds):
            e.line(f"const int tid = (int)threadIdx.x{f' - {first}' if first else ''};")
            if any(isinstance(inner, a.Elected) for inner in op.walk()):
                e.line(f"const bool {LEADER} = {_leader(in_role=True)};")
            if threads == a.WARPGROUP_THREADS:
                e.constants[a.WARPGROUP] = Const(0)
            else:
                e.line(f"const int {identifier(a.WARPGROUP)} = warp_of(tid) >> 2;")
            self.block(op.body.block)
            self.leave(op.body.block)
        e.constants = constants
        self.in_role = False
        self.roles += 1

    def leave(self, block: Block) -> None:
        """Saves a block's carried counters for the comparison after the roles."""
        if self.debug and self.in_role:
            names = [identifier(op.symbol.data) for op in block.ops if isinstance(op, a.Counter)]
            for line in debug.left(self.counters, self.label, names, one=self.elected):
                self.emitter.line(line)

    def cta_barrier(self) -> str:
        """A barrier over the threads of the CTA, or inside a role over those of the role."""
        if not self.in_role:
            return "__syncthreads();"
        role = next(
            op
            for i, op in enumerate(o for o in self.emitter.kernel.body.block.ops if isinstance(o, a.Role))
            if i == self.roles
        )
        return f"named_barrier_sync({a.role_barrier(self.roles)}, {role.threads.data});"

    def mbarrier(self, op: Operation) -> None:
        e = self.emitter
        match op:
            case a.MbarrierInit():
                kind = a.mbarriers_of(op.bars)
                for slot in range(kind.slots.data):
                    e.line(f"mbarrier_init({self.addresses.barrier(op.bars, Const(slot))}, {kind.count.data});")
            case a.MbarrierArrive():
                bar = self.addresses.barrier(op.bars, op.index.expr)
                peer = None if op.cta is None else e.c(op.cta.expr)
                e.line(f"mbarrier_arrive({bar});" if peer is None else f"mbarrier_arrive_at({bar}, {peer});")
            case a.MbarrierArriveExpectTx():
                e.line(f"mbarrier_arrive_expect_tx({self.addresses.barrier(op.bars, op.index.expr)}, {op.bytes.data});")
            case a.MbarrierWait():
                bar, parity = self.addresses.barrier(op.bars, op.index.expr), e.c(op.parity.expr)
                if not self.debug:
                    e.line(f"mbarrier_wait({bar}, {parity});")
                    return
                slot, name = e.c(op.index.expr), self.hints[op.bars]
                for line in debug.wait(bar, parity, slot, name, self.label, together=not self.elected):
                    e.line(line)
            case _:
                raise TypeError(f"no code for {op.name}")

    def cluster_read(self, op: t.ClusterRead) -> None:
        """Loads vectors from the shared memory of any CTA of the cluster into registers."""
        e = self.emitter
        storage, name, width = e.storages[op.buffer], e.names[op.buffer], op.vector.data
        size = storage.dtype.bytes
        with e.vectors(storage.count, width) as register:
            at = {t.REGISTER: register}
            guard, cta = op.guard.expr.substitute(at), e.c(op.cta.expr.substitute(at))
            with e.braces("" if e.holds(guard) else f"if ({e.c(guard)})"):
                place = self.addresses.address(op.shared, op.offset.expr.substitute(at) * size)
                for line in storage.vector_read(name, "r", width, f"cluster_load_{width * size}({place}, {cta})"):
                    e.line(line)

    def load_coordinate(self, op: a.LoadCoordinate) -> None:
        """Loads an integer that is used as a coordinate, in a type wide enough for comparisons with all values of its
        dtype."""
        e, name = self.emitter, identifier(op.symbol.data)
        storage, extent = Storage(tensor_type(op.tensor).element, 1), e.c(op.extent.expr)
        wide = c_type(storage.dtype.integers)
        e.comment(op)
        at = e.address(op.tensor, [c.expr for c in op.coords], e.symbols[op.tensor])
        e.line(f"const {wide} loaded_{name} = {e.c(op.guard.expr)} ? {storage.number(f'*({at})')} : -1;")
        e.line(f"const int {name} = loaded_{name} < 0 || loaded_{name} >= {extent} ? {extent} : (int)loaded_{name};")
        e.declare(op.symbol.data, (0, MAX_EXTENT))

    def copy(self, op: Operation) -> None:
        e = self.emitter
        match op:
            case a.TmaLoad():
                e.comment(op)
                coords = ", ".join(e.c(c.expr) for c in op.coords)
                to, bar = (
                    self.addresses.address(op.shared, op.offset.expr),
                    self.addresses.barrier(op.bars, op.index.expr),
                )
                rank = len(op.coords)
                if op.ctas:
                    mask = " | ".join(f"1 << {c_operand(e.c(c.expr))}" for c in op.ctas)
                    e.line(f"tma_multicast_{rank}d({to}, &{e.names[op.map]}, {bar}, {mask}, {coords});")
                else:
                    name = f"tma_load_{rank}d" if op.evict_first is None else f"tma_load_first_{rank}d"
                    e.line(f"{name}({to}, &{e.names[op.map]}, {bar}, {coords});")
            case a.TmaStore():
                e.comment(op)
                coords = ", ".join(e.c(c.expr) for c in op.coords)
                source = self.addresses.address(op.shared, op.offset.expr)
                e.line(f"tma_store_{len(op.coords)}d(&{e.names[op.map]}, {source}, {coords});")
            case a.BulkWait():
                read = ".read" if op.read.data else ""
                e.line(f'asm volatile("cp.async.bulk.wait_group{read} {op.pending.data};" ::: "memory");')
            case _:
                raise TypeError(f"no code for {op.name}")

    def wgmma(self, op: a.Wgmma) -> None:
        e = self.emitter
        n, kind = op.n.data, op.dtype.dtype.name
        registers = op.a_in_registers
        a_major = op.a_operand.data.major if op.a_operand is not None else 0
        b_major = op.b_operand.data.major
        form = f"{'r' if registers else 's'}s_{a_major}{b_major}"
        name = f"wgmma_n{n}_{kind}_{form}"
        if name not in self.functions:
            self.functions[name] = wgmma(
                name, n, kind, 256 // op.dtype.dtype.bits, a_major, b_major, registers=registers
            )
        accumulator = f"{e.names[op.accumulator]} + {op.first.data}"
        if registers:
            left = f"{e.names[op.a]} + {op.a_register.data // 2}"
        else:
            assert op.a_operand is not None
            left = self.addresses.descriptor(op.a_operand.data.template, op.a, op.a_offset.expr)
        right = self.addresses.descriptor(op.b_operand.data.template, op.b, op.b_offset.expr)
        e.line(f"{name}({accumulator}, {left}, {right}, {op.scale_d.data});")
