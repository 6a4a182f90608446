"""Conversions inside a warp: register moves, and lane shuffles in the fewest rounds.

On the atoms a conversion is linear: destination (register r, lane l, warp w) is found at

    source lane     = L_r r + L_l l + L_w w          (over F2, + is xor)
    source register = R_r r + R_l l + R_w w

One shuffle round lets every lane send one register and receive one. Give lane l in round k the destination register
r = k + T l. Then it reads from lane M l + L_r k + L_w w with M = L_l + L_r T, and if M is invertible each lane is read
once, so it knows what to send. T is chosen such that M is the identity where possible: then the rounds with L_r k = 0
need no shuffle. That is optimal: lane l finds 2^dim(ker L_r) of its registers at home if (1 + L_l) l lies in the image
of L_r, and none otherwise, so some lane must receive as many registers as there are rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.layout import gf2_vectors
from tilewright.layout.f2 import F2Layout


@dataclass(frozen=True)
class WarpMap:
    """Where the destination's atom finds its elements; columns over (register, lane, warp) bits of the destination.

    ``lane`` and ``register`` are the packed source lane and source register (atom bits).
    """

    registers: int
    lanes: int
    warps: int
    lane: tuple[int, ...]
    register: tuple[int, ...]

    def part(self, columns: Sequence[int], axis: str) -> tuple[int, ...]:
        """The columns of one axis."""
        start = {"register": 0, "lane": self.registers, "warp": self.registers + self.lanes}[axis]
        return tuple(columns[start : start + getattr(self, f"{axis}s")])


def warp_map(source: F2Layout, target: F2Layout) -> WarpMap | None:
    """For every place of ``target`` a place of ``source`` in the same warp; None when data must cross warps.

    Where copies leave a choice, the same lane is preferred, then the same register.
    """
    r, n = source.in_axis_bits("register"), source.in_axis_bits("lane")
    columns = source.columns
    own, near = columns[:r], columns[: r + n]
    lanes: list[int] = []
    registers: list[int] = []
    for axis, bits in target.ins:
        for i, image in enumerate(target.axis_columns(axis)):
            found = _place(axis, i, image, own, near, columns[r + n :])
            if found is None:
                return None
            registers.append(found & ((1 << r) - 1))
            lanes.append(found >> r)
        assert axis != "lane" or bits == n, "warps have one size"
    return WarpMap(target.in_axis_bits("register"), n, target.in_axis_bits("warp"), tuple(lanes), tuple(registers))


def _place(
    axis: str, bit: int, image: int, own: Sequence[int], near: Sequence[int], warps: Sequence[int]
) -> int | None:
    """The source word (register, lane) of one destination bit, the warp staying where it is."""
    r = len(own)
    if axis == "register" and bit < r and own[bit] == image:
        return 1 << bit
    if axis == "warp":
        if bit >= len(warps):
            return None
        image ^= warps[bit]
    if axis == "lane":
        home = gf2_vectors.solve(own, [image ^ near[r + bit]])
        if not isinstance(home, int):
            return home[0] | 1 << (r + bit)
    for candidates in (own, near):
        found = gf2_vectors.solve(candidates, [image])
        if not isinstance(found, int):
            return found[0]
    return None


@dataclass(frozen=True)
class Rounds:
    """A shuffle schedule: ``spread`` is T (per lane bit a destination register word); ``lane`` the columns of M."""

    spread: tuple[int, ...]
    lane: tuple[int, ...]


def schedule(move: WarpMap) -> Rounds | None:
    """T and M; None when lanes that read the same lane want different registers (only with copies in the source)."""
    from_register = move.part(move.lane, "register")
    home = [1 << i for i in range(move.lanes)]
    stay = move.part(move.lane, "lane")
    spread = [0] * move.lanes
    chosen = list(stay)
    for i in range(move.lanes):
        found = gf2_vectors.solve(from_register, [home[i] ^ stay[i]])
        if not isinstance(found, int):
            spread[i], chosen[i] = found[0], home[i]
    # lanes that cannot read at home: make M invertible with the register directions that are left
    basis = gf2_vectors.Elimination()
    for i in sorted(range(move.lanes), key=lambda i: chosen[i] != home[i]):
        if basis.add(chosen[i]):
            continue
        for j, image in enumerate(from_register):
            if basis.reduce(chosen[i] ^ image)[0]:
                chosen[i] ^= image
                spread[i] ^= 1 << j
                basis.add(chosen[i])
                break
    rounds = Rounds(tuple(spread), tuple(chosen))
    return rounds if _consistent(move, rounds) else None


def _consistent(move: WarpMap, rounds: Rounds) -> bool:
    """Lanes that read from one lane in one round find their element in one register."""
    for clash in gf2_vectors.eliminate(rounds.lane).kernel:
        register = gf2_vectors.apply(move.part(move.register, "lane"), clash)
        register ^= gf2_vectors.apply(move.part(move.register, "register"), gf2_vectors.apply(rounds.spread, clash))
        if register:
            return False
    return True
