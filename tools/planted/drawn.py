"""Bugs in programs that CTAs draw, gathered rows, sums over a cluster's shared memory, factors of exponents, CTAs that share
an SM, tiles converted on the way, and workspaces."""

from __future__ import annotations

from planted.mutant import Kind, Mutant

_QUEUE = "schedule/hopper/program_queue"
_ROWS = "schedule/hopper/thread_copy_producer"
_SUM = "schedule/hopper/program_sums"
_CONVERTED = "schedule/hopper/converted_operand"
_REFUSED = "The cluster's kernel is refused: what leaves the compiler is the kernel whose parts lie in workspaces."


def _bug(
    name: str, what: str, file: str, old: str, new: str, *probes: str, kind: Kind = Kind.PROTOCOL, harmless: str = ""
) -> Mutant:
    return Mutant(name, kind, what, f"{file}.py", old, new, probes, harmless=harmless)


_DRAWS = (
    _bug(
        "next number unguarded",
        "the producer does not wait until the last number was read",
        _QUEUE,
        "            lowering.emit(a.MbarrierWait(self.empty, Const(0), (use + 1) % 2))\n",
        "",
        "grouped",
    ),
    _bug(
        "next number a phase early",
        "the producer waits for the phase that has just begun",
        _QUEUE,
        "a.MbarrierWait(self.empty, Const(0), (use + 1) % 2)",
        "a.MbarrierWait(self.empty, Const(0), use % 2)",
        "grouped",
    ),
    _bug(
        "next number before it is there",
        "consumers do not wait for the number",
        _QUEUE,
        "            lowering.emit(a.MbarrierWait(self.full, Const(0), use % 2))\n",
        "            pass\n",
        "grouped",
    ),
    _bug(
        "next number of the other phase",
        "consumers wait for the other phase",
        _QUEUE,
        "a.MbarrierWait(self.full, Const(0), use % 2)",
        "a.MbarrierWait(self.full, Const(0), (use + 1) % 2)",
        "grouped",
    ),
    _bug(
        "next number read by one",
        "one arrival empties the slot",
        _QUEUE,
        'a.Mbarriers("next_empty", 1, a.WARPGROUP_THREADS * lowering.configuration.consumers)',
        'a.Mbarriers("next_empty", 1, 1)',
        "grouped",
    ),
    _bug(
        "next number never emptied",
        "consumers arrive where the producer does",
        _QUEUE,
        "self.full if producing else self.empty, Const(0)",
        "self.full, Const(0)",
        "grouped",
    ),
    _bug(
        "next number told early",
        "the number is told before it is written",
        _QUEUE,
        "            lowering.emit(t.SharedWrite(self.slot, taken, Const(0), TRUE))\n        else:",
        "            lowering.emit(a.MbarrierArrive(self.full, Const(0)))\n"
        "            lowering.emit(t.SharedWrite(self.slot, taken, Const(0), TRUE))\n        else:",
        "grouped",
    ),
    _bug(
        "uses of the number uncounted",
        "a role's count of programs stays",
        _QUEUE,
        "        lowering.emit(a.Advance(COUNTER))\n",
        "",
        "grouped",
    ),
    _bug(
        "consumers' own programs",
        "consumers deal programs, the producer draws",
        "schedule/hopper/lower",
        "drawn=self.queue.drawn,",
        "drawn=self.queue.drawn if self.producing else None,",
        "grouped",
    ),
    _bug(
        "drawn from zero",
        "the first programs are done twice",
        "codegen/cuda",
        'self.line(f"{given} = (int)gridDim.x;")',
        'self.line(f"{given} = 0;")',
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "drawn in twos",
        "every other program is left out",
        "codegen/cuda",
        "atomicAdd({self.names[op.tensor]}, 1)",
        "atomicAdd({self.names[op.tensor]}, 2)",
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "drawn and dealt",
        "the next program is a grid further on",
        "codegen/cuda",
        'self.line(f"drawn = {identifier(op.drawn.data)};")',
        'self.line("drawn = program + (int)gridDim.x;")',
        "grouped",
        kind=Kind.EMISSION,
        harmless="Dealt or drawn, each program is done once, and the counter is added to as often.",
    ),
    _bug(
        "behind what was drawn",
        "a CTA goes on behind the program that it has drawn",
        "codegen/cuda",
        'self.line(f"drawn = {identifier(op.drawn.data)};")',
        'self.line(f"drawn = {identifier(op.drawn.data)} + 1;")',
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "first program drawn",
        "CTAs begin one program on",
        "codegen/cuda",
        'self.line(f"int drawn = {start};")',
        'self.line(f"int drawn = {start} + 1;")',
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "one program too many",
        "the loop takes the number that no program has",
        "codegen/cuda",
        'f"for (int program = drawn; program < {total}; program = drawn)"',
        'f"for (int program = drawn; program <= {total}; program = drawn)"',
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "queue from one",
        "the counter of a launch begins at 1",
        "compiler/launch_recipe",
        "Fill(WorkspacePointer(placed[tensor_type(op.tensor).tensor_name.data]), 0,",
        "Fill(WorkspacePointer(placed[tensor_type(op.tensor).tensor_name.data]), 1,",
        "grouped",
        kind=Kind.RECIPE,
    ),
    _bug(
        "queue not reset",
        "the counter is not reset",
        "compiler/launch_recipe",
        "[fill for kernel in kernels for fill in _counters(kernel)]",
        "[]",
        "grouped",
        kind=Kind.RECIPE,
    ),
    _bug(
        "queue reset a program late",
        "the counter of a launch with one program more than CTAs is not reset",
        "compiler/launch_recipe",
        "yield op, op.programs.expr > at_once",
        "yield op, op.programs.expr > at_once + 1",
        "grouped",
        kind=Kind.RECIPE,
    ),
    _bug(
        "drawn by few",
        "a launch with one program more than CTAs draws none",
        "codegen/cuda",
        "if ((int)gridDim.x < {self.c_int(op.programs.expr)})",
        "if ((int)gridDim.x + 1 < {self.c_int(op.programs.expr)})",
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "gate judged by one warp",
        "the count of the CTA's barrier leaves other warps out",
        "codegen/cuda",
        "{met} = __syncthreads_count({met});",
        "{met} = __syncthreads_count(tid < 32 ? {met} : 0);",
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "gate of each thread",
        "threads do not meet before the gate",
        "codegen/cuda",
        "{met} = __syncthreads_count({met});",
        "{met} = {met} != 0;",
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "gate of each warp",
        "each warp has a gate of its own",
        "codegen/cuda",
        "{met} = __syncthreads_count({met});",
        "__syncthreads(); {met} = __any_sync(0xffffffffu, {met});",
        "grouped",
        kind=Kind.EMISSION,
    ),
    _bug(
        "gate opens before the barrier",
        "the gate is named before the CTA has met",
        "schedule/hopper/promise_gate",
        "            yield t.BarrierCount(broken.buffer)\n",
        "            yield t.Barrier()\n",
        "grouped",
    ),
    _bug(
        "gate without the last offset",
        "the end of the last group is not compared with the rows there are",
        "schedule/hopper/promise_gate",
        "        t.Load(offsets, here.buffer, [at], at < extent),\n",
        "        t.Load(offsets, here.buffer, [at], at + 1 < extent),\n",
        "grouped",
    ),
    _bug(
        "gate by equal offsets",
        "an empty group is taken for a broken promise",
        "schedule/hopper/promise_gate",
        "tile.Compare(CompareFn.GT, here.result, most.result)",
        "tile.Compare(CompareFn.GE, here.result, most.result)",
        "grouped",
    ),
    _bug(
        "gate by the first step",
        "offsets behind the first step are not looked at",
        "schedule/hopper/promise_gate",
        "t.For(counter, Const(0), ceildiv(extent, each * threads), expr(1), t.block(ops))",
        "t.For(counter, Const(0), Const(1), expr(1), t.block(ops))",
        "grouped",
    ),
    _bug(
        "one CTA's share of steps",
        "the counters of a CTA that draws all programs are bounded as if they were dealt",
        "compiler/counter_bounds",
        "if any(op.drawn is not None for op in walks):",
        "if False:",
        "grouped",
        kind=Kind.OPTIONS,
        harmless="The bound is of one program at least, so that no launch is taken that was not: of right launches those "
        "are refused in which a CTA would walk more steps than a counter holds, were programs dealt.",
    ),
)

_GATHERED = (
    _bug(
        "rows without their end",
        "the guard of copies leaves the rows' own end out",
        _ROWS,
        "guard=all_of([here, *inside, row",
        "guard=all_of([*inside, row",
        "gathered_product",
        harmless="The integers of rows beyond the end are -1: the test of the row itself leaves them out.",
    ),
    _bug(
        "one panel's place",
        "all panels of gathered rows land in the first",
        _ROWS,
        "        base = begin + part * tile.rows * tile.pitch_bytes\n        yield a.CpAsync(\n            tensor,\n"
        "            shared,\n            coords=coords,\n            axis=rows.columns,",
        "        base = begin\n        yield a.CpAsync(\n            tensor,\n"
        "            shared,\n            coords=coords,\n            axis=rows.columns,",
        "gathered_wide",
    ),
    _bug(
        "lines of one swizzle period",
        "copies further down repeat the first lines",
        _ROWS,
        "line = _THREAD // lanes + _COPY % together * at_once",
        "line = _THREAD // lanes",
        "gathered_narrow",
    ),
    _bug(
        "periods side by side",
        "copies of the next period lie a line on",
        _ROWS,
        "return first + _COPY // together * (together * at_once * tile.pitch_bytes)",
        "return first + _COPY // together * tile.pitch_bytes",
        "gathered_product",
    ),
)

_SUMS = (
    _bug(
        "sums before they are there",
        "parts are read before the cluster has met",
        _SUM,
        "    lowering.emit(a.ClusterWait(), op)\n    read =",
        "    read =",
        "parts",
        harmless=_REFUSED,
    ),
    _bug(
        "own part alone",
        "all parts are read from the CTA itself",
        _SUM,
        "cta=R // own, vector=VECTOR",
        "cta=RANK, vector=VECTOR",
        "parts",
        kind=Kind.VALUES,
        harmless=_REFUSED,
    ),
    _bug(
        "parts by the thread's neighbour",
        "the second vector lies where the first one of the next thread does",
        _SUM,
        "return register // VECTOR * (VECTOR * threads) + TID * VECTOR + register % VECTOR",
        "return register // VECTOR * VECTOR + TID * VECTOR + register % VECTOR",
        "parts",
        kind=Kind.VALUES,
        harmless=_REFUSED,
    ),
    _bug(
        "first part twice",
        "the first part is added in the place of the second",
        _SUM,
        "[R + part * own for part in range(parts)]",
        "[R + max(part - 1, 0) * own for part in range(parts)]",
        "parts",
        kind=Kind.VALUES,
    ),
    _bug(
        "another rank's share",
        "each CTA adds up the next one's columns",
        _SUM,
        "here = RANK * (own // VECTOR * VECTOR * threads)",
        "here = (RANK + 1) % parts * (own // VECTOR * VECTOR * threads)",
        "parts",
        kind=Kind.VALUES,
    ),
    _bug(
        "another CTA mapped",
        "mapa is given the first CTA",
        "codegen/asynchronous_ops",
        'f"cluster_load_{width * size}({place}, {cta})"',
        'f"cluster_load_{width * size}({place}, 0)"',
        "parts",
        kind=Kind.EMISSION,
    ),
)

_EXPONENTS = (
    _bug(
        "factor twice as great",
        "the power of two of great differences is the next one",
        "codegen/prelude",
        "(0x8e800000u - (__float_as_uint(b) & 0x7f800000u))",
        "(0x8f000000u - (__float_as_uint(b) & 0x7f800000u))",
        "attention",
        kind=Kind.EMISSION,
    ),
    _bug(
        "factor without a sign",
        "the power of two of great differences is positive",
        "codegen/prelude",
        "(__float_as_uint(c) & 0x80000000u) | (0x8e800000u",
        "(0x8e800000u",
        "attention",
        kind=Kind.EMISSION,
    ),
    _bug(
        "factor from another place",
        "the power of two begins above the bound, not at it",
        "codegen/prelude",
        "return fabsf(b) >= least ? __uint_as_float(power) : c;",
        "return fabsf(b) > least ? __uint_as_float(power) : c;",
        "attention",
        kind=Kind.EMISSION,
    ),
    _bug(
        "factor of the mantissa",
        "the power of two is none",
        "codegen/prelude",
        "(__float_as_uint(b) & 0x7f800000u));",
        "(__float_as_uint(b) & 0x7fffffffu));",
        "attention",
        kind=Kind.EMISSION,
    ),
    _bug(
        "two factors",
        "the subtrahend is multiplied with the factor of small differences",
        "schedule/transforms/numerics",
        "            if not self.origins.loaded(b):\n"
        "                scale = self._put(t.ExponentScale(scale, b))\n"
        "            return self._fma(a, scale, self._neg(self._mul(b, scale)))",
        "            other = scale\n"
        "            if not self.origins.loaded(b):\n"
        "                scale = self._put(t.ExponentScale(scale, b))\n"
        "            return self._fma(a, scale, self._neg(self._mul(b, other)))",
        "attention",
        kind=Kind.VALUES,
    ),
    _bug(
        "factor of the minuend",
        "the factor is chosen by each element",
        "schedule/transforms/numerics",
        "scale = self._put(t.ExponentScale(scale, b))",
        "scale = self._put(t.ExponentScale(scale, a))",
        "attention",
        kind=Kind.VALUES,
    ),
)

_RESIDENT = (
    _bug(
        "registers of an SM alone",
        "CTAs that share an SM are compiled as if they had all its registers",
        "codegen/cuda",
        "__launch_bounds__({threads}, {ctas})",
        "__launch_bounds__({threads}, 1)",
        "over_lengths",
        kind=Kind.OPTIONS,
        harmless="A thread may have more registers, by which no result is another one.",
    ),
    _bug(
        "CTAs of an SM forgotten",
        "a launch has as many CTAs as there are SMs",
        "compiler/launch_recipe",
        "kernel.target.sm_count * kernel.min_ctas.data",
        "kernel.target.sm_count",
        "over_lengths",
        kind=Kind.RECIPE,
    ),
    _bug(
        "all shared memory for one",
        "stages of CTAs that share an SM take all its shared memory",
        "schedule/hopper/candidates",
        "limit = placement.target.shared_bytes_of(candidate.resident)",
        "limit = placement.target.shared_bytes_of(1)",
        "over_lengths",
        kind=Kind.SCHEDULE,
        harmless="Where two CTAs do not fit one runs after the other, by which the launch of one grid is not changed.",
    ),
)

_CONVERSIONS = (
    _bug(
        "stage of another step",
        "the tile is read from the first stage",
        _CONVERTED,
        "offset = base // source.bytes + row * shares.width + column",
        "offset = row * shares.width + column",
        "converted",
    ),
    _bug(
        "columns for rows",
        "what is converted is written at the other coordinate",
        _CONVERTED,
        "place = staging_offset(shared, column, row)",
        "place = staging_offset(shared, row, column)",
        "converted",
        kind=Kind.VALUES,
    ),
    _bug(
        "converted without a fence",
        "the tensor core may read what was there before",
        _CONVERTED,
        "    lowering.emit(a.FenceProxyAsync())\n",
        "",
        "converted",
    ),
    _bug(
        "converted without a barrier",
        "warps multiply what others have not written yet",
        _CONVERTED,
        "    lowering.emit(a.FenceProxyAsync())\n    lowering.emit(t.Barrier())\n",
        "    lowering.emit(a.FenceProxyAsync())\n",
        "converted",
    ),
    _bug(
        "half of the threads' shares",
        "a thread takes the vectors of its neighbour",
        _CONVERTED,
        "number = Sym(t.THREAD) + Sym(t.REGISTER) // self.vector * self.threads",
        "number = Sym(t.THREAD) + Sym(t.REGISTER) // self.vector",
        "converted",
        kind=Kind.VALUES,
    ),
)

_PLACES = (
    _bug(
        "first workspace for all",
        "every tensor in a workspace is the first one",
        "compiler/launch_recipe",
        "TensorPointer(parameter.symbol) if index is None else WorkspacePointer(index)",
        "TensorPointer(parameter.symbol) if index is None else WorkspacePointer(0)",
        "grouped",
        kind=Kind.RECIPE,
    ),
    _bug(
        "kernels in the other order",
        "the judge runs behind what it judges",
        "compiler/launch_recipe",
        "    for kernel in kernels:\n        known",
        "    for kernel in reversed(kernels):\n        known",
        "grouped",
        "many_parts",
        kind=Kind.RECIPE,
    ),
    _bug(
        "rest of ones",
        "products over nothing are 1",
        "compiler/empty_streams",
        "zero = tile.Constant(0, result.element)",
        "zero = tile.Constant(1, result.element)",
        "no_product",
        kind=Kind.VALUES,
    ),
    _bug(
        "maps of no elements",
        "a tensor map may have an extent of 0",
        "compiler/launch_recipe",
        "dims=tuple(maximum(d.substitute(known), 1) for d in numbers.dims),",
        "dims=tuple(d.substitute(known) for d in numbers.dims),",
        "nt",
        kind=Kind.RECIPE,
    ),
)

DRAWN: tuple[Mutant, ...] = (*_DRAWS, *_GATHERED, *_SUMS, *_EXPONENTS, *_RESIDENT, *_CONVERSIONS, *_PLACES)
