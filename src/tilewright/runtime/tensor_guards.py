"""PyTorch's guards: one call tells whether the tensors of a launch are of a kind that was launched before.

``torch._C._dynamo.guards.TensorGuards`` is what compiled graphs of ``torch.compile`` ask at each call. It keeps no
tensor: it compares class, dispatch keys (with what the thread includes and excludes: modes, transforms, autocast,
tracing; the negative and the conjugate bit are keys, too), dtype, device, whether a gradient is wanted, shape and
strides. PyTorch is never imported here: who hands us one of its tensors has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

Check = Callable[..., bool]
"""Takes the tensors, one by one: whether each is as the one it was made for, and no two are the same object."""


def has_nested(values: Sequence[Any]) -> bool:
    """Whether a tensor is nested, which is to be asked first: its shape, which is none, ends the process in PyTorch's
    guard before keys are compared."""
    try:
        for value in values:
            if value is not None and value.is_nested:
                return True
    except AttributeError:  # no tensor of PyTorch, at which the guard ends, too
        pass
    return False


def guard(tensors: Sequence[Any]) -> tuple[Check, Callable[[Any], int]] | None:
    """What tells tensors like these, and what reads the address of one that it told; None for what are not plain
    tensors of PyTorch, for a tensor that comes twice, and for a release that has no such guards."""
    torch: Any = sys.modules.get("torch")
    plain = (getattr(torch, "Tensor", None), getattr(getattr(torch, "nn", None), "Parameter", None))
    if not tensors or any(type(t) not in plain for t in tensors):
        return None
    try:
        made = torch._C._dynamo.guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(t.shape) for t in tensors],
            dynamic_dims_strides=[list(t.stride()) for t in tensors],
        )
        return (made.check, torch.Tensor.data_ptr) if made.check(*tensors) is True else None
    except Exception:  # of a private interface of another release
        return None
