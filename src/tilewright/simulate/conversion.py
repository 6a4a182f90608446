"""Moves between registers, between lanes, and of 8x8 matrices to and from shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.simulate.agent import Agent
from tilewright.simulate.registers import RegisterBuffer
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array, Symbols
from tilewright.simulate.values import to_memory, to_registers
from tilewright.transport import asynchronous as a
from tilewright.transport.dialect import Exchange, RegisterSelect, TransportOp

_LANES = 32


def run_select(op: RegisterSelect, source: RegisterBuffer, target: RegisterBuffer, symbols: Symbols) -> None:
    """Every group of the target from its place in the source."""
    places = _places(op, op.choices, op.indices, symbols, len(source.data))
    _move(op, source, target, _spread(places, op.elements.data), np.arange(len(source.data)))


def run_exchange(op: Exchange, source: RegisterBuffer, target: RegisterBuffer, symbols: Symbols) -> None:
    """All rounds at once: each lane receives what its partner sends."""
    threads, elements = len(source.data), op.elements.data
    if threads % _LANES:
        refuse(op, "SIM019", found=f"a shuffle by {threads} threads", required="whole warps")
    sent = _places(op, op.sends, op.send_indices, symbols, threads)
    chosen = _places(op, op.taken, op.taken_indices, symbols, threads)
    lanes = np.stack([_column(symbols.of(lane.expr, 0), threads) for lane in op.lanes], axis=1)
    if ((lanes < 0) | (lanes >= _LANES)).any():
        refuse(op, "SIM019", found=f"lane {int(lanes.max())}", required=f"0 <= lane < {_LANES}")
    giver = np.arange(threads)[:, None] // _LANES * _LANES + lanes
    received = sent[giver, np.arange(len(op.lanes))]
    rows = np.take_along_axis(giver, chosen, axis=1).repeat(elements, axis=1)
    _move(op, source, target, _spread(np.take_along_axis(received, chosen, axis=1), elements), rows)


def _places(op: TransportOp, choices: Any, indices: Any, symbols: Symbols, threads: int) -> Array:
    """For every thread the index of the choice that each pick selects."""
    columns: list[Array] = []
    for row, index in zip(choices, indices, strict=True):
        numbers = np.array([c.data for c in row])
        at = _column(symbols.of(index.expr, 0), threads)
        if ((at < 0) | (at >= len(numbers))).any():
            refuse(op, "SIM012", found=f"choice {int(at.max())}", required=f"0 <= index < {len(numbers)}")
        columns.append(numbers[at])
    return np.stack(columns, axis=1)


def _column(value: Any, threads: int) -> Array:
    return np.broadcast_to(np.asarray(value, np.int64).ravel(), threads)


def _spread(first: Array, elements: int) -> Array:
    """All registers of the groups that begin at ``first``."""
    return (first[:, :, None] + np.arange(elements)).reshape(len(first), -1)


def _move(op: TransportOp, source: RegisterBuffer, target: RegisterBuffer, registers: Array, rows: Array) -> None:
    """``target[t, i] = source[rows[t(, i)], registers[t, i]]``."""
    rows = np.broadcast_to(rows if rows.ndim == 2 else rows[:, None], registers.shape)
    source.touch(op)
    target.touch(op)
    read = np.zeros(source.data.shape, np.bool_)
    read[rows, registers] = True
    source.require(op, read)
    target.data[...] = source.data[rows, registers]
    target.wrote()


def join_warps(agent: Agent) -> None:
    """Join the clocks of each warp's threads, as a warp-synchronous instruction does."""
    clocks = agent.cta.clocks
    for first in range(0, len(agent.rows), _LANES):
        warp = agent.rows[first : first + _LANES]
        clocks.acquire(warp, clocks.release(warp, warp))


def multiply(op: a.Mma, agent: Agent) -> None:
    """mma.sync.m16n8k16 of every warp (PTX ISA 9.1, 9.7.14.5.8): products of 16-bit floats are exact in f32."""
    total, buffers = agent.buffers[op.accumulator], (agent.buffers[op.a], agent.buffers[op.b])
    held = np.arange(op.first.data, op.first.data + 4)
    if len(agent.rows) % _LANES:
        refuse(op, "SIM019", found=f"mma by {len(agent.rows)} threads", required="whole warps")
    lane = np.arange(_LANES)[:, None]
    matrices: list[Array] = []
    for buffer, first, count, rows in zip(
        buffers, (op.a_register.data, op.b_register.data), (8, 4), (16, 8), strict=True
    ):
        i, registers = np.arange(count), np.arange(first, first + count)
        buffer.touch(op, registers)
        buffer.require(op, index=registers)
        matrix = np.zeros((len(agent.rows) // _LANES, rows, 16), np.float32)
        # pairs of k; A then has the row 8 below, and both the k 8 further
        row, k = lane // 4 + 8 * (i // 2 % 2 if count == 8 else 0), lane % 4 * 2 + i % 2 + 8 * (i // (count // 2))
        matrix[:, row, k] = buffer.data[:, registers].astype(np.float32).reshape(-1, _LANES, count)
        matrices.append(matrix)
    total.touch(op, held)
    total.require(op, index=held)
    i = np.arange(4)
    product = np.matmul(matrices[0], matrices[1].transpose(0, 2, 1))
    added = product[:, lane // 4 + i // 2 * 8, lane % 4 * 2 + i % 2].reshape(-1, 4)
    total.data[:, held] = total.data[:, held] + added
    total.wrote(registers=held)
    join_warps(agent)


def access_matrices(op: a.StoreMatrix | a.LoadMatrix, agent: Agent) -> None:
    """stmatrix or ldmatrix of every warp (PTX ISA 9.1, 9.7.14.5.15)."""
    buffer, shared = agent.buffers[op.buffer], agent.cta.shared[op.shared]
    first, base, count = op.first.data, agent.symbols.uniform(op.base.expr), op.matrices.data
    registers = np.arange(first, first + 2 * count)
    buffer.touch(op, registers)
    threads = len(agent.rows)
    offset = _column(agent.symbols.of(op.offset.expr, 0), threads).reshape(-1, _LANES)[:, : 8 * count]
    outside = (offset < 0) | (offset > op.bytes.data - 16) | ((base + offset) % 16 != 0)
    if outside.any():
        found = f"offset {int(offset.ravel()[outside.ravel().argmax()])} from byte {base}"
        refuse(op, "SIM019", found=found, required=f"16-byte rows inside of {op.bytes.data} bytes")
    places = (base + offset)[:, :, None] + np.arange(8) * 2  # [warp, 8 * matrix + row, column]
    givers = np.repeat(agent.rows.reshape(-1, _LANES)[:, : 8 * count].ravel(), 8)
    shared.inside(op, places.ravel(), 2)
    memory = agent.cta.arena.bytes.view(to_memory(buffer.data[:1], buffer.dtype).dtype)
    where = (places + shared.offset) // 2
    if isinstance(op, a.StoreMatrix):
        buffer.require(op, index=registers)
        held = to_memory(buffer.data[:, registers], buffer.dtype).reshape(-1, 8, 4, count, 2)
        shared.written_by(op, places.ravel(), givers, 2)
        # held[warp, row, c, matrix, e]: columns 2c + e of the row, transposed: rows 2c + e of the column
        order = (0, 3, 2, 4, 1) if op.trans.data else (0, 3, 1, 2, 4)
        memory[where] = held.transpose(order).reshape(where.shape)
        return
    shared.read_by(op, places.ravel(), givers)
    read = memory[where].reshape(-1, count, 8, 8)
    if op.trans.data:
        read = read.transpose(0, 1, 3, 2)
    values = read.reshape(-1, count, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(threads, 2 * count)
    buffer.data[:, registers] = to_registers(values, buffer.dtype)
    buffer.wrote(registers=registers)
