"""Histograms of integer keys: counters in shared memory, then one addition to memory for each program and bin."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def histogram(
    keys: Annotated[tw.Tensor, "N"], counts: Annotated[tw.Tensor, 256], *, share: int = 65536, bn: int = 8192
):
    """counts += torch.bincount(keys, minlength=256), of the keys from 0 to 255; ``share`` of them are one program's."""
    p = tw.grid((keys.shape[0] + share - 1) // share, None)
    found = tw.zeros((tw.axis(256),), tw.i32)
    for n in tw.stream(keys.shape[0], bn, start=p * share, until=(p + 1) * share):
        found += tw.histogram(keys[n], 256)
    tw.reduce_add(counts, tw.axis(256), found)


@tw.kernel
def many_bins(
    keys: Annotated[tw.Tensor, "N"], counts: Annotated[tw.Tensor, 2, 32768], *, share: int = 1 << 21, bn: int = 8192
):
    """The same of 65536 bins, more than shared memory has counters for: each half has programs of its own."""
    half, p = tw.grid((2, (keys.shape[0] + share - 1) // share), (None, None))
    found = tw.zeros((tw.axis(32768),), tw.i32)
    for n in tw.stream(keys.shape[0], bn, start=p * share, until=(p + 1) * share):
        found += tw.histogram(keys[n] - 32768 * half, 32768)
    tw.reduce_add(counts, (half, tw.axis(32768)), found)


@tw.kernel
def by_row(x: Annotated[tw.Tensor, "M", "N"], counts: Annotated[tw.Tensor, "M", 16], *, bn: int = 1024):
    """A histogram of each row, which may be long."""
    m = tw.grid(x.shape[0], None)
    found = tw.zeros((tw.axis(16),), tw.i32)
    for n in tw.stream(x.shape[1], bn):
        found += tw.histogram(x[m, n], 16)
    counts[m, :] = found
