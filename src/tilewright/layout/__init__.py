"""Layouts: one meaning, exact representations, conversions between them and proofs of equality.

``F2Layout`` maps bits, ``CuteLayout`` nests shape:stride, ``RegisterLayout`` says which thread holds what.
"""
