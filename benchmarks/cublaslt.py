"""The algorithm of cublasLt that is fastest for a product, of those that its heuristic offers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

_BF16, _F32, _COMPUTE_F32 = 14, 0, 68
_TRANSPOSE_A, _TRANSPOSE_B, _WORKSPACE_BYTES = 3, 4, 1
WORKSPACE = 64 << 20
OFFERED = 8
"""Algorithms that the heuristic is asked for."""


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt:
    """C = A B^T in bf16 with float32 sums, by any algorithm that the library offers for its shape."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")  # PyTorch brings the library
        with open("/proc/self/maps") as maps:
            self.library = ctypes.CDLL(next(line.split()[-1] for line in maps if "libcublasLt.so" in line))
        self.handle = self._made("cublasLtCreate")
        self.workspace = torch.empty(WORKSPACE, dtype=torch.int8, device="cuda")

    def launches(self, a: Any, b: Any, c: Any) -> list[Callable[[], None]]:
        """One launch for each algorithm; ``a`` of (M, K), ``b`` of (N, K) and ``c`` of (M, N), all contiguous.

        The library has columns contiguous: C^T = B A^T, where B lies as its transpose.
        """
        (m, k), n = a.shape, b.shape[0]
        product = self._made("cublasLtMatmulDescCreate", _COMPUTE_F32, _F32)
        for name, transposed in ((_TRANSPOSE_A, 1), (_TRANSPOSE_B, 0)):
            self._set("cublasLtMatmulDescSetAttribute", product, name, ctypes.c_int32(transposed))
        left, right, result = (
            self._made(
                "cublasLtMatrixLayoutCreate", _BF16, *map(ctypes.c_uint64, (rows, columns)), ctypes.c_int64(rows)
            )
            for rows, columns in ((k, n), (k, m), (n, m))
        )
        wanted = self._made("cublasLtMatmulPreferenceCreate")
        self._set("cublasLtMatmulPreferenceSetAttribute", wanted, _WORKSPACE_BYTES, ctypes.c_size_t(WORKSPACE))
        found, count = (_Heuristic * OFFERED)(), ctypes.c_int()
        layouts = left, right, result, result
        self._call("cublasLtMatmulAlgoGetHeuristic", self.handle, product, *layouts, wanted, OFFERED, found,
                   ctypes.byref(count))  # fmt: skip
        return [partial(self._multiply, product, layouts, each, a, b, c) for each in found[: count.value]]

    def _multiply(self, product: Any, layouts: tuple[Any, ...], found: _Heuristic, a: Any, b: Any, c: Any) -> None:
        left, right, source, result = layouts
        at = [ctypes.c_void_p(x.data_ptr()) for x in (b, a, c)]
        one, zero = (ctypes.byref(ctypes.c_float(x)) for x in (1.0, 0.0))
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        workspace = ctypes.c_void_p(self.workspace.data_ptr())
        self._call("cublasLtMatmul", self.handle, product, one, at[0], left, at[1], right, zero, at[2], source, at[2],
                   result, ctypes.byref(found.algorithm), workspace, ctypes.c_size_t(WORKSPACE), stream)  # fmt: skip

    def _made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(function, ctypes.byref(made), *arguments)
        return made

    def _set(self, function: str, of: ctypes.c_void_p, name: int, value: Any) -> None:
        self._call(function, of, name, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            raise RuntimeError(f"{function}: status {status}")
