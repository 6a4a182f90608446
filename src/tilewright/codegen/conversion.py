"""Moves between registers, lanes and matrices as CUDA C++: selects, shuffles, ldmatrix and stmatrix.

Narrow elements are packed into words (``storage``). A group of elements that fills whole words moves word by word; a
smaller one travels in the low bits of a word and is put together with its neighbours at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Expr, Sym, simplify
from tilewright.codegen.elements import ElementWriter
from tilewright.codegen.shared_addresses import SharedAddresses
from tilewright.codegen.storage import Storage
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops import conversion

_Pair: TypeAlias = tuple[str, int, str, int]
"""Two bytes side by side: word and byte of either."""

CONVERSIONS = frozenset((*conversion.OPS, a.StoreMatrix, a.LoadMatrix, a.Mma))


def _matrices(count: int, *, trans: bool, load: bool) -> str:
    """The prelude wrapper of one form of ldmatrix or stmatrix."""
    words = [f"w{i}" for i in range(count)]
    form = f"sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
    places = ", ".join(f"%{i + (0 if load else 1)}" for i in range(count))
    name = f"{'ld' if load else 'st'}matrix_x{count}{'_trans' if trans else ''}"
    arguments = ", ".join(f"unsigned{'&' if load else ''} {w}" for w in words)
    if load:
        operands = ", ".join(f'"=r"({w})' for w in words)
        text = f'"ldmatrix.{form} {{{places}}}, [%{count}];"\n    : {operands} : "r"(at) : "memory"'
    else:
        operands = ", ".join(f'"r"({w})' for w in words)
        text = f'"stmatrix.{form} [%0], {{{places}}};"\n    :: "r"(at), {operands} : "memory"'
    return f"__device__ __forceinline__\nvoid {name}(unsigned at, {arguments}) {{\n  asm volatile({text});\n}}"


def _mma(dtype: str) -> str:
    """The prelude wrapper of mma.sync.m16n8k16."""
    sums = ", ".join(f'"+f"(d{i})' for i in range(4))
    words = [*(f"a{i}" for i in range(4)), *(f"b{i}" for i in range(2))]
    held = ", ".join(f'"r"({w})' for w in words)
    form = f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32"
    d, a, b = (", ".join(f"%{i}" for i in part) for part in (range(4), range(4, 8), range(8, 10)))
    arguments = ", ".join([*(f"float& d{i}" for i in range(4)), *(f"unsigned {w}" for w in words)])
    text = f'"{form} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"\n    : {sums} : {held}'
    return f"__device__ __forceinline__\nvoid mma_{dtype}({arguments}) {{\n  asm volatile({text});\n}}"


FUNCTIONS = {f"mma_{dtype}": _mma(dtype) for dtype in ("f16", "bf16")} | {
    f"{way}matrix_x{count}{suffix}": _matrices(count, trans=bool(suffix), load=way == "ld")
    for way in ("ld", "st")
    for count in (1, 2, 4)
    for suffix in ("", "_trans")
}
"""Functions of the prelude."""


class ConversionEmitter:
    """Emits layout conversions through the kernel's emitter."""

    def __init__(self, emitter: ElementWriter, addresses: SharedAddresses):
        self.emitter, self.addresses = emitter, addresses

    def op(self, op: Operation) -> None:
        """Emits one op."""
        e = self.emitter
        e.comment(op)
        match op:
            case t.RegisterSelect():
                self.select(op)
            case t.Exchange():
                self.exchange(op)
            case t.WarpBarrier():
                e.line("__syncwarp();")
            case a.StoreMatrix() | a.LoadMatrix():
                self.matrices(op)
            case a.Mma():
                self.mma(op)
            case _:
                raise TypeError(f"no code for {op.name}")

    # -- registers ------------------------------------------------------------------------------------------------
    def select(self, op: t.RegisterSelect) -> None:
        """Register moves."""
        e, elements = self.emitter, op.elements.data
        storage, name = e.storages[op.source], e.names[op.source]
        with e.braces(""):
            if elements * storage.dtype.bits < 32 and all(len(row) == 1 for row in op.choices):
                starts = [row.data[0].data for row in op.choices]
                self.permute(
                    [first + i for first in starts for i in range(elements)], storage, name, e.names[op.target]
                )
                return
            picks = list(self.picks(op.choices, op.indices, "from"))
            self.assign(op.target, elements, picks, lambda first, word: _bits(storage, name, first, elements, word))

    def permute(self, moved: Sequence[int], storage: Storage, source: str, target: str) -> None:
        """Elements narrower than a word in fixed places: ``target[i] = source[moved[i]]`` by byte permutations.

        Bytes are first paired: one permutation of two words makes two of the pairs that are needed, so that a block of
        4 x 4 bytes is transposed in 8 instructions.
        """
        per, size = storage.per_word, storage.dtype.bytes
        places = [(f"{source}[{r // per}]", r % per * size) for r in moved]
        bytes_of = [(word, byte + b) for word, byte in places for b in range(size)]
        pairs = [(*bytes_of[i], *bytes_of[i + 1]) for i in range(0, len(bytes_of) - 1, 2)]
        pairs += [(*bytes_of[-1], *bytes_of[-1])] if len(bytes_of) % 2 else []
        by_words: dict[tuple[str, str], list[_Pair]] = {}
        for pair in dict.fromkeys(p for p in pairs if not (p[0] == p[2] and p[3] == p[1] + 1)):
            by_words.setdefault((pair[0], pair[2]), []).append(pair)
        made = [needed[i : i + 2] for needed in by_words.values() for i in range(0, len(needed), 2)]
        named: dict[_Pair, tuple[str, int]] = {}
        if made:
            self.emitter.line(f"unsigned pairs[{len(made)}];")
        for number, needed in enumerate(made):
            name = f"pairs[{number}]"
            selector = "".join(f"{4 + second}{first}" for _, first, _, second in reversed(needed))
            self.emitter.line(f"{name} = __byte_perm({needed[0][0]}, {needed[0][2]}, 0x{selector});")
            named |= {pair: (name, 2 * half) for half, pair in enumerate(needed)}
        for i in range(0, len(pairs), 2):
            halves = [named.get(p, (p[0], p[1])) for p in pairs[i : i + 2]]
            halves += [halves[-1]] if len(halves) == 1 else []
            self.emitter.line(f"{target}[{i // 2}] = {_permuted(halves[0], halves[1])};")

    def exchange(self, op: t.Exchange) -> None:
        """Shuffles each round into temporaries, then selects among them."""
        e, elements = self.emitter, op.elements.data
        storage, name = e.storages[op.source], e.names[op.source]
        words = _words(storage, elements)
        kind = "unsigned" if storage.packed else storage.compute
        with e.braces(""):
            e.line(f"{kind} moved[{len(op.sends) * words}];")
            home = simplify(Sym(t.THREAD) % conversion.LANES, e.bounds)
            sends = list(self.picks(op.sends, op.send_indices, "sent"))
            for k, (pick, lane) in enumerate(zip(sends, op.lanes, strict=True)):
                stays = simplify(lane.expr, e.bounds) == home
                for word in range(words):
                    value = _chosen(pick, lambda c, word=word: _bits(storage, name, c, elements, word))
                    sent = value if stays else f"__shfl_sync(0xffffffffu, {value}, {e.c(lane.expr)})"
                    e.line(f"moved[{k * words + word}] = {sent};")
            taken = list(self.picks(op.taken, op.taken_indices, "taken"))
            self.assign(op.target, elements, taken, lambda k, word: f"moved[{k * words + word}]")

    def picks(
        self, choices: ArrayAttr[ArrayAttr[IntAttr]], indices: ArrayAttr[ExprAttr], hint: str
    ) -> Iterator[tuple[list[int], str]]:
        """The choices of every pick and the C name of its index; an index that several share is computed once."""
        e, rows = self.emitter, [[c.data for c in row] for row in choices]
        several = dict.fromkeys(i.expr for row, i in zip(rows, indices, strict=True) if len(row) > 1)
        if several:
            e.line(f"const int {hint}[] = {{{', '.join(map(e.c, several))}}};")
        named = {index: f"{hint}[{i}]" for i, index in enumerate(several)}
        for row, index in zip(rows, indices, strict=True):
            yield row, named.get(index.expr, "")

    def assign(
        self,
        target: SSAValue,
        elements: int,
        picks: Sequence[tuple[list[int], str]],
        value: Callable[[int, int], str],
    ) -> None:
        """Assigns every target register from its pick; ``value(choice, word)`` gives a word of a group."""
        e = self.emitter
        storage, name = e.storages[target], e.names[target]
        groups = storage.per_word // elements if storage.packed else 1
        if groups <= 1:
            words = _words(storage, elements)
            for i, pick in enumerate(picks):
                for word in range(words):
                    text = _chosen(pick, lambda c, word=word: value(c, word))
                    e.line(f"{name}[{i * words + word}] = {text};")
            return
        width = elements * storage.dtype.bits
        for first in range(0, len(picks), groups):
            parts = [_chosen(pick, lambda c: value(c, 0)) for pick in picks[first : first + groups]]
            shifted = [f"({part}) << {i * width}" if i else part for i, part in enumerate(parts)]
            e.line(f"{name}[{first // groups}] = {' | '.join(shifted)};")

    # -- matrices -------------------------------------------------------------------------------------------------
    def matrices(self, op: a.StoreMatrix | a.LoadMatrix) -> None:
        """Emits one ldmatrix or stmatrix."""
        e, first, count = self.emitter, op.first.data // 2, op.matrices.data
        name = e.names[op.buffer]
        words = ", ".join([f"{name}[{first + i}]" for i in range(count)])
        way, suffix = "ld" if isinstance(op, a.LoadMatrix) else "st", "_trans" if op.trans.data else ""
        at = self.address(op.shared, op.base.expr + op.offset.expr)
        e.line(f"{way}matrix_x{count}{suffix}({at}, {words});")

    def mma(self, op: a.Mma) -> None:
        """Emits one mma.sync."""
        names, left, right = self.emitter.names, op.a_register.data // 2, op.b_register.data // 2
        sums = [f"{names[op.accumulator]}[{op.first.data + i}]" for i in range(4)]
        words = [f"{names[op.a]}[{left + i}]" for i in range(4)] + [f"{names[op.b]}[{right + i}]" for i in range(2)]
        self.emitter.line(f"mma_{op.dtype.name}({', '.join([*sums, *words])});")

    def address(self, shared: SSAValue, offset: Expr) -> str:
        """The address of a byte in the shared state space."""
        e = self.emitter
        if shared in self.addresses.offsets:
            return self.addresses.address(shared, offset)
        return f"(unsigned)__cvta_generic_to_shared({e.names[shared]}) + {e.c(offset)}"


def _words(storage: Storage, elements: int) -> int:
    """C values in one group."""
    return max(1, elements // storage.per_word)


def _bits(storage: Storage, name: str, first: int, elements: int, word: int) -> str:
    """A word of the group that begins at register ``first``; a group smaller than a word alone in the low bits."""
    at = f"{name}[{first // storage.per_word + word}]"
    if elements >= storage.per_word:
        return at
    width = elements * storage.dtype.bits
    shift = first % storage.per_word * storage.dtype.bits
    if shift + width == 32:
        return f"({at} >> {shift})"
    low = f"({at} >> {shift})" if shift else at
    return f"({low} & {(1 << width) - 1:#x}u)"


def _permuted(low: tuple[str, int], high: tuple[str, int]) -> str:
    """A word of two halves, each two bytes of a word from a byte on."""
    (word, first), (other, second) = low, high
    if word == other and (first, second) == (0, 2):
        return word
    return f"__byte_perm({word}, {other}, 0x{5 + second}{4 + second}{first + 1}{first})"


def _chosen(pick: tuple[list[int], str], value: Callable[[int], str]) -> str:
    """Selects one of the choices with a tree of selects on the bits of the index."""
    choices, index = pick

    def tree(numbers: Sequence[int], bit: int) -> str:
        if len(set(numbers)) == 1:
            return value(numbers[0])
        half = len(numbers) // 2
        test = f"{index} & {1 << bit}"
        return f"({test} ? {tree(numbers[half:], bit - 1)} : {tree(numbers[:half], bit - 1)})"

    assert len(choices) & (len(choices) - 1) == 0, "an index is a word of bits"
    return tree(choices, len(choices).bit_length() - 2)
