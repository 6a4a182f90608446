"""Instructions with effects beyond registers: memory, warps, barriers, asynchronous copies, products, control.

Rows state which operands are read and written; ``tilewright.ptx.machine`` executes them. (PTX ISA 9.1, 9.7.9, 9.7.10,
9.7.12 to 9.7.16.)
"""

# Lambdas of the table take modifiers or arrays, as ``Row.build`` and ``Function`` say.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from tilewright.ptx.opcodes.rows import OpcodeKind, Row

_ELEMENTS = "b8/b16/b32/b64/b128/u8/u16/u32/u64/s8/s16/s32/s64/f32/f64"
_SPACES = "global/shared/shared::cta/shared::cluster/local/param/param::entry/param::func/const"
_SCOPES = "cta/cluster/gpu/sys"
_SHARED = "shared/shared::cta/shared::cluster"
_HINTS = "L1::*? L2::*? L2::*?"
_ATOMIC = f"relaxed/acquire/release/acq_rel? {_SCOPES}? global/{_SHARED}?"
_UPDATES = "add/inc/dec/min/max/and/or/xor"
_REDUCED = "b32/b64/u32/u64/s32/s64/f16/f16x2/bf16/bf16x2/f32/f64"
_DIMS = "1d/2d/3d/4d/5d"
_MODES = "tile/tile::*/im2col/im2col::*/im2col_no_offs"
_WIDE = "pred/b16/b32/b64/b128/u16/u32/u64/s16/s32/s64/f16/f16x2/bf16/f32/f64"

_ACCESS = f"{_SCOPES}? {_SPACES}?"

MEMORY: tuple[Row, ...] = (
    Row(
        f"ld weak/relaxed/acquire/volatile/mmio? {_ACCESS} ca/cg/cs/lu/cv? nc? {_HINTS} v2/v4/v8? {_ELEMENTS}",
        "w a r:b64",
        kind=OpcodeKind.MEMORY,
    ),
    Row(f"ldu global? v2/v4? {_ELEMENTS}", "w a", kind=OpcodeKind.MEMORY),
    Row(
        f"st weak/relaxed/release/volatile/mmio? {_ACCESS} wb/cg/cs/wt? {_HINTS} v2/v4/v8? {_ELEMENTS}",
        "a r r:b64",
        kind=OpcodeKind.MEMORY,
    ),
    Row(f"red {_ATOMIC} {_UPDATES} noftz? L2::*? v2/v4/v8? {_REDUCED}", "a r r:b64", kind=OpcodeKind.ATOMIC),
    Row(f"atom {_ATOMIC} {_UPDATES} noftz? L2::*? v2/v4/v8? {_REDUCED}", "w a r r:b64", kind=OpcodeKind.ATOMIC),
    Row(f"atom {_ATOMIC} exch L2::*? b32/b64/b128", "w a r r:b64", kind=OpcodeKind.ATOMIC),
    Row(f"atom {_ATOMIC} cas L2::*? b16/b32/b64/b128", "w a r r r:b64", kind=OpcodeKind.ATOMIC),
    Row("prefetch global/local/const/param? L1/L2/L2::*/tensormap", "a", kind=OpcodeKind.CONTROL),
    Row("prefetchu L1", "a", kind=OpcodeKind.CONTROL),
    Row("discard global? L2", "a n", kind=OpcodeKind.CONTROL),
    Row("applypriority global? L2::*", "a n", kind=OpcodeKind.CONTROL),
    Row("createpolicy **", "w:b64 r r r", kind=OpcodeKind.SPECIAL),
    Row(f"tensormap replace tile * global/{_SHARED}? b1024 b32/b64", "a r r", kind=OpcodeKind.COPY),
    Row("tensormap cp_fenceproxy **", "a a n", kind=OpcodeKind.COPY),
)

SPECIAL: tuple[Row, ...] = (
    Row(f"mov {_WIDE}", "w r", lambda type: lambda a: a, kind=OpcodeKind.PURE),
    Row(f"cvta to? {_SPACES} u32/u64", "w r", kind=OpcodeKind.SPECIAL),
    Row(f"isspacep {_SPACES}", "w:pred r:b64", kind=OpcodeKind.SPECIAL),
    Row("mapa shared::cluster? u32/u64", "w r r:b32", kind=OpcodeKind.SPECIAL),
    Row("getctarank shared::cluster? u32/u64", "w:b32 r", kind=OpcodeKind.SPECIAL),
    Row("activemask b32", "w", kind=OpcodeKind.WARP),
    Row("istypep *", "w:pred r:b64", kind=OpcodeKind.SPECIAL),
)

WARP: tuple[Row, ...] = (
    Row("shfl sync up/down/bfly/idx b32", "w r r:b32 r:b32 r:b32", kind=OpcodeKind.WARP),
    Row("vote sync all/any/uni pred", "w r r:b32", kind=OpcodeKind.WARP),
    Row("vote sync ballot b32", "w r:pred r:b32", kind=OpcodeKind.WARP),
    Row("match any/all sync b32/b64", "w:b32 r r:b32", kind=OpcodeKind.WARP),
    Row("redux sync add/min/max u32/s32", "w r r:b32", kind=OpcodeKind.WARP),
    Row("redux sync and/or/xor b32", "w r r:b32", kind=OpcodeKind.WARP),
    Row("elect sync", "w:b32 r:b32", kind=OpcodeKind.WARP),
)

MATRIX: tuple[Row, ...] = (
    Row("ldmatrix sync aligned m8n8 x1/x2/x4 trans? shared/shared::cta? b16", "w:b32 a", kind=OpcodeKind.MATRIX),
    Row("ldmatrix sync aligned m16n16/m8n16 **", "w:b32 a", kind=OpcodeKind.MATRIX),
    Row("stmatrix sync aligned m8n8 x1/x2/x4 trans? shared/shared::cta? b16", "a r:b32", kind=OpcodeKind.MATRIX),
    Row("stmatrix sync aligned m16n8 **", "a r:b32", kind=OpcodeKind.MATRIX),
    Row("movmatrix sync aligned m8n8 trans b16", "w:b32 r:b32", kind=OpcodeKind.MATRIX),
    Row(
        "mma sync aligned m* row col satfinite? f16/f32/s32/f64 f16/bf16/tf32/e4m3/e5m2/u8/s8/u4/s4/f64 "
        "f16/bf16/tf32/e4m3/e5m2/u8/s8/u4/s4/f64 f16/f32/s32/f64",
        "w:b32 r:b32 r:b32 r:b32",
        kind=OpcodeKind.MATRIX,
    ),
    Row("mma **", "w:b32 r:b32 r:b32 r:b32 r:b32 r r r", kind=OpcodeKind.MATRIX),
    Row(
        "wgmma mma_async sync aligned m* f16/f32/s32 f16/bf16/tf32/e4m3/e5m2/u8/s8 f16/bf16/tf32/e4m3/e5m2/u8/s8",
        "u:b32 r:b64 r:b64 r:pred n n n n",
        kind=OpcodeKind.WGMMA,
    ),
    Row("wgmma mma_async sp **", "u:b32 r:b64 r:b64 r:b32 n r:pred n n n n", kind=OpcodeKind.WGMMA),
    Row("wgmma fence/commit_group sync aligned", "", kind=OpcodeKind.WGMMA),
    Row("wgmma wait_group sync aligned", "n", kind=OpcodeKind.WGMMA),
)

_COPIED = "mbarrier::complete_tx::bytes/bulk_group? multicast::cluster? cta_group::*? L2::*?"
COPY: tuple[Row, ...] = (
    Row("cp async ca/cg shared/shared::cta global L2::*? L2::*?", "a a n r r:b64", kind=OpcodeKind.COPY),
    Row("cp async commit_group/wait_all", "", kind=OpcodeKind.COPY),
    Row("cp async wait_group", "n", kind=OpcodeKind.COPY),
    Row("cp async mbarrier arrive noinc? shared/shared::cta? b64", "a", kind=OpcodeKind.COPY),
    Row("cp async bulk commit_group", "", kind=OpcodeKind.COPY),
    Row("cp async bulk wait_group read?", "n", kind=OpcodeKind.COPY),
    Row(f"cp async bulk global/{_SHARED} global/{_SHARED} {_COPIED}", "a a r:b32 r r r", kind=OpcodeKind.COPY),
    Row("cp async bulk prefetch L2 global L2::*?", "a r:b32 r:b64", kind=OpcodeKind.COPY),
    Row(
        f"cp async bulk tensor {_DIMS} global/{_SHARED} global/{_SHARED} {_MODES}? {_COPIED}",
        "a a r r r r",
        kind=OpcodeKind.COPY,
    ),
    Row(f"cp async bulk prefetch tensor {_DIMS} L2 global {_MODES}? L2::*?", "a r r:b64", kind=OpcodeKind.COPY),
    Row(
        f"cp reduce async bulk tensor {_DIMS} global shared::cta {_UPDATES} {_MODES}? bulk_group L2::*?",
        "a a r:b64",
        kind=OpcodeKind.COPY,
    ),
    Row(
        f"cp reduce async bulk global/shared::cluster shared::cta {_COPIED} {_UPDATES} noftz? {_REDUCED}",
        "a a r:b32 r r",
        kind=OpcodeKind.COPY,
    ),
    Row(
        f"st async weak? release/relaxed? {_SCOPES}? {_SHARED}? mbarrier::complete_tx::bytes v2/v4? {_ELEMENTS}",
        "a r a",
        kind=OpcodeKind.COPY,
    ),
    Row(
        f"red async relaxed {_SCOPES} {_SHARED}? mbarrier::complete_tx::bytes {_UPDATES} *",
        "a r a",
        kind=OpcodeKind.COPY,
    ),
)

_AT = f"{_SCOPES}? {_SHARED}? b64"
BARRIERS: tuple[Row, ...] = (
    Row("barrier cta? sync/arrive aligned?", "r:b32 r:b32", kind=OpcodeKind.BARRIER),
    Row("bar cta? sync/arrive", "r:b32 r:b32", kind=OpcodeKind.BARRIER),
    *(Row(f"{b} cta? red popc aligned? u32", "w r:b32 r r:pred", kind=OpcodeKind.BARRIER) for b in ("bar", "barrier")),
    *(
        Row(f"{b} cta? red and/or aligned? pred", "w r:b32 r r:pred", kind=OpcodeKind.BARRIER)
        for b in ("bar", "barrier")
    ),
    Row("bar warp sync", "r:b32", kind=OpcodeKind.BARRIER),
    Row("barrier cluster arrive release/relaxed? aligned?", "", kind=OpcodeKind.BARRIER),
    Row("barrier cluster wait acquire? aligned?", "", kind=OpcodeKind.BARRIER),
    Row(f"mbarrier init {_SHARED}? b64", "a r:b32", kind=OpcodeKind.MBARRIER),
    Row(f"mbarrier inval {_SHARED}? b64", "a", kind=OpcodeKind.MBARRIER),
    Row(f"mbarrier expect_tx/complete_tx relaxed? {_AT}", "a r:b32", kind=OpcodeKind.MBARRIER),
    Row(
        f"mbarrier arrive/arrive_drop expect_tx? noComplete? release/relaxed? {_AT}",
        "w:b64 a r:b32",
        kind=OpcodeKind.MBARRIER,
    ),
    Row(f"mbarrier test_wait/try_wait parity? acquire/relaxed? {_AT}", "w:pred a r r:b32", kind=OpcodeKind.MBARRIER),
    Row("mbarrier pending_count b64", "w:b32 r", kind=OpcodeKind.MBARRIER),
)

FENCES: tuple[Row, ...] = (
    Row("membar cta/gl/sys", "", kind=OpcodeKind.FENCE),
    Row(f"fence sc/acq_rel/acquire/release? sync_restrict::*? {_SCOPES}", "", kind=OpcodeKind.FENCE),
    Row("fence proxy alias/async global/shared::cta/shared::cluster?", "", kind=OpcodeKind.FENCE),
    Row("fence proxy async::generic acquire/release sync_restrict::* cluster", "", kind=OpcodeKind.FENCE),
    Row(f"fence proxy tensormap::generic acquire/release {_SCOPES}", "a n", kind=OpcodeKind.FENCE),
    Row("fence mbarrier_init release cluster", "", kind=OpcodeKind.FENCE),
)

CONTROL: tuple[Row, ...] = (
    Row("bra uni?", "n", kind=OpcodeKind.CONTROL),
    Row("brx idx uni?", "r:b32 n", kind=OpcodeKind.CONTROL),
    Row("ret uni?", "", kind=OpcodeKind.CONTROL),
    Row("exit", "", kind=OpcodeKind.CONTROL),
    Row("trap", "", kind=OpcodeKind.CONTROL),
    Row("brkpt", "", kind=OpcodeKind.CONTROL),
    Row("nanosleep u32", "r", kind=OpcodeKind.CONTROL),
    Row("pmevent mask?", "n", kind=OpcodeKind.CONTROL),
    Row("setmaxnreg inc/dec sync aligned u32", "n", kind=OpcodeKind.CONTROL),
    Row("griddepcontrol launch_dependents/wait", "", kind=OpcodeKind.CONTROL),
)

PARSED: tuple[Row, ...] = (
    Row("tcgen05 ld **", "w:b32 a n", kind=OpcodeKind.PARSED),
    Row("tcgen05 **", "r r r r r r r r r", kind=OpcodeKind.PARSED),
    Row("clusterlaunchcontrol query_cancel **", "w r", kind=OpcodeKind.PARSED),
    Row("clusterlaunchcontrol **", "a a", kind=OpcodeKind.PARSED),
)

ROWS: tuple[Row, ...] = (*MEMORY, *SPECIAL, *WARP, *MATRIX, *COPY, *BARRIERS, *FENCES, *CONTROL, *PARSED)
