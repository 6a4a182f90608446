"""Operators that ship compiled: kernels of usual form, and the list of what is compiled of them ahead of time.

``from tilewright.ops import softmax; softmax(x, y)`` launches without a compiler where the artifact was shipped.
``ops.listing`` says for which dtypes, rows and targets that is; ``tilewright build ops`` makes the folder.
"""

from __future__ import annotations

from tilewright.ops.attention import attention
from tilewright.ops.elementwise import add, swiglu
from tilewright.ops.products import matmul
from tilewright.ops.rows import layer_norm, rms_norm, softmax

__all__ = ["add", "attention", "layer_norm", "matmul", "rms_norm", "softmax", "swiglu"]
