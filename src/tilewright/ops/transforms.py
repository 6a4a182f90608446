"""Gradients for the transforms of ``torch.func``, which know none that were registered with the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

from tilewright.diag import fail
from tilewright.ops.pytorch import torch


def transformable(
    name: str,
    compute: Callable[..., Any],
    save: Callable[[Any, tuple[Any, ...], Any], None],
    gradient: Callable[..., Any],
) -> Any:
    """A ``torch.autograd.Function`` that runs ``compute`` on plain tensors under ``grad``, ``vjp``, ``jacrev`` and
    ``vmap``, the last by a call for each element of the batch. Forward mode is refused (JIT011)."""

    class Transformed(torch.autograd.Function):
        forward = staticmethod(compute)
        setup_context = staticmethod(save)
        backward = staticmethod(gradient)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> NoReturn:
            fail(
                "JIT011",
                found=f"a tangent of forward mode through {name}",
                required="gradients by reverse mode",
                help="torch.func.vjp for jvp, jacrev for jacfwd, or backward()",
            )

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *values: Any) -> Any:
            if info.batch_size == 0:
                fail("JIT010", found="a batch of no elements", required="torch.vmap over at least one")
            calls: list[Any] = [
                Transformed.apply(*(v if d is None else v.select(d, i) for v, d in zip(values, in_dims, strict=True)))
                for i in range(info.batch_size)
            ]
            if not isinstance(calls[0], tuple):
                return torch.stack(calls), 0
            stacked = tuple(torch.stack(each) for each in zip(*calls, strict=True))
            return stacked, (0,) * len(stacked)

    return Transformed


def without_wrappers(function: Any) -> Callable[..., Any]:
    """``function.apply`` for plain tensors, among which it need not look for functorch's dead wrappers."""
    return cast("Any", super(torch.autograd.Function, function)).apply
