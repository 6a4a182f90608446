"""Operators for PyTorch's tensors. They take and return what the functions of PyTorch of the same names do.

A module registers its operators when it is imported: ``tilewright.ops`` does that when the first is asked for.
"""
