"""Functions of attention's scores, written for PyTorch: traced, and computed by a kernel on tiles."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import tilewright as tw
from tilewright.diag import fail
from tilewright.ops.pytorch import torch

_SHARED = (
    *("abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "maximum", "minimum"),
    *("round", "rsqrt", "sigmoid", "sin", "sqrt", "square", "tanh", "trunc", "where"),
)
_FUNCTIONS: dict[Any, Callable[..., Any]] = {getattr(torch, name): getattr(tw, name) for name in _SHARED} | {
    torch.clamp: lambda x, min=None, max=None: tw.clamp(x, min, max)
}
_OPERATORS = frozenset(
    (
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
        *(operator.neg, operator.abs),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
        *(operator.and_, operator.or_, operator.xor, operator.invert),
    )
)


class ScoreMod:
    """The graph of ``function(score, batch, head, query, key)``, called with what a kernel's body has for these. JIT010
    for a function that branches on them, reads tensors, or uses what kernels have not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        try:
            traced = torch.fx.symbolic_trace(function)
        except Exception as error:  # whatever the function raises of proxies
            _refuse(f"{_named(function)}: {error}")
        traced.graph.eliminate_dead_code()
        self._nodes = tuple(traced.graph.nodes)
        self._calls = {node: self._callee(node) for node in self._nodes if node.op.startswith("call")}
        inputs = sum(node.op == "placeholder" for node in self._nodes)
        if inputs != _ARGUMENTS or any(node.op == "get_attr" for node in self._nodes):
            _refuse(f"{_named(function)} of {inputs} arguments" if inputs != _ARGUMENTS else "a tensor that it reads")
        if not self._nodes[0].users:
            _refuse(f"{_named(function)}, whose result does not depend on the score")

    def _callee(self, node: Any) -> Callable[..., Any]:
        target = getattr(torch, node.target, None) if node.op == "call_method" else node.target
        found = target if target in _OPERATORS else _FUNCTIONS.get(target)
        if found is None or (node.kwargs and target is not torch.clamp):
            _refuse(f"{getattr(node.target, '__name__', node.target)} in {_named(self.function)}")
        return found

    def __call__(self, *given: Any) -> Any:
        """The new score."""
        values: dict[Any, Any] = {}
        inputs = iter(given)
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = next(inputs)
                continue
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "output":
                return args[0]
            values[node] = self._calls[node](*args, **kwargs)
        raise AssertionError("a traced function has an output")


_ARGUMENTS = 5


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _refuse(found: str) -> NoReturn:
    names = ", ".join(f"torch.{name}" for name in _SHARED)
    fail(
        "JIT010",
        found=found,
        required="a score_mod of (score, batch, head, query, key) of Python's operators without branches on these, and "
        f"of torch.clamp, {names}",
        help="numbers that the function reads are constants of its kernel; choose by torch.where",
    )
