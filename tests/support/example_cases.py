"""Each example kernel with inputs and a NumPy reference; used wherever an opinion on its result is needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from support.tile_evaluator import NUMPY
from tilewright.base.dtypes import DTYPES, DType
from tilewright.lang.params import KernelFunction

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))  # one imports another
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Example:
    """``inputs`` makes the input arrays for extents (f64, or ints); ``reference`` gives the outputs in f64.

    ``dtypes`` are the dtypes a tensor must have where it does not follow the case's float dtype. ``shapes`` are extents
    to try, by dimension name.
    """

    module: str
    name: str
    inputs: Callable[[np.random.Generator, Mapping[str, int]], Arrays]
    reference: Callable[..., Arrays]
    shapes: tuple[Mapping[str, int], ...]
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    scalars: Mapping[str, float | int] = field(default_factory=dict)
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> KernelFunction:
        return getattr(load(self.module), self.name)

    def tensor_dtypes(self, dtype: DType) -> dict[str, DType]:
        return {t.name: self.dtypes.get(t.name, dtype) for t in self.kernel.tensors}

    def arrays(self, extents: Mapping[str, int], dtype: DType, seed: int = 0) -> tuple[Arrays, Arrays]:
        """(all arguments, outputs poisoned; the expected outputs in f64 or ints of the rounded inputs)."""
        given = self.inputs(np.random.default_rng(seed), extents)
        dtypes = self.tensor_dtypes(dtype)
        arrays = {n: np.asarray(a).astype(NUMPY[dtypes[n].name]) for n, a in given.items()}
        wide = {n: a.astype(np.float64) if dtypes[n].is_float else a for n, a in arrays.items()}
        expected = self.reference(**wide, **self.scalars, **{k: v for k, v in self.keywords.items() if k in _SEEN})
        for name, value in expected.items():
            target = NUMPY[dtypes[name].name]
            arrays[name] = np.full(value.shape, np.nan if dtypes[name].is_float else -(2**30), target)
        return arrays, expected


_SEEN = ("causal", "group")  # keywords that the references take


def load(module: str) -> ModuleType:
    """The example file as a module, loaded once."""
    name = f"tilewright_example_{module}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{module}.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        sys.modules[name] = made
    return sys.modules[name]


def _normal(**shapes: tuple[str, ...]) -> Callable[[np.random.Generator, Mapping[str, int]], Arrays]:
    def make(rng: np.random.Generator, e: Mapping[str, int]) -> Arrays:
        return {n: rng.normal(size=[e[d] if isinstance(d, str) else d for d in dims]) for n, dims in shapes.items()}

    return make


def _softmax(x: np.ndarray) -> Arrays:
    e = np.exp(x - x.max(1, keepdims=True))
    return {"y": e / e.sum(1, keepdims=True)}


def _rms_norm(x: np.ndarray, w: np.ndarray, eps: float) -> Arrays:
    return {"y": x / np.sqrt((x * x).mean(1, keepdims=True) + eps) * w}


def _layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray, eps: float) -> Arrays:
    centred = x - x.mean(1, keepdims=True)
    return {"y": centred / np.sqrt((centred**2).mean(1, keepdims=True) + eps) * w + b}


def _residual_rms_norm(x: np.ndarray, residual: np.ndarray, w: np.ndarray, eps: float) -> Arrays:
    total = x + residual
    return {"total": total, **_rms_norm(total, w, eps)}


def _logits(rng: np.random.Generator, e: Mapping[str, int]) -> Arrays:
    return {"x": 4 * rng.normal(size=(e["M"], e["N"])), "target": rng.integers(0, e["N"], e["M"])}


def _cross_entropy(x: np.ndarray, target: np.ndarray) -> Arrays:
    top = x.max(1)
    total = np.exp(x - top[:, None]).sum(1)
    return {"loss": top + np.log(total) - x[np.arange(len(x)), target]}


def _rotary(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> Arrays:
    turn = cos[:, None] + 1j * sin[:, None]
    y = (x[:, :, 0] + 1j * x[:, :, 1]) * turn
    return {"y": np.stack([y.real, y.imag], 2)}


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool, group: int) -> Arrays:
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    x = np.einsum("bhsd,bhtd->bhst", q, k) * scale
    if causal:
        x = np.where(np.tri(*x.shape[2:], dtype=bool), x, -np.inf)
    e = np.exp(x - x.max(3, keepdims=True))
    return {"o": np.einsum("bhst,bhtd->bhsd", e / e.sum(3, keepdims=True), v)}


def _ties(rng: np.random.Generator, e: Mapping[str, int]) -> Arrays:
    x = rng.integers(-3, 3, (e["M"], e["N"])).astype(float)
    x[0, e["N"] // 2 :] = np.nan
    return {"x": x}


_2D: tuple[Mapping[str, int], ...] = tuple({"M": m, "N": n} for m, n in [(1, 1), (2, 7), (33, 31), (17, 127), (5, 200)])
_NEGATIVE = lambda rng, e: {"x": -1 - np.abs(rng.normal(size=(e["M"], e["N"])))}  # noqa: E731 - max of negatives
_4D = tuple(dict(zip("ABCD", s, strict=True)) for s in [(1, 1, 1, 1), (2, 3, 5, 7), (1, 33, 2, 17)])
_i32 = DTYPES["i32"]

EXAMPLES_BY_NAME: dict[str, Example] = {
    e.name: e
    for e in (
        Example(
            "add", "add", _normal(x=("M",), y=("M",)), lambda x, y: {"z": x + y}, ({"M": 1}, {"M": 31}, {"M": 1000})
        ),
        Example(
            "axpy",
            "axpy",
            _normal(x=("N",), y=("M", "N")),
            lambda x, y, alpha: {"z": alpha * x + y},
            _2D,
            scalars={"alpha": 0.1},
        ),
        Example("softmax", "softmax", _normal(x=("M", "N")), _softmax, _2D),
        Example("softmax", "softmax_streamed", _normal(x=("M", "N")), _softmax, _2D),
        Example("norms", "rms_norm", _normal(x=("M", "N"), w=("N",)), _rms_norm, _2D, scalars={"eps": 1e-6}),
        Example(
            "norms", "layer_norm", _normal(x=("M", "N"), w=("N",), b=("N",)), _layer_norm, _2D, scalars={"eps": 1e-5}
        ),
        Example(
            "norms",
            "residual_rms_norm",
            _normal(x=("M", "N"), residual=("M", "N"), w=("N",)),
            _residual_rms_norm,
            _2D,
            scalars={"eps": 1e-6},
        ),
        Example(
            "swiglu",
            "swiglu",
            _normal(gate=("M", "N"), up=("M", "N")),
            lambda gate, up: {"y": gate / (1 + np.exp(-gate)) * up},
            _2D,
        ),
        Example("reductions", "row_sum", _normal(x=("M", "N")), lambda x: {"y": x.sum(1)}, _2D),
        Example("reductions", "row_max", _NEGATIVE, lambda x: {"y": x.max(1)}, _2D),
        Example("reductions", "column_sum", _normal(x=("M", "N")), lambda x: {"y": x.sum(0)}, _2D),
        Example("reductions", "column_max", _NEGATIVE, lambda x: {"y": x.max(0)}, _2D),
        Example("reductions", "argmax", _ties, lambda x: {"y": x.argmax(1)}, _2D, dtypes={"y": _i32}),
        Example("transpose", "transpose", _normal(x=("M", "N")), lambda x: {"y": x.T}, _2D),
        Example("transpose", "permute", _normal(x=("A", "B", "C", "D")), lambda x: {"y": x.transpose(0, 2, 1, 3)}, _4D),
        Example(
            "transpose",
            "permute_inner",
            _normal(x=("A", "B", "C", "D")),
            lambda x: {"y": x.transpose(3, 1, 0, 2)},
            _4D,
        ),
        Example("cross_entropy", "cross_entropy", _logits, _cross_entropy, _2D, dtypes={"target": _i32}),
        Example(
            "rotary",
            "rotary",
            _normal(x=("T", "H", 2, "D"), cos=("T", "D"), sin=("T", "D")),  # pyright: ignore[reportArgumentType]
            _rotary,
            ({"T": 1, "H": 1, "D": 1}, {"T": 19, "H": 3, "D": 33}),
        ),
        Example(
            "matmul",
            "matmul",
            _normal(a=("M", "K"), b=("N", "K")),
            lambda a, b: {"c": a @ b.T},
            ({"M": 1, "N": 1, "K": 1}, {"M": 33, "N": 17, "K": 100}),
        ),
        Example(
            "attention",
            "attention",
            _normal(q=("B", "H", "S", 128), k=("B", "G", "T", 128), v=("B", "G", "T", 128)),  # pyright: ignore[reportArgumentType]
            _attention,
            ({"B": 1, "H": 2, "G": 1, "S": 1, "T": 1}, {"B": 2, "H": 4, "G": 2, "S": 33, "T": 33}),
            scalars={"scale": 0.125},
            keywords={"causal": True, "group": 2},
        ),
    )
}
