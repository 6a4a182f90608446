"""Transformations of a whole program or kernel, each of which a schedule may choose."""
