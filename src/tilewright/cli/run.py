"""``tilewright run DIR``: launch a bundle on data from files or on random data."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.artifact import bundle
from tilewright.artifact.schema import MAX_EXTENT, Artifact, ScalarArgument, TensorArgument
from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.expr import solve
from tilewright.cli.options import by_name
from tilewright.cli.terminal import echo
from tilewright.diag import fail

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tilewright.runtime.device_array import DeviceArray

_DEFAULT_EXTENT = 1024


def register(app: typer.Typer) -> None:
    app.command("run", help="Launch a bundle on a GPU, and report times and what came out.")(run_bundle)


def run_bundle(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="a bundle's folder or file")],
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=INT", help="a dimension (1024 by default)")] = None,
    scalar: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="a scalar (1 by default)")] = None,
    input: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE.npy", help="a tensor's data")] = None,
    output: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE.npy", help="where to save a tensor")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="timed launches")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="of the random data")] = 0,
) -> None:
    import numpy as np

    from tilewright.runtime import load
    from tilewright.runtime.device_array import DeviceArray
    from tilewright.runtime.driver import Driver

    artifact = bundle.read(path)
    arrays = {name: _load(name, file, artifact) for name, file in by_name("--input", input or [], Path).items()}
    extents = extents_of(artifact, by_name("--dim", dim or [], int), {n: a.shape for n, a in arrays.items()})
    scalars = scalars_of(artifact, by_name("--scalar", scalar or [], str))
    files = by_name("--output", output or [], Path)
    driver = Driver()
    program = load(artifact, driver)
    random = np.random.default_rng(seed)
    driver.push_context(driver.context(0))
    tensors: dict[str, DeviceArray] = {}
    try:
        for p in artifact.tensors:
            dtype = DTYPES[p.dtype]
            array = arrays.get(p.name)
            if array is None:
                array = _random(random, shape_of(p, extents), dtype)
            tensors[p.name] = DeviceArray(driver, array.shape, dtype)
            tensors[p.name].upload(array.tobytes())
        arguments = {**tensors, **scalars}
        program.launch(arguments)
        results = {p.name: _download(tensors[p.name]) for p in artifact.tensors if p.access.writes}
        times = [driver.seconds(lambda: program.launch(arguments)) for _ in range(repeat)]
    finally:
        for tensor in tensors.values():
            tensor.free()
        driver.pop_context()
    for name, result in results.items():
        echo(f"{name}: {_summary(result)}")
        if name in files:
            np.save(files[name], result)
    moved = sum(t.size_bytes for t in tensors.values())
    median = statistics.median(times)
    echo(f"{median * 1e6:.1f} us (median of {repeat}), {moved / median / 1e9:.0f} GB/s of the tensors' bytes")


def extents_of(artifact: Artifact, given: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """A value for every dimension: given, read off a given array, or 1024 within its bound."""
    extents = dict(given)
    limits = {b.symbol: b.limit for b in artifact.bounds}
    solve(((d, n) for p in artifact.tensors for d, n in zip(p.dims, shapes.get(p.name, ()), strict=False)), extents)
    for p in artifact.tensors:
        for d in p.dims:
            for name in d.symbols:
                extents.setdefault(name, min(_DEFAULT_EXTENT, limits.get(name, _DEFAULT_EXTENT)))
    for name, extent in extents.items():
        if not 0 <= extent <= MAX_EXTENT:
            fail("CMD002", found=f"--dim {name}={extent}", required=f"0 to {MAX_EXTENT}")
    unknown = sorted(given.keys() - {name for p in artifact.tensors for d in p.dims for name in d.symbols})
    if unknown:
        fail("CMD002", found=f"--dim {unknown[0]}=...", required="a dimension of the bundle's parameters")
    return extents


def scalars_of(artifact: Artifact, given: Mapping[str, str]) -> dict[str, int | float]:
    """A value for every scalar parameter: given, or 1."""
    scalars: dict[str, int | float] = {}
    for p in artifact.parameters:
        if isinstance(p, ScalarArgument):
            text = given.get(p.name, "1")
            try:
                scalars[p.name] = float(text) if DTYPES[p.dtype].is_float else int(text)
            except ValueError:
                fail("CMD002", found=f"--scalar {p.name}={text}", required=f"a number for {p.dtype}")
    return scalars


def shape_of(parameter: TensorArgument, extents: Mapping[str, int]) -> tuple[int, ...]:
    """The parameter's shape under ``extents``."""
    return tuple(int(d.evaluate(extents)) for d in parameter.dims)


def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    import ml_dtypes
    import numpy as np

    special = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    kind = "bool" if dtype.is_bool else {"f": "float", "t": "float", "i": "int", "u": "uint"}.get(dtype.name[0], "")
    return np.dtype(special.get(dtype.name, kind if dtype.is_bool else f"{kind}{dtype.bits}"))


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    if dtype.is_float:
        return random.standard_normal(shape, "float32").astype(_numpy_dtype(dtype))
    return random.integers(0, 2 if dtype.is_bool else 100, shape).astype(_numpy_dtype(dtype))


def _load(name: str, file: Path, artifact: Artifact) -> NDArray[Any]:
    import numpy as np

    parameter = next((p for p in artifact.tensors if p.name == name), None)
    if parameter is None:
        fail("CMD004", found=f"--input {name}", required="a tensor parameter of the bundle")
    try:
        with file.open("rb") as source:
            array = np.lib.format.read_array(source, allow_pickle=False)
    except Exception as error:  # of a broken file, whose header NumPy reads as Python
        fail("CMD004", found=f"{file}: {error}", required="a NumPy .npy file")
    dtype = _numpy_dtype(DTYPES[parameter.dtype])
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:  # how .npy keeps bfloat16
        array = array.view(dtype)
    if array.dtype != dtype:
        fail("CMD004", found=f"{file} holds {array.dtype}", required=json.dumps(str(dtype)))
    return np.ascontiguousarray(array)


def _download(tensor: DeviceArray) -> NDArray[Any]:
    import numpy as np

    return np.frombuffer(tensor.download(), _numpy_dtype(tensor.dtype)).reshape(tensor.shape)


def _summary(array: NDArray[Any]) -> str:
    values = array.astype("float64")
    if not values.size:
        return f"shape {array.shape}, empty"
    return (
        f"shape {array.shape}, mean {values.mean():.6g}, min {values.min():.6g}, max {values.max():.6g}, "
        f"first {values.flat[0]:.6g}"
    )
