"""How a register buffer of each dtype is held and moved in C.

Elements narrower than 32 bits are packed into words, ``32 / bits`` to a word, so that a row of 16-bit elements costs
half the registers and moves in 16-byte vectors without unpacking.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtypes import DType, DTypeKind
from tilewright.lang.enums import AtomicFn

_VECTORS = {4: ("unsigned", ""), 8: ("uint2", "xy"), 16: ("uint4", "xyzw")}


@dataclass(frozen=True)
class Storage:
    """``count`` elements of ``dtype`` per thread."""

    dtype: DType
    count: int

    @property
    def per_word(self) -> int:
        """Elements in one 32-bit word; 1 for wider ones."""
        return max(1, 32 // self.dtype.bits)

    @property
    def packed(self) -> bool:
        return self.per_word > 1

    @property
    def packs_pairs(self) -> bool:
        """Two floats are converted and packed by one instruction."""
        return self.dtype.is_float and self.dtype.bits == 16

    @property
    def memory(self) -> str:
        """C type of one element in memory."""
        match self.dtype.kind, self.dtype.bits:
            case DTypeKind.FLOAT, 32:
                return "float"
            case _, 16:
                return "unsigned short"
            case DTypeKind.INT, 32:
                return self.compute
            case DTypeKind.INT, 64:
                return "long long"
            case _:
                return "unsigned char"

    @property
    def vector(self) -> str:
        """C type of all elements, as one access moves them."""
        return self.memory if self.count == 1 else _VECTORS[self.count * self.dtype.bytes][0]

    def element(self, name: str, index: int) -> str:
        """One element of a vector of a 16-bit dtype held in ``name``."""
        lanes = _VECTORS[self.count * self.dtype.bytes][1]
        word = f"{name}.{lanes[index // 2]}" if lanes else name
        return f"({self.memory})({word} >> {16 * (index % 2)})"

    @property
    def compute(self) -> str:
        """C type in which one element is computed with."""
        if self.dtype.is_float:
            return "float"
        if self.dtype.is_bool:
            return "bool"
        if self.dtype.bits == 32 and not self.dtype.signed:
            return "unsigned"
        return "long long" if self.dtype.bits == 64 else "int"

    def number(self, value: str) -> str:
        """An integer in the memory type as a C integer that it is the value of."""
        sign = {8: "signed char", 16: "short"}.get(self.dtype.bits) if self.dtype.signed else None
        return f"({sign}){value}" if sign else value

    @property
    def narrower(self) -> bool:
        """True if the compute type holds values that the dtype doesn't: results are rounded by the prelude's
        ``<dtype>_round``."""
        return self.dtype.name == "tf32" or (self.packed and not self.dtype.is_bool)

    @property
    def print_format(self) -> str:
        """``printf`` conversion."""
        if self.dtype.is_float:
            return "%g"
        return "%lld" if self.dtype.bits == 64 else "%d" if self.dtype.signed else "%u"

    def printable(self, value: str) -> str:
        """``value`` as ``printf`` takes it."""
        return f"(double){value}" if self.dtype.is_float else value

    def declare(self, name: str, *, zero: bool = False) -> str:
        """Declaration of the buffer, of zeros or of nothing in particular."""
        begin = " = {}" if zero else ""
        if self.packed:
            return f"unsigned {name}[{-(-self.count // self.per_word)}]{begin};"
        return f"{self.compute} {name}[{self.count}]{begin};"

    def get(self, name: str, index: str) -> str:
        """Element ``index`` in the compute type."""
        if not self.packed:
            return f"{name}[{index}]"
        word, part = f"{name}[({index}) / {self.per_word}]", f"({index}) % {self.per_word}"
        match self.dtype.name:
            case "bf16" | "f16" | "e4m3" | "e5m2":
                return f"{self.dtype.name}_get({word}, {part})"
            case "bool":
                return f"((({word} >> (8 * ({part}))) & 0xffu) != 0u)"
            case "i8" | "i16":
                kind = "signed char" if self.dtype.bits == 8 else "short"
                return f"(int)({kind})({word} >> ({self.dtype.bits} * ({part})))"
            case "u8" | "u16":
                return f"(int)(({word} >> ({self.dtype.bits} * ({part}))) & {(1 << self.dtype.bits) - 1:#x}u)"
            case name_:
                raise TypeError(f"no arithmetic on {name_} registers")

    def bits(self, name: str, index: str) -> str:
        """Element ``index`` in the memory type."""
        if not self.packed:
            return f"{name}[{index}]"
        shift = f"({self.dtype.bits} * (({index}) % {self.per_word}))"
        return f"({self.memory})({name}[({index}) / {self.per_word}] >> {shift})"

    def put(self, name: str, index: str, value: str) -> str:
        """Statement that sets element ``index`` from a value of the compute type."""
        if not self.packed:
            return f"{name}[{index}] = {f'{self.dtype.name}_round({value})' if self.narrower else value};"
        if self.dtype.is_float:
            return self.put_bits(name, index, f"{self.dtype.name}_bits({value})")
        return self.put_bits(name, index, f"({self.memory})({value})")

    def put_bits(self, name: str, index: str, value: str) -> str:
        """Statement that sets element ``index`` from a value of the memory type."""
        if not self.packed:
            return f"{name}[{index}] = {value};"
        return f"put{self.dtype.bits}({name}[({index}) / {self.per_word}], ({index}) % {self.per_word}, {value});"

    def put_packed(self, name: str, first: str, values: str, count: int) -> list[str]:
        """Statements that set elements ``first .. first+count-1`` from the array ``values``."""
        if self.packs_pairs:
            return [
                f"{name}[{first} / 2 + {k // 2}] = {self.dtype.name}_pack({values}[{k}], {values}[{k + 1}]);"
                for k in range(0, count, 2)
            ]
        return [self.put(name, f"({first} + {k})", f"{values}[{k}]") for k in range(count)]

    def clear(self, name: str, first: str, count: int) -> str:
        """Statement that sets ``count`` elements from ``first`` to zero."""
        if self.packed and count % self.per_word == 0:
            words = count // self.per_word
            return " ".join(f"{name}[({first}) / {self.per_word} + {k}] = 0u;" for k in range(words))
        zero = f"({self.memory})0"
        return " ".join(self.put_bits(name, f"({first} + {k})", zero) for k in range(count))

    def vector_load(self, name: str, first: str, count: int, pointer: str) -> list[str]:
        """Statements that move ``count`` consecutive elements from memory with one access."""
        size = count * self.dtype.bytes
        if size < 4:
            return self._narrow(name, first, count, pointer, load=True)
        vector = _VECTORS[size][0]
        return self.vector_read(name, first, count, f"*reinterpret_cast<const {vector}*>({pointer})")

    def vector_read(self, name: str, first: str, count: int, value: str) -> list[str]:
        """Statements that put ``count`` consecutive elements into registers, which ``value`` holds as one vector."""
        vector, lanes = _VECTORS[count * self.dtype.bytes]
        words = self._words(name, first, count * self.dtype.bytes, lanes, load=True)
        return [f"const {vector} word = {value};", *(f"{w};" for w in words)]

    def vector_store(self, name: str, first: str, count: int, pointer: str) -> list[str]:
        """Statements that move ``count`` consecutive elements to memory with one access."""
        size = count * self.dtype.bytes
        if size < 4:
            return self._narrow(name, first, count, pointer, load=False)
        vector, lanes = _VECTORS[size]
        words = ", ".join(self._words(name, first, size, lanes, load=False))
        value = f"make_{vector}({words})" if lanes else words
        return [f"*reinterpret_cast<{vector}*>({pointer}) = {value};"]

    def _narrow(self, name: str, first: str, count: int, pointer: str, *, load: bool) -> list[str]:
        lines: list[str] = []
        for k in range(count):
            index = f"({first} + {k})"
            lines.append(
                self.put_bits(name, index, f"{pointer}[{k}]") if load else f"{pointer}[{k}] = {self.bits(name, index)};"
            )
        return lines

    def _words(self, name: str, first: str, size: int, lanes: str, *, load: bool) -> list[str]:
        """Per 32-bit word (64-bit for i64): an assignment from ``v``, or the word's expression as unsigned."""
        words: list[str] = []
        if self.dtype.bits == 64:
            for k in range(size // 8):
                lo, hi = (f"word.{lanes[2 * k]}", f"word.{lanes[2 * k + 1]}") if load else ("", "")
                place = f"{name}[{first} + {k}]"
                if load:
                    words.append(f"{place} = (long long)(((unsigned long long){hi} << 32) | {lo})")
                else:
                    words += [f"(unsigned){place}", f"(unsigned)((unsigned long long){place} >> 32)"]
            return words
        for k in range(size // 4):
            source = f"word.{lanes[k]}" if lanes else "word"
            if self.packed:
                place = f"{name}[({first}) / {self.per_word} + {k}]"
                words.append(f"{place} = {source}" if load else place)
            elif self.dtype.is_float:
                place = f"{name}[{first} + {k}]"
                words.append(f"{place} = __uint_as_float({source})" if load else f"__float_as_uint({place})")
            else:
                place = f"{name}[{first} + {k}]"
                words.append(f"{place} = ({self.compute}){source}" if load else f"(unsigned){place}")
        return words

    def vector_add(self, pointer: str, name: str, first: str, width: int) -> str:
        """Statement that adds ``width`` elements from ``first`` to memory by one instruction of sm_90 (PTX ISA 9.1,
        red); each is added atomically, relaxed at gpu scope. Empty where there is none."""
        match self.dtype.name:
            case "f32" if width in (2, 4):
                words, form, kind = width, f"v{width}.f32", "f"
            case "bf16" | "f16" if width in (2, 4, 8):
                words, kind = width // 2, "r"
                form = f"noftz.{f'v{words}.' if words > 1 else ''}{self.dtype.name}x2"
            case _:
                return ""
        places = ", ".join(f"%{k + 1}" for k in range(words))
        values = ", ".join(f'"{kind}"({name}[({first}) / {self.per_word} + {k}])' for k in range(words))
        operand = f"{{{places}}}" if words > 1 else places
        return f'asm volatile("red.global.add.{form} [%0], {operand};" :: "l"({pointer}), {values} : "memory");'

    def atomic(self, fn: AtomicFn, pointer: str, name: str, index: str) -> str:
        """Expression that reduces element ``index`` into memory atomically, relaxed at gpu scope."""
        called = "atomicExch" if fn is AtomicFn.SET else f"atomic{fn.capitalize()}"
        match self.dtype.name:
            case "f32" if fn is AtomicFn.MIN or fn is AtomicFn.MAX:
                return f"red_{fn}({pointer}, {self.get(name, index)})"
            case "f32" | "i32" | "u32":
                return f"{called}({pointer}, {self.get(name, index)})"
            case "i64" if fn is AtomicFn.MIN or fn is AtomicFn.MAX:
                return f"{called}({pointer}, {self.get(name, index)})"
            case "i64":
                return f"{called}((unsigned long long*){pointer}, (unsigned long long){self.get(name, index)})"
            case "bf16" | "f16":
                op = f'"red.global.add.noftz.{self.dtype.name} [%0], %1;"'
                return f'asm volatile({op} :: "l"({pointer}), "h"({self.bits(name, index)}))'
            case name_:
                raise TypeError(f"no atomic {fn} of {name_}")
