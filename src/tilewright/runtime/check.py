"""Checks of a call that launch nothing."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.artifact.schema import Artifact
from tilewright.runtime.arguments import TensorDescription, describe
from tilewright.runtime.binding import aliasing, bind
from tilewright.runtime.driver import LEGACY_STREAM, process_driver
from tilewright.runtime.program import device_of, stream_handle


def describe_all(tensors: Mapping[str, object], stream: object = None) -> dict[str, TensorDescription]:
    """Tensor arguments by name as plain numbers; RUN001 for what speaks no protocol."""
    handle = LEGACY_STREAM if stream is None else stream_handle(stream)
    return {name: describe(name, value, handle) for name, value in tensors.items()}


def check(
    artifact: Artifact, tensors: Mapping[str, TensorDescription], scalars: Mapping[str, int | float]
) -> dict[str, int]:
    """Values of all symbols; refuses arguments that the program does not serve or that overlap (RUN003 to RUN010)."""
    integers = {name: value for name, value in scalars.items() if isinstance(value, int)}
    symbols = bind(artifact, tensors, integers)
    aliasing(artifact, tensors).check(tuple(tensors[p.name].address for p in artifact.tensors))
    return symbols


def capability(tensors: Mapping[str, TensorDescription]) -> tuple[int, int]:
    """Compute capability of the device that holds the tensors; RUN011 unless it is one, RUN013 without a GPU."""
    driver = process_driver()
    return driver.capability(device_of(tensors, driver))
