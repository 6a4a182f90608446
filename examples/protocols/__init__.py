"""Protocols written by hand with ``tilewright.protocol.Build``; each is proved in ``tests/verify``."""
