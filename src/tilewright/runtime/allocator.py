"""Allocates workspaces: by the caller's allocator, or from the driver's memory pool."""

from __future__ import annotations

from typing import Protocol

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the default stream that synchronises with others, whatever the process's default is."""


class Allocator(Protocol):
    """Device memory in stream order. A block may be handed out again, to the same stream, as soon as it is freed."""

    def allocate(self, size_bytes: int, stream: int) -> int:
        """The address of ``size_bytes`` bytes, aligned to 256, for work on ``stream`` in the current context."""
        ...

    def free(self, address: int, stream: int) -> None:
        """Later work on ``stream`` may have the block."""
        ...
