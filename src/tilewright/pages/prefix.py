"""Which pages hold the tokens of a prefix: a radix tree whose edges are full pages of tokens.

Edges are matched by the tokens themselves, or by a salted SHA-256 of everything before them, which keeps no tokens. A
page that is found was filled under the same tokens and the same ``extra`` (adapter, image, tenant).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.diag import fail, shown


def token_ids(tokens: ArrayLike) -> NDArray[np.int64]:
    """The caller's tokens as an array; PAG026 if they are not a row of 64-bit integers (fractions are not
    truncated)."""
    found = np.asarray(tokens)
    if found.ndim != 1 or (found.size and (found.dtype.kind not in "iu" or int(found.max()) >> 63)):
        fail("PAG026", found=f"tokens {shown(tokens)}", required="a row of integers of 64 bits")
    return np.ascontiguousarray(found, dtype=np.int64)


@dataclass(eq=False)
class PrefixNode:
    """A cached page: ``key`` is its edge from ``parent``; the root has no page (-1)."""

    key: bytes
    page: int
    parent: PrefixNode | None
    children: dict[bytes, PrefixNode] = field(default_factory=dict[bytes, "PrefixNode"])


class PrefixTree:
    """Cached pages of one page size. ``salt``: None matches tokens, bytes match salted hashes."""

    def __init__(self, page_tokens: int, salt: bytes | None) -> None:
        self.page_tokens = page_tokens
        self.salt = salt
        self.root = PrefixNode(b"", -1, None)
        self.nodes: dict[int, PrefixNode] = {}

    def keys(self, tokens: ArrayLike, extra: bytes) -> Iterator[bytes]:
        """The edge of each full page of ``tokens`` (integers), from the root."""
        words = token_ids(tokens)
        if not isinstance(extra, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not checked
            fail("PAG026", found=f"extra={shown(extra)}", required="bytes")
        above = b"" if self.salt is None else _digest(self.salt, len(extra).to_bytes(8, "little"), extra)
        for begin in range(0, len(words) - self.page_tokens + 1, self.page_tokens):
            block = words[begin : begin + self.page_tokens].tobytes()
            if self.salt is not None:
                above = _digest(above, block)
                yield above
            else:
                yield block if begin else extra + block

    def walk(self, tokens: ArrayLike, extra: bytes) -> Iterator[PrefixNode]:
        """The cached pages of the longest prefix."""
        node = self.root
        for key in self.keys(tokens, extra):
            found = node.children.get(key)
            if found is None:
                return
            yield found
            node = found

    def add(self, above: PrefixNode, key: bytes, page: int) -> PrefixNode:
        """A page below ``above``."""
        made = PrefixNode(key, page, above)
        above.children[key] = made
        self.nodes[page] = made
        return made

    def remove(self, page: int) -> list[int]:
        """Remove a page and the pages below it, which could no longer be found; returns all of them."""
        node = self.nodes[page]
        assert node.parent is not None
        del node.parent.children[node.key]
        gone, open_ = list[int](), [node]
        while open_:
            node = open_.pop()
            gone.append(node.page)
            del self.nodes[node.page]
            open_.extend(node.children.values())
        return gone


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()
