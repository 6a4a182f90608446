"""PyTorch, for the operators. It ships no types that our checker reads: they end here."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from tilewright.diag.missing import refuse_missing

try:
    import torch as _untyped  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    refuse_missing(error, "an operator of PyTorch")

torch = cast("Any", _untyped)

Tensor: TypeAlias = Any
"""``torch.Tensor``."""


def is_plain(tensors: tuple[Any, ...]) -> bool:
    """Nothing but autograd would see an operator's call on these: no subclass, no mode, no transform, no tracing.

    Such a call may pass PyTorch's dispatcher by, which costs 3 us of it.
    """
    if torch.compiler.is_compiling():
        return False
    return (
        all(type(t) in _PLAIN for t in tensors)
        and _functions.peek_interpreter_stack() is None
        and not _c._len_torch_dispatch_stack()
        and not _c._len_torch_function_stack()
        and _c._get_tracing_state() is None
    )


def is_transformed() -> bool:
    """A transform of ``torch.func`` is at work, outside of ``torch.compile``."""
    return not torch.compiler.is_compiling() and _functions.peek_interpreter_stack() is not None


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What a function returned, or an argument gave, as several: one, none for None."""
    if isinstance(value, tuple):
        return cast("tuple[Any, ...]", value)
    return () if value is None else (value,)


_c = torch._C
_functions = torch._C._functorch
_PLAIN = (torch.Tensor, torch.nn.Parameter)
