"""Histograms of integer keys: counters in shared memory, then one addition to memory for each program and bin."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def histogram(keys: tw.Tensor["N"], counts: tw.Tensor[256], *, share=65536, bn=8192):
    """counts += torch.bincount(keys, minlength=256), of the keys from 0 to 255; ``share`` of them are one program's."""
    p = tw.grid((keys.shape[0] + share - 1) // share, None)
    found = tw.zeros((tw.axis(256),), tw.i32)
    for n in tw.stream(keys.shape[0], bn, start=p * share, until=(p + 1) * share):
        found += tw.histogram(keys[n], 256)
    tw.reduce_add(counts, tw.axis(256), found)


@tw.kernel
def many_bins(keys: tw.Tensor["N"], counts: tw.Tensor[2, 32768], *, share=1 << 21, bn=8192):
    """The same of 65536 bins, more than shared memory has counters for: each half has programs of its own."""
    half, p = tw.grid((2, (keys.shape[0] + share - 1) // share), (None, None))
    found = tw.zeros((tw.axis(32768),), tw.i32)
    for n in tw.stream(keys.shape[0], bn, start=p * share, until=(p + 1) * share):
        found += tw.histogram(keys[n] - 32768 * half, 32768)
    tw.reduce_add(counts, (half, tw.axis(32768)), found)


@tw.kernel
def by_row(x: tw.Tensor["M", "N"], counts: tw.Tensor["M", 16], *, bn=1024):
    """A histogram of each row, which may be long."""
    m = tw.grid(x.shape[0], None)
    found = tw.zeros((tw.axis(16),), tw.i32)
    for n in tw.stream(x.shape[1], bn):
        found += tw.histogram(x[m, n], 16)
    counts[m, :] = found
