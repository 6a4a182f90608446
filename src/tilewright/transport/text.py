"""Kernels of both dialects from their text, as an artifact keeps it."""

from __future__ import annotations

from typing import TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from tilewright.diag import fail
from tilewright.tile import dialect as tile
from tilewright.tile.dialect import Tile
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import LAYOUT_ATTRIBUTES

K = TypeVar("K", t.Kernel, tile.Kernel)


def transport_kernel(text: str) -> t.Kernel:
    """A kernel in Transport IR from its text; ART011 for any other text."""
    return _parsed(text, t.Kernel)


def tile_kernel(text: str) -> tile.Kernel:
    """A kernel in Tile IR from its text; ART011 for any other text."""
    return _parsed(text, tile.Kernel)


def _parsed(text: str, kind: type[K]) -> K:
    context = Context()
    for dialect in (Builtin, LAYOUT_ATTRIBUTES, Tile, t.Transport):
        context.load_dialect(dialect)
    try:
        kernel = Parser(context, text).parse_op()
        kernel.verify()
    except Exception as error:  # whatever the parsers of attributes raise
        fail("ART011", found=f"{type(error).__name__}: {str(error)[:500]}", required="the text of one kernel")
    if not isinstance(kernel, kind):
        fail("ART011", found=f"the operation {kernel.name}", required="the text of one kernel")
    return kernel
