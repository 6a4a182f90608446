"""Layouts: exact maps from coordinates to offsets or registers, conversions between them, proofs of equality.

``F2Layout`` is linear over bits, ``CuteLayout`` is nested shape:stride, ``RegisterLayout`` maps threads and registers
to elements. ``library`` has further algebra that the compiler does not use.
"""
