"""PyTorch, for the operators. It ships no types that our checker reads: they end here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from tilewright.diag import fail
from tilewright.diag.missing import refuse_missing

try:
    import torch as _untyped  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    refuse_missing(error, "an operator of PyTorch")

torch = cast("Any", _untyped)
_Function = TypeVar("_Function", bound=Callable[..., Any])

Tensor: TypeAlias = Any
"""``torch.Tensor``."""


def constant(function: _Function) -> _Function:
    """``torch.compiler.assume_constant_result``: ``torch.compile`` runs the function when it traces a call.

    The mark alone. PyTorch's own imports its compiler to set it, which takes longer than all of a process's first call.
    """
    cast("Any", function)._dynamo_marked_constant = True
    return function


constant(fail)  # so that torch.compile shows what is refused


def is_plain(tensors: tuple[Any, ...]) -> bool:
    """Nothing but autograd would see an operator's call on these: no subclass, no mode, no transform, no tracing, no
    tangents, no view whose elements count negated, no tensor without elements (``meta``).

    Such a call may pass PyTorch's dispatcher by, which costs 3 us of it.
    """
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN or (tensor is not None and (tensor.is_neg() or tensor.is_meta)):
            return False
    return (
        _forward_ad._current_level < 0
        and _peek_interpreter_stack() is None
        and not _len_torch_dispatch_stack()
        and not _len_torch_function_stack()
        and _get_tracing_state() is None
    )


def is_watched() -> bool:
    """Whether a mode that guards of tensors do not cover is active: ``torch.compile``, a dispatch mode, or forward-mode
    tangents."""
    return (
        _is_compiling()
        or _forward_ad._current_level >= 0
        or _len_torch_dispatch_stack() > 0
        or _len_torch_function_stack() > 0
    )


def wants_gradient(tensors: tuple[Any, ...]) -> bool:
    """Autograd records, and one of them, of which some may be None, needs a gradient."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def on_one_device(name: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    """What an operator makes of fake tensors, which must be of one device (JIT010), beside some of ``meta``: a compiled
    graph is refused when it is made, not when it runs."""

    def checked(*values: Any) -> Any:
        devices = {str(v.device) for v in values if isinstance(v, torch.Tensor) and not v.is_meta}
        if len(devices) > 1:
            fail("JIT010", found=f"{name} of tensors on {', '.join(sorted(devices))}", required="one device")
        return fake(*values)

    return checked


def is_transformed() -> bool:
    """A transform of ``torch.func`` or forward-mode autograd is at work, outside of ``torch.compile``."""
    if torch.compiler.is_compiling():
        return False
    return _peek_interpreter_stack() is not None or _forward_ad._current_level >= 0


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A function's result or an argument as a tuple: of one element, or empty for None."""
    if isinstance(value, tuple | list):
        return tuple(cast("list[Any]", value))
    return () if value is None else (value,)


_is_compiling = torch.compiler.is_compiling
_forward_ad = torch.autograd.forward_ad
_peek_interpreter_stack = torch._C._functorch.peek_interpreter_stack
_len_torch_dispatch_stack = torch._C._len_torch_dispatch_stack
_len_torch_function_stack = torch._C._len_torch_function_stack
_get_tracing_state = torch._C._get_tracing_state
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None)))
