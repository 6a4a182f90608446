"""Byte permutations as written in C, run by their definition (PTX ISA, prmt: a selector digit picks a byte of b:a)."""

from __future__ import annotations

import random
import re

import pytest
from xdsl.ir import Operation, SSAValue

from support.transport import TID, R, kernel
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import TRUE, Const
from tilewright.codegen.cuda import emit_kernel
from tilewright.tile.attributes import TensorType
from tilewright.transport import dialect as t

_PERMUTED = r"__byte_perm\((\w+)\[(\d+)\], (\w+)\[(\d+)\], 0x(\w{2,4})\)"
LINE = re.compile(rf"^\s*(\w+)\[(\d+)\] = (?:{_PERMUTED}|(\w+)\[(\d+)\]);$")


def byte_perm(a: list[int], b: list[int], selector: str) -> list[int]:
    return [(a + b)[int(digit, 16)] for digit in reversed(selector.zfill(4))]


def emitted(table: list[int], sources: int, elements: int, dtype: str) -> str:
    kind = DTYPES[dtype]

    def build(x: SSAValue) -> list[Operation]:
        held, moved = t.Registers("held", kind, sources), t.Registers("turned", kind, len(table))
        picks = [((first,), Const(0)) for first in table[::elements]]
        select = t.RegisterSelect(held.buffer, moved.buffer, elements, picks)
        load = t.Load(x, held.buffer, [TID * sources + R], TRUE)
        return [held, moved, load, select, t.Store(x, moved.buffer, [TID * sources + R], TRUE)]

    return emit_kernel(kernel({"x": TensorType.of(kind, [Const(4096)], "x")}, build)).source


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("dtype", "size"), [("i8", 1), ("bf16", 2)])
def test_narrow_elements_find_their_places(seed: int, dtype: str, size: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([4, 8, 16, 64])
    table = [rng.randrange(count) for _ in range(count)]
    if seed % 4 == 0:  # a block turned over
        side = int(count**0.5)
        table = [i % side * side + i // side for i in range(side * side)] if side * side == count else table[::-1]
    elements = 1
    if size == 1 and seed % 3 == 0:
        elements, table = 2, [2 * (x // 2) + e for x in table[::2] for e in range(2)]
    names = [byte for register in range(count) for byte in range(size * register, size * register + size)]
    memory: dict[str, dict[int, list[int]]] = {"v_held": {i // 4: names[i : i + 4] for i in range(0, len(names), 4)}}
    for line in emitted(table, count, elements, dtype).splitlines():
        found = LINE.match(line)
        if found is None:
            continue
        target, i, a, j, b, k, selector, whole, n = found.groups()
        value = memory[whole][int(n)] if whole else byte_perm(memory[a][int(j)], memory[b][int(k)], selector)
        memory.setdefault(target, {})[int(i)] = value
    turned = [byte for word in range(-(-count * size // 4)) for byte in memory["v_turned"][word]]
    assert turned[: count * size] == [size * x + byte for x in table for byte in range(size)]


def test_a_block_of_bytes_takes_two_permutations_a_word() -> None:
    table = [i % 16 * 16 + i // 16 for i in range(256)]
    assert emitted(table, 256, 1, "i8").count("__byte_perm(") == 128
