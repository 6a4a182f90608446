"""The bits of a handle: the number of the page, its size class, and the generation, in a positive int64.

A generation returns after 2^31 frees of one page; a handle that is kept that long may be taken for a living one.
"""

from __future__ import annotations

PAGE_BITS = 28
GENERATION_BITS = 32
"""Where the generation begins."""

PAGE = (1 << PAGE_BITS) - 1
SIZE = (1 << (GENERATION_BITS - PAGE_BITS)) - 1
GENERATION = 1 << GENERATION_BITS
