"""Bugs in what rewrites the questions that provers are asked, and in proofs of gathered and converted operands: the
tests that compare these with enumeration, or with changed kernels, must fail. And bugs in sums over a cluster."""

from __future__ import annotations

from planted.mutant import Kind, Mutant

_ACCESSES = "tests/verify/test_access_brute.py"
_LOOPS = "tests/verify/test_loops.py"
_ROWS = "tests/hopper/test_gathered_rows.py"
_TILES = "tests/hopper/test_converted_operands.py"
_VARIANTS = "tests/compiler/test_variants_agree.py"
_PARTS = "tests/compiler/test_cluster_parts.py"
_ENDS = "tests/hopper/test_ragged_stores.py"


def _bug(name: str, what: str, file: str, old: str, new: str, test: str, harmless: str = "") -> Mutant:
    return Mutant(name, Kind.PROVERS, what, f"{file}.py", old, new, (test,), harmless=harmless)


def _digits(name: str, what: str, old: str, new: str) -> Mutant:
    return _bug(name, what, "verify/access_split", old, new, _ACCESSES)


def _loop(name: str, what: str, old: str, new: str, harmless: str = "") -> Mutant:
    return _bug(name, what, "verify/loops", old, new, _LOOPS, harmless)


def _row(name: str, what: str, old: str, new: str) -> Mutant:
    return _bug(name, what, "compiler/proofs/gathered_rows", old, new, _ROWS)


def _tile(name: str, what: str, old: str, new: str, harmless: str = "") -> Mutant:
    return _bug(name, what, "compiler/proofs/converted_tiles", old, new, _TILES, harmless)


def _end(name: str, what: str, old: str, new: str) -> Mutant:
    return _bug(name, what, "compiler/proofs/ragged_copies", old, new, _ENDS)


PROVERS = (
    _end(
        "any pitch to an end",
        "the dimension of ends may have another stride than rows",
        "if end != step or together is None",
        "if together is None",
    ),
    _end(
        "turns that are not whole",
        "what rows count in vain need not be taken back",
        "together is None or together * bound % _ADDRESSES:",
        "together is None:",
    ),
    _end(
        "few ends",
        "ends may lie beyond the extent of their dimension",
        "extent.constant is None or extent.constant <= bound for extent",
        "extent.constant is None for extent",
    ),
    _end(
        "any end",
        "copies may end elsewhere than the domain",
        "end not in (span.stop, maximum(span.stop, 0)):",
        "end.constant == -1:",
    ),
    _end(
        "any turn",
        "copies may take back another number of rows",
        "if wrap != Const(bound_of(numbers)):",
        "if wrap.constant is None:",
    ),
    _end(
        "coordinates of any size",
        "coordinates need not be 32-bit integers",
        "if least is None or most is None or least < 0 or most > _MOST:",
        "if least is not None and least < 0:",
    ),
    _end(
        "integers of any size",
        "integers that nothing clips are taken for clipped ones",
        "return (None, None) if most is None else (0,",
        "return (0, MAX_EXTENT) if most is None else (0,",
    ),
    _digits(
        "digits are not asked for",
        "coordinates are split whether or not the second digit lies below the extent",
        "if all(inside(m, place + 1, extent) for m in asked):",
        "if asked:",
    ),
    _digits(
        "the first digit is asked for",
        "the first digit is shown to lie below the extent in place of the second",
        "if all(inside(m, place + 1, extent) for m in asked):",
        "if all(inside(m, place, extent) for m in asked):",
    ),
    _digits(
        "digits by what they are for",
        "the bounds of the number are assumed while its digit's are asked",
        "asked = [_split(m, place, extent, bounded=False) for m in maps]",
        "asked = [_split(m, place, extent, bounded=True) for m in maps]",
    ),
    _digits(
        "a number's end without its digit",
        "a number below H*D + e is taken for one below H*D",
        "return first < end[0] if end is not None and end[1] == Const(0) else None",
        "return first < end[0] if end is not None else None",
    ),
    _digits(
        "numbers without their constant",
        "the constant of a number is left out of its digits",
        "second: Expr = Const(coord.offset if isinstance(coord, Sum) else 0)",
        "second: Expr = Const(0)",
    ),
    _digits(
        "first digits of one",
        "a factor of the first digit is left out",
        "rest: Expr = Const(factor)",
        "rest: Expr = Const(1)",
    ),
    _digits(
        "no least first digit",
        "a number from 0 on is taken for one of a first digit from 1 on",
        "return first >= 0",
        "return first >= 1",
    ),
    _bug(
        "digits from 0 on alone",
        "that a digit is not negative is all that is asked",
        "verify/access",
        "outside = (coord.times(-1).shifted(-1), coord.plus(end, -1))",
        "outside = (coord.times(-1).shifted(-1),)",
        _ACCESSES,
    ),
    _bug(
        "some fall",
        "a coordinate counts as falling where one access falls in it",
        "verify/access",
        "if unbounded and all(c < 0 for c in unbounded):",
        "if unbounded and any(c < 0 for c in unbounded):",
        _ACCESSES,
        "Coordinates are negated in all accesses and promises alike, which keeps equal elements equal and others apart, "
        "whichever coordinates they are: proofs are found or not, and none is wrong.",
    ),
    _bug(
        "stores fall, promises do not",
        "coordinates are negated in what is not bounded by a constant alone",
        "verify/access",
        "coords = tuple(c.times(-1) if d in self.falling else c for d, c in enumerate(piece.coords))",
        "coords = tuple(c.times(-1) if d in self.falling and piece.source in self.accesses else c "
        "for d, c in enumerate(piece.coords))",
        _ACCESSES,
    ),
    _loop(
        "the counter stays",
        "a loop that is begun at 0 counts as before in its body",
        "body = substituted(loop.body, loop.counter, sym(loop.counter) + begin)",
        "body = loop.body",
    ),
    _loop(
        "bounds that others ask for",
        "two bounds become a count although other loops ask for them",
        "if names & frozenset[str]().union(*(used(r.body) for r in new.roles)):",
        "if not new.roles:",
    ),
    _loop(
        "parts from the last one's end",
        "a part counts on from the end of the one before, and not from the ends of all",
        "before = before + end",
        "before = end",
    ),
    _loop(
        "parts of another sum",
        "the first loop in a row is a part of every sum",
        "return row[first:last]",
        "return row[:last]",
    ),
    _loop(
        "parts that may be negative",
        "counts that may be negative are parts",
        "if all(at_most(Const(0), end, bounds) for end in ends)",
        "if ends and bounds is not None",
    ),
    _loop(
        "counters that are not carried",
        "each part of a loop begins its counter anew",
        "turn = (*inside, Step(ops.Advance(name), By.ALL, node.where))",
        "turn = inside",
    ),
    _loop(
        "turns in any order",
        "the iterations of a turn are the first ones of all turns",
        "sym(loop.counter) * width + i) for i in range(width))",
        "sym(loop.counter) + i) for i in range(width))",
    ),
    _loop(
        "loops of any width",
        "a loop that does not begin at 0 is unrolled",
        "plain = loop.begin.constant == 0 and loop.step == 1 and not _varies(protocol, loop.counter)",
        "plain = loop.step == 1 and not _varies(protocol, loop.counter)",
    ),
    _row(
        "any integer's row",
        "a copy may follow another row's integer",
        "return values_at(place, {**at, t.REGISTER: register})",
        "return values_at(place, at)",
    ),
    _row(
        "registers of any number",
        "a copy may follow an integer behind those that are loaded",
        "if register.min() < 0 or register.max() >= held or not _zero_outside(op, rows, place, read, step):",
        "if not _zero_outside(op, rows, place, read, step):",
    ),
    _row(
        "integers of any load",
        "integers may be written by others beside the load",
        "if len(writers) != 1 or not isinstance(writers[0], t.Load)",
        "if not isinstance(writers[0], t.Load)",
    ),
    _row(
        "integers under any guard",
        "a load of integers may leave some out",
        "return load.live.expr == TRUE and set(conjuncts(load.guard.expr)) <= allowed",
        "return load.live.expr == TRUE and bool(allowed)",
    ),
    _row(
        "rows without tests",
        "rows outside of the domain need not be left out",
        "return needed <= asked <= needed | others",
        "return asked <= needed | others",
    ),
    _row(
        "rows under any tests",
        "rows of the domain may be left out",
        "return needed <= asked <= needed | others",
        "return needed <= asked",
    ),
    _tile(
        "elements under any guard",
        "a read or a write of a conversion may be guarded",
        "if (write.guard.expr, read.guard.expr) != (\n        TRUE,\n        TRUE,\n    ) or not",
        "if not",
    ),
    _tile(
        "elements twice",
        "an element may be written twice, and another never",
        "or not np.array_equal(np.sort(table[offsets]), np.arange(swizzled.size))",
        "or len(offsets) != swizzled.size",
        "An element that is not written is at byte -1 of the stage, which no tile has.",
    ),
    _tile(
        "vectors of any elements",
        "the elements of a vector need not be consecutive",
        "if (together - together[:, :1] != np.arange(width)).any():",
        "if together.size < width:",
    ),
    _tile(
        "any function for a cast",
        "a conversion may compute something else than a cast",
        "return condition if isinstance(made, tile.Cast) and made.x in cast.body.block.args else None",
        "return condition",
    ),
    _tile(
        "zeros of any row",
        "the comparison that makes zeros may be of another row",
        "return row.symbols <= found.at.keys() and bool((values_at(row, found.at) == found.k).all())",
        "return row.symbols <= found.at.keys()",
    ),
    _bug(
        "variants are alike",
        "no two variants leave a tensor otherwise",
        "compiler/variants_agree",
        "if differ.any() and (floats or exact):",
        "if differ.all() and not (floats or exact):",
        _VARIANTS,
    ),
    _bug(
        "everything is another one's rest",
        "any variant is another one without its streams",
        "compiler/variants_agree",
        "return own is not None and any(w is not None and is_rest(w, own, variant.predicate) for w in whole)",
        "return own is not None and any(w is not None for w in whole)",
        _VARIANTS,
    ),
    _bug(
        "reads of a cluster that nobody sees",
        "a read of another CTA's memory is no access of the protocol",
        "transport/to_protocol_ops",
        "(*to.read_of_cluster(op, at), *to.touched((), (op.buffer,), at))",
        "to.touched((), (op.buffer,), at)",
        _PARTS,
    ),
    _bug(
        "reads of one CTA",
        "every read of the cluster is one of the first CTA's memory",
        "transport/to_protocol_ops",
        "at, (last - first) * size, Const(rank))",
        "at, (last - first) * size, Const(0))",
        _PARTS,
    ),
)


_REFUSED = "The cluster's kernel is refused: what leaves the compiler is the kernel whose parts lie in workspaces."


def _sum(name: str, what: str, old: str, new: str, file: str = "program_sums", harmless: str = "") -> Mutant:
    path = f"schedule/hopper/{file}.py"
    return Mutant(name, Kind.SCHEDULE, what, path, old, new, ("parts",), harmless=harmless)


PARTS = (
    _sum(
        "parts of one CTA",
        "every CTA reads its own part only",
        "t.ClusterRead(shared, read, here, TRUE, cta=R // own, vector=VECTOR)",
        "t.ClusterRead(shared, read, here, TRUE, cta=RANK, vector=VECTOR)",
        harmless=_REFUSED,
    ),
    _sum(
        "one share for all",
        "every CTA adds the columns of the first",
        "here = RANK * (own // VECTOR * VECTOR * threads) + place(R % own)",
        "here = place(R % own)",
    ),
    _sum(
        "the next share",
        "a CTA adds the columns of the next one",
        "here = RANK * (own // VECTOR * VECTOR * threads) + place(R % own)",
        "here = (RANK + 1) % parts * (own // VECTOR * VECTOR * threads) + place(R % own)",
    ),
    _sum(
        "the first part is left out",
        "the first part is added as the second again",
        "t.Map([read] * parts, [R + part * own for part in range(parts)],",
        "t.Map([read] * parts, [R + max(part, 1) * own for part in range(parts)],",
    ),
    _sum(
        "threads beside each other",
        "two threads write to one place",
        "return register // VECTOR * (VECTOR * threads) + TID * VECTOR + register % VECTOR",
        "return register // VECTOR * (VECTOR * threads) + TID // 2 * VECTOR + register % VECTOR",
        harmless=_REFUSED,
    ),
    _sum(
        "parts before they are written",
        "the cluster does not wait before parts are read",
        "    lowering.emit(a.ClusterWait(), op)\n",
        "",
        harmless=_REFUSED,
    ),
    _sum(
        "parts that are multiplied",
        "parts are multiplied",
        "add = tile.Binary(BinaryFn.ADD, result, part)",
        "add = tile.Binary(BinaryFn.MUL, result, part)",
    ),
    _sum(
        "producers that do not come",
        "the producer's threads do not come to the cluster's barrier",
        "return [barrier for _ in program_sums(kernel) for barrier in (a.ClusterArrive(), a.ClusterWait())]",
        "return []",
    ),
    _sum(
        "clusters of half the parts",
        "a cluster has half of the CTAs that the parts are",
        "Candidate(rows // ROWS, cluster=(1, parts))",
        "Candidate(rows // ROWS, cluster=(1, parts // 2))",
        file="product_tiles",
    ),
    _sum(
        "shares of another width",
        "a share has twice its columns",
        "narrow = {**extents, **{name: extents[name] // own.parts for name in self._columns}}",
        "narrow = {**extents, **{name: 2 * extents[name] // own.parts for name in self._columns}}",
        file="tile_choice",
        harmless=_REFUSED,
    ),
)
