"""A matrix product as Hopper kernels do it, written by hand in Transport IR: a producer warpgroup that fills a ring of
shared tiles by tensor copies, two consumer warpgroups that multiply them by wgmma, an epilogue through shared memory.

``without`` leaves one thing out, for tests of what notices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from support.transport import M, N, R, fill, programs, tensor
from tilewright.base.dtypes import bf16, f32
from tilewright.base.expr import Const, Expr, ceildiv, sym
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Swizzle
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import DTypeAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import OperandNumbers

K, TID, IT, WG = sym("K"), sym("$tid"), sym("it"), sym("$warpgroup")
BM, BN, BK, STAGES = 128, 64, 64, 2
A_BYTES, B_BYTES, C_BYTES = BM * BK * 2, BN * BK * 2, 64 * BN * 2
A_AT, B_AT, C_AT = 0, STAGES * A_BYTES, STAGES * (A_BYTES + B_BYTES)
SHARED_BYTES = C_AT + 2 * C_BYTES
OPERAND = OperandNumbers(0, 64, BK, Swizzle.B128, leading_bytes=16, stride_bytes=1024)  # groups of 8 rows: 1024 bytes


def matmul(without: Collection[str] = (), *, slot_bytes: int = A_BYTES + B_BYTES, empty_count: int = 2) -> t.Kernel:
    """c[M, N] = a[M, K] b[N, K]^T in bf16, tiles of 128 x 64 x 64, two stages, persistent."""
    dims = {"a": [M, K], "b": [N, K], "c": [M, N]}
    op = t.Kernel(
        "matmul",
        list(dims),
        [tensor(name, d, bf16) for name, d in dims.items()],
        target=SM90A,
        threads=384,
        min_ctas=1,
        index_bits=64,
        numerics="strict",
        assumptions=[],
    )
    op.attributes["shared_bytes"] = IntAttr(SHARED_BYTES)

    def keep(name: str, *ops: Operation) -> list[Operation]:
        return [] if name in without else list(ops)

    shared_a = t.Shared("a_tiles", bf16, STAGES * BM * BK, A_AT)
    shared_b = t.Shared("b_tiles", bf16, STAGES * BN * BK, B_AT)
    shared_c = t.Shared("c_tiles", bf16, 2 * 64 * BN, C_AT)
    full, empty = a.Mbarriers("full", STAGES, 1), a.Mbarriers("empty", STAGES, empty_count)
    maps = [
        _map(argument, name, extents, box)
        for argument, name, extents, box in zip(
            op.body.block.args, dims, ([K, M], [K, N], [N, M]), ([BK, BM], [BK, BN], [BN, 64]), strict=True
        )
    ]
    inits = [a.MbarrierInit(full.bars), a.MbarrierInit(empty.bars), *keep("init fence", a.FenceMbarrierInit())]
    slot, round_ = t.Let("slot", IT % STAGES), t.Let("round", IT // STAGES)
    producer = [
        slot,
        round_,
        *keep("wait for empty", a.MbarrierWait(empty.bars, sym("slot"), (sym("round") + 1) % 2)),
        a.MbarrierArriveExpectTx(full.bars, sym("slot"), slot_bytes),
        *(
            a.TmaLoad(
                maps[i].map,
                buffer.buffer,
                full.bars,
                coords=[sym("k"), place],
                offset=sym("slot") * size,
                index=sym("slot"),
                box_bytes=size,
            )
            for i, buffer, size, place in (
                (0, shared_a, A_BYTES, sym("p") * BM),
                (1, shared_b, B_BYTES, sym("q") * BN),
            )
        ),
        a.Advance("it"),
    ]
    grid = {"p": ceildiv(M, BM), "q": ceildiv(N, BN)}
    loop = t.For("k", Const(0), K, Const(BK), t.block(producer))
    produce = programs(list(grid), list(grid.values()), [loop], persistent=True)
    consume = programs(
        list(grid),
        list(grid.values()),
        _consumer(keep, maps[2], shared_a, shared_b, shared_c, full, empty),
        persistent=True,
    )
    drain = a.Elected(t.block(keep("drain", a.BulkWait(0, read=False))))
    op.body.block.add_ops(
        [
            *maps,
            shared_a,
            shared_b,
            shared_c,
            full,
            empty,
            a.Elected(t.block(inits)),
            *keep("barrier after init", t.Barrier()),
            a.Role("producer", 0, 128, t.block([a.Elected(t.block([a.Counter("it"), produce]))])),
            a.Role("consumer", 128, 256, t.block([a.Counter("it"), consume, drain])),
        ]
    )
    return op


def _map(tensor_: SSAValue, name: str, dims: Sequence[Expr], box: Sequence[int]) -> a.TensorMap:
    return a.TensorMap(
        tensor_,
        name,
        data_type=9,
        address=sym(f"{name}.address"),
        dims=dims,
        strides_bytes=[sym(f"{name}.stride0") * 2],
        box=box,
        axes=[1, 0],
        swizzle=3,
        l2_promotion=0,
    )


def _consumer(keep, map_c, shared_a, shared_b, shared_c, full, empty) -> list[Operation]:
    acc, out = t.Registers("acc", f32, BN // 2), t.Registers("out", bf16, BN // 2)
    slot, round_ = t.Let("slot", IT % STAGES), t.Let("round", IT // STAGES)
    rows = WG * 64 * BK * 2
    products = [
        a.Wgmma(
            acc.buffer,
            shared_a.buffer,
            shared_b.buffer,
            dtype=DTypeAttr.of(bf16),
            n=BN,
            first=0,
            a_register=0,
            a_offset=sym("slot") * A_BYTES + rows + step * 32,
            b_offset=sym("slot") * B_BYTES + step * 32,
            a_operand=OPERAND,
            b_operand=OPERAND,
            a_region=sym("slot") * A_BYTES + rows,
            a_bytes=A_BYTES // 2,
            b_region=sym("slot") * B_BYTES,
            b_bytes=B_BYTES,
            scale_d=True,
        )
        for step in range(BK // 16)
    ]
    steps = [
        slot,
        round_,
        *keep("wait for full", a.MbarrierWait(full.bars, sym("slot"), sym("round") % 2)),
        *keep("wgmma fence", a.WgmmaFence()),
        *products,
        a.WgmmaCommit(),
        *keep("wgmma wait", a.WgmmaWait(0, [acc.buffer])),
        a.Elected(t.block([a.MbarrierArrive(empty.bars, sym("slot"))])),
        a.Advance("it"),
    ]
    block = Block(arg_types=[tile.TileType.of(f32, [])])
    cast = tile.Cast(block.args[0], bf16)
    block.add_ops([cast, t.Yield([cast.result])])
    lane, warp = TID % 32, TID // 32 % 4
    row = warp * 16 + lane // 8 % 2 * 8 + lane % 8
    stores = [
        a.StoreMatrix(
            shared_c.buffer,
            out.buffer,
            first=8 * pair,
            base=WG * C_BYTES,
            offset=row * 128 + ((2 * pair + lane // 16) ^ (lane % 8)) * 16,
            bytes=C_BYTES,
        )
        for pair in range(BN // 16)
    ]
    store = a.TmaStore(
        map_c.map,
        shared_c.buffer,
        coords=[sym("q") * BN, sym("p") * BM + WG * 64],
        offset=WG * C_BYTES,
        box_bytes=C_BYTES,
    )
    meet = WG + 1
    return [
        acc,
        out,
        fill(0.0, acc.buffer),
        t.For("k", Const(0), K, Const(BK), t.block(steps)),
        t.Map([acc.buffer], [R], [out.buffer], BN // 2, Region(block)),
        *keep("store read", a.Elected(t.block([a.BulkWait(0, read=True)]))),
        *keep("reuse barrier", a.NamedBarrierSync(meet, 128)),
        *stores,
        *keep("proxy fence", a.FenceProxyAsync()),
        *keep("store barrier", a.NamedBarrierSync(meet, 128)),
        a.Elected(t.block([store, a.BulkCommit()])),
    ]
