"""Launching through a recording driver: what reaches the kernels, and what is refused."""

from __future__ import annotations

import ctypes
import math
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from support.artifacts import M, N, promised, scale, staged
from support.fake_driver import Device, FakeDriver, FakeTensor
from support.gpu import gpu_present
from tilewright.artifact import bundle
from tilewright.artifact.schema import (
    MAX_EXTENT,
    AccessMode,
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    KernelImage,
    Launch,
    LeftOut,
    ScalarArgument,
    TensorArgument,
    TensorPointer,
    Variant,
    WorkspacePointer,
)
from tilewright.base.dtypes import f32
from tilewright.base.expr import TRUE, Const, all_of, parse, sym
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import DataType, L2Promotion, OobFill, Swizzle
from tilewright.hw.tensormap import Interleave as _Interleave
from tilewright.runtime import Program, check, describe_all, index_promises, load
from tilewright.runtime.arguments import TensorDescription
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.driver import Driver, TensorMapFields

X, Y = 0x1000, 0x9000_0000


def refused(code: str, *words: str) -> Any:
    return pytest.raises(TilewrightError, match=rf"(?s)error\[{code}\].*" + ".*".join(words))


def program(artifact: Artifact | None = None, **driver: Any) -> tuple[Program, FakeDriver]:
    fake = FakeDriver(**driver)
    return load(scale() if artifact is None else artifact, fake), fake


def xy(rows: int = 8, cols: int = 64, **x: Any) -> tuple[FakeTensor, FakeTensor]:
    return FakeTensor(X, (rows, cols), **x), FakeTensor(Y, (rows, cols))


# -- what reaches the kernel ------------------------------------------------------------------------------------------


def test_variant_grid_and_parameters() -> None:
    p, fake = program()
    x, y = xy(rows=9)
    p.launch((x, y, 0.5, -7), stream=77)
    (launched,) = fake.launches
    assert (launched.symbol, launched.stream) == ("scale_narrow", 77)
    assert launched.shape.grid == (3, 1, 1)
    assert (launched.shape.threads, launched.shape.shared_bytes) == (128, 0)
    assert launched.words(3) == [X, Y, 64]
    assert [launched.i32(3), launched.i32(4)] == [9, 64]
    assert launched.f32(5) == 0.5
    assert launched.i32(6) == -7
    p.launch((*xy(cols=129), 0.5, 1))
    assert fake.launches[1].symbol == "scale_wide"
    assert fake.launches[1].shape.shared_bytes == 65536
    assert fake.launches[1].stream == 1


def test_arguments_by_name_and_as_a_list() -> None:
    p, fake = program()
    x, y = xy()
    p.launch({"n": 3, "alpha": 2, "y": y, "x": x})
    p.launch([x, y, 2, 3])
    assert [(launched.f32(5), launched.i32(6)) for launched in fake.launches] == [(2.0, 3), (2.0, 3)]


def test_repeated_calls_bind_once_and_follow_what_changes() -> None:
    p, fake = program()
    for i in range(4):
        x, y = FakeTensor(X + 16 * i, (8, 64)), FakeTensor(Y - 16 * i, (8, 64))
        p.launch((x, y, float(i), i))
        launched = fake.launches[-1]
        assert launched.words(2) == [x.address, y.address]
        assert (launched.f32(5), launched.i32(6)) == (float(i), i)
    assert fake.kinds().count("kernel") == 1
    p.launch((*xy(), -0.0, 0))
    assert math.copysign(1, fake.launches[-1].f32(5)) == -1


def test_one_program_serves_all_extents_and_loads_each_kernel_once() -> None:
    p, fake = program()
    for rows in range(1, 60):
        p.launch((*xy(rows=rows, cols=100 + rows), 1.0, 1))
    assert fake.kinds().count("load") == 2
    assert [launched.shape.grid[0] for launched in fake.launches[:3]] == [1, 1, 1]


def test_an_empty_grid_launches_nothing() -> None:
    p, fake = program()
    p.launch((*xy(rows=0), 1.0, 1))
    assert fake.launches == []


def test_scalars_that_decide_are_part_of_the_plan() -> None:
    base = scale()
    chooser = replace(base, variants=(replace(base.variants[0], predicate=sym("n") < 4), base.variants[1]))
    p, fake = program(chooser)
    for n in (3, 4, 3):
        p.launch((*xy(), 1.0, n))
    assert [launched.symbol for launched in fake.launches] == ["scale_narrow", "scale_wide", "scale_narrow"]


def test_variants_may_ask_for_alignment() -> None:
    base = replace(scale(), facts=())
    aligned = replace(base.variants[0], predicate=parse("(x.address + x.stride0) % 16 == 0"))
    p, fake = program(replace(base, variants=(aligned, base.variants[1])))
    for address in (X, X + 2, X):
        p.launch((FakeTensor(address, (8, 64)), xy()[1], 1.0, 1))
    assert [launched.symbol for launched in fake.launches] == ["scale_narrow", "scale_wide", "scale_narrow"]


def test_addresses_that_are_passed_as_numbers_are_followed() -> None:
    step = Launch("k", (Const(1),) * 3, (IntScalar(sym("x.address") + 8, 64),))
    p, fake = program(one_kernel(step, (TensorArgument("x", "bf16", (M,), AccessMode.READ),)))
    for address in (X, X + 6):
        p.launch((FakeTensor(address, (4,)),))
        assert fake.launches[-1].words(1) == [address + 8]


def test_pointer_offsets_follow_the_tensor() -> None:
    step = Launch("k", (Const(1),) * 3, (TensorPointer("x", M * 2),))
    p, fake = program(one_kernel(step, (TensorArgument("x", "bf16", (M,), AccessMode.READ),)))
    for address in (X, Y, X):
        p.launch((FakeTensor(address, (5,)),))
        assert fake.launches[-1].words(1) == [address + 10]


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("f16", 1.5, 0x3E00),
        ("f16", 1e9, 0x7C00),
        ("bf16", 1.0, 0x3F80),
        ("bf16", 1.00390625, 0x3F80),  # halfway, to even
        ("bf16", 1.01171875, 0x3F82),  # halfway, to even
        ("bf16", -math.inf, 0xFF80),
        ("bf16", math.nan, 0x7FC0),
        ("bf16", 1e300, 0x7F80),
        ("f32", 1e300, 0x7F80_0000),
        ("f32", 3.4028235e38, 0x7F7F_FFFF),
    ],
)
def test_float_scalars(dtype: str, value: float, bits: int) -> None:
    step = Launch("k", (Const(1),) * 3, (FloatScalar("s"),))
    p, fake = program(one_kernel(step, (ScalarArgument("s", dtype),)))
    p.launch((value,))
    size = 4 if dtype == "f32" else 2
    assert int.from_bytes(fake.launches[0].raw(0, size), "little") == bits


def test_every_step_in_order() -> None:
    p, fake = program(staged())
    p.launch((FakeTensor(X, (6, 64)), FakeTensor(Y, (6,), dtype="float32")), stream=9)
    fields = TensorMapFields(
        DataType.BFLOAT16, X, (64, 6), (128,), (64, 128), (1, 1), _Interleave.NONE, Swizzle.B128,
        L2Promotion.L2_256B, OobFill.NONE,
    )  # fmt: skip
    steps = [event for event in fake.events if event[0] not in ("load", "kernel")]
    assert steps == [
        ("encode", fields),
        ("allocate", 256, 9),
        ("fill", 0xA000_0000, 0, 4, 6, 9),
        ("launch", "staged", 9),
        ("copy", Y, 0xA000_0000, 24, 9),
        ("free", 0xA000_0000, 9),
    ]
    (launched,) = fake.launches
    assert launched.aligned(0)
    assert launched.raw(0, 128) == X.to_bytes(8, "little") + bytes(120)
    assert launched.shape.cluster == (2, 1, 1)


def test_a_workspace_of_the_callers_is_this_calls_alone() -> None:
    p, fake = program(staged())
    theirs = FakeDriver(block=0xC000_0000)
    tensors = (FakeTensor(X, (6, 64)), FakeTensor(Y, (6,), dtype="float32"))
    p.launch(tensors, 9, theirs)
    assert p.launch_known(tensors, 9, theirs)
    assert theirs.events == [("allocate", 256, 9), ("free", 0xC000_0000, 9)] * 2
    assert [e[1] for e in fake.events if e[0] == "fill"] == [0xC000_0000] * 2
    assert "allocate" not in fake.kinds()


def test_descriptors_are_encoded_once_an_address() -> None:
    p, fake = program(staged())
    out = FakeTensor(Y, (6,), dtype="float32")
    for address in (X, X, X + 128, X):
        p.launch((FakeTensor(address, (6, 64)), out))
        assert fake.launches[-1].raw(0, 8) == address.to_bytes(8, "little")
    assert fake.kinds().count("encode") == 2
    assert p.tensor_maps == (2, 2 * 128, 2, 1)  # the second call at X found its own in the launch


def test_maps_of_other_shapes_are_counted_until_they_are_forgotten() -> None:
    p, _ = program(staged())
    assert p.tensor_maps == (0, 0, 0, 0)
    for rows in (6, 8, 6):
        p.launch((FakeTensor(X, (rows, 64)), FakeTensor(Y, (rows,), dtype="float32")))
    assert p.tensor_maps.kept == p.tensor_maps.encoded == 2
    p.forget()
    assert p.tensor_maps.kept == 0


def test_a_descriptor_is_not_encoded_again_for_another_tensors_address() -> None:
    p, fake = program(staged())
    for address in (Y, Y + 128, Y + 256):
        p.launch((FakeTensor(X, (6, 64)), FakeTensor(address, (6,), dtype="float32")))
        assert fake.launches[-1].raw(0, 8) == X.to_bytes(8, "little")
    assert fake.kinds().count("encode") == 1


def test_descriptors_are_encoded_in_the_context_of_the_plan() -> None:
    """A thread that has not used CUDA yet has no current context: autograd's, for a gradient of no rows."""
    base = staged()
    (variant,) = base.variants
    (launch,) = (s for s in variant.steps if isinstance(s, Launch))
    only = replace(launch, args=tuple(a for a in launch.args if not isinstance(a, WorkspacePointer)))
    steps = (*(s for s in variant.steps if isinstance(s, EncodeTensorMap)), only)
    p, fake = program(replace(base, variants=(replace(variant, steps=steps, workspace=()),)))
    out, found = FakeTensor(Y, (6,), dtype="float32"), []
    encode = fake.encode_tensor_map
    fake.encode_tensor_map = lambda fields: (found.append(fake.current_context()), encode(fields))[1]
    for address in (X, X + 128):
        p.launch((FakeTensor(address, (6, 64)), out))
        fake.contexts[:] = [0]
    assert found == [1000, 1000]
    assert fake.contexts == [0]


def test_descriptors_of_a_workspace_follow_its_address() -> None:
    base = staged()
    (variant,) = base.variants
    steps = tuple(
        replace(s, recipe=replace(s.recipe, address=sym("$workspace1.address")))
        if isinstance(s, EncodeTensorMap)
        else s
        for s in variant.steps
    )
    p, fake = program(replace(base, variants=(replace(variant, steps=steps, workspace=(sym("M") * 4, Const(300))),)))
    tensors = (FakeTensor(X, (6, 64)), FakeTensor(Y, (6,), dtype="float32"))
    for block, encoded in ((0xA000_0000, 1), (0xA000_0000, 1), (0xB000_0000, 2), (0xA000_0000, 2)):
        fake.block = block
        p.launch(tensors)
        assert fake.launches[-1].raw(0, 8) == (block + 256).to_bytes(8, "little")
        assert fake.kinds().count("encode") == encoded
    assert [e for e in fake.events if e[0] == "allocate"] == [("allocate", 768, 1)] * 4


def test_workspace_is_freed_when_a_step_fails() -> None:
    p, fake = program(staged())

    def broken(_: object) -> None:
        raise RuntimeError("launch failed")

    fake.on_launch = broken
    with pytest.raises(RuntimeError, match="launch failed"):
        p.launch((FakeTensor(X, (6, 64)), FakeTensor(Y, (6,), dtype="float32")))
    assert fake.kinds()[-1] == "free"


def test_threads_do_not_mix_their_parameters() -> None:
    seen: list[tuple[int, ...]] = []
    p, fake = program()
    fake.on_launch = lambda launched: seen.append((*launched.words(2), launched.i32(6)))

    def work(i: int) -> None:
        for _ in range(200):
            p.launch((FakeTensor(X + 0x1000 * i, (8, 64)), FakeTensor(Y + 0x1000 * i, (8, 64)), 1.0, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 800
    assert set(seen) == {(X + 0x1000 * i, Y + 0x1000 * i, i) for i in range(4)}


# -- devices and streams ----------------------------------------------------------------------------------------------


def test_another_device_is_made_current_for_the_launch() -> None:
    p, fake = program(devices=2)
    there = Device("cuda", 1)
    p.launch((FakeTensor(X, (8, 64), device=there), FakeTensor(Y, (8, 64), device=there), 1.0, 1))
    assert fake.launches[0].context == 1001
    assert fake.contexts == [1000]
    p.launch((*xy(), 1.0, 1))
    assert fake.launches[1].context == 1000


def test_two_devices() -> None:
    p, _ = program(devices=2)
    with refused("RUN011", "x on device 0", "y on device 1"):
        p.launch((xy()[0], FakeTensor(Y, (8, 64), device=Device("cuda", 1)), 1.0, 1))


def test_cpu_tensor() -> None:
    p, _ = program()
    with refused("RUN011", "x is on the CPU"):
        p.launch((*xy(device=Device("cpu", None)), 1.0, 1))


@pytest.mark.parametrize(
    ("target", "arch", "runs"),
    [
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_90a", (10, 0), False),
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_80", (9, 0), False),
        ("sm_100a", (9, 0), False),
    ],
)
def test_architecture(target: str, arch: tuple[int, int], runs: bool) -> None:
    p, fake = program(replace(scale(), target=target), arch=arch)
    if runs:
        p.launch((*xy(), 1.0, 1))
        assert len(fake.launches) == 1
        return
    with refused("RUN012", f"{arch[0]}.{arch[1]}", target):
        p.launch((*xy(), 1.0, 1))


class WithProtocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 55)


class LikeTorch:
    cuda_stream = 56


@pytest.mark.parametrize(("stream", "handle"), [(None, 1), (0, 1), (7, 7), (WithProtocol(), 55), (LikeTorch(), 56)])
def test_streams(stream: object, handle: int) -> None:
    p, fake = program()
    p.launch((*xy(), 1.0, 1), stream=stream)
    assert fake.launches[0].stream == handle


@pytest.mark.parametrize("stream", ["main", True, 1.5])
def test_not_a_stream(stream: object) -> None:
    p, _ = program()
    with refused("RUN018"):
        p.launch((*xy(), 1.0, 1), stream=stream)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_counts_and_names() -> None:
    p, _ = program()
    x, y = xy()
    with refused("RUN002", "3 arguments", "4: x, y, alpha, n"):
        p.launch((x, y, 1.0))
    with refused("RUN002", "no y", "an unknown z"):
        p.launch({"x": x, "z": y, "alpha": 1.0, "n": 1})
    with refused("RUN002", "a FakeTensor for the arguments", re.escape("launch((x, y, alpha, n,), stream)")):
        p.launch(x, y)  # pyright: ignore


def test_a_path_is_loaded(tmp_path: Path) -> None:
    p, fake = program()
    folder = tmp_path / "kernel.bundle"
    bundle.write_folder(p.artifact, folder)
    for path in (folder, str(folder)):
        load(path, fake).launch((*xy(), 1.0, 1))
    assert len(fake.launches) == 2
    with refused("ART001", "no file"):
        load(tmp_path / "no file", fake)
    with refused("ART001", "a dict", "an Artifact, or the path of a bundle"):
        load({}, fake)  # pyright: ignore
    with refused("ART001", "an int", "an Artifact, or the path of a bundle"):
        load(3, fake)  # pyright: ignore


@pytest.mark.parametrize("value", [[1.0], None, 3, "x", object()])
def test_what_is_no_tensor(value: object) -> None:
    p, _ = program()
    with refused("RUN001", "x is a"):
        p.launch((value, xy()[1], 1.0, 1))


def test_rank() -> None:
    p, _ = program()
    with refused("RUN003", r"\(8, 64, 1\)", "2 dimensions"):
        p.launch((FakeTensor(X, (8, 64, 1)), xy()[1], 1.0, 1))


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.complex64"])
def test_dtype(dtype: str) -> None:
    p, _ = program()
    with refused("RUN004", "x has dtype"):
        p.launch((*xy(dtype=dtype), 1.0, 1))


def test_dims_that_disagree() -> None:
    p, _ = program()
    with refused("RUN005", r"N = 64 \(dimension 1 of x\) and N = 65 \(dimension 1 of y\)"):
        p.launch((FakeTensor(X, (8, 64)), FakeTensor(Y, (8, 65)), 1.0, 1))


def test_fixed_dims() -> None:
    base = scale()
    fixed = replace(base.parameters[0], dims=(M, Const(64)))
    p, fake = program(replace(base, parameters=(fixed, *base.parameters[1:])))
    p.launch((*xy(), 1.0, 1))
    assert len(fake.launches) == 1
    with refused("RUN006", "dimension 1 of x is 65"):
        p.launch((*xy(cols=65), 1.0, 1))


def test_bound() -> None:
    p, fake = program()
    p.launch((*xy(cols=4096), 1.0, 1))
    assert len(fake.launches) == 1
    with refused("RUN007", "N = 4097", "N <= 4096"):
        p.launch((*xy(cols=4097), 1.0, 1))


def test_longest_axis() -> None:
    p, fake = program()
    rows = MAX_EXTENT  # without memory: rows are one behind the other's first element
    p.launch((FakeTensor(X, (rows, 64), (0, 1)), FakeTensor(Y, (rows, 64)), 1.0, 1))
    assert len(fake.launches) == 1
    with refused("RUN022", f"dimension 0 of x is {rows + 1}", f"at most {rows}"):
        p.launch((FakeTensor(X, (rows + 1, 64), (0, 1)), FakeTensor(Y, (rows + 1, 64)), 1.0, 1))


def test_facts() -> None:
    p, _ = program()
    with refused("RUN008", "x.address = 4098", "x.address % 16 == 0"):
        p.launch((FakeTensor(X + 2, (8, 64)), xy()[1], 1.0, 1))
    with refused("RUN008", "x.stride1 = 8", "x.stride1 == 1"):
        p.launch((FakeTensor(X, (8, 64), (1, 8)), xy()[1], 1.0, 1))


@pytest.mark.parametrize(("strides", "legal"), [((0, 1), False), ((64, 1), True), ((63, 1), False), ((1, 8), True)])
def test_output_that_overlaps_itself(strides: tuple[int, int], legal: bool) -> None:
    p, fake = program()
    args = (xy()[0], FakeTensor(Y, (8, 64), strides), 1.0, 1)
    if legal:
        p.launch(args)
        assert len(fake.launches) == 1
        return
    with refused("RUN009", "y has shape"):
        p.launch(args)


def test_inputs_may_overlap_themselves() -> None:
    p, fake = program()
    p.launch((*xy(strides=(0, 1)), 1.0, 1))
    assert len(fake.launches) == 1


def test_arguments_that_share_bytes() -> None:
    p, fake = program()
    size = 8 * 64 * 2
    x = FakeTensor(X, (8, 64))
    p.launch((x, FakeTensor(X + size, (8, 64)), 1.0, 1))
    assert len(fake.launches) == 1
    for address in (X, X + size - 2, X - size + 2):
        with refused("RUN010", "y at", "x at"):
            p.launch((x, FakeTensor(address, (8, 64)), 1.0, 1))
    assert len(fake.launches) == 1
    p.launch((x, FakeTensor(X + size, (8, 64)), 1.0, 1))


def test_slices_of_one_buffer_may_interleave() -> None:
    p, fake = program()
    p.launch((FakeTensor(X, (8, 64), (128, 1)), FakeTensor(X + 128, (8, 64), (128, 1)), 1.0, 1))
    assert len(fake.launches) == 1


@pytest.mark.parametrize(
    ("alpha", "n"), [("1", 1), (None, 1), (FakeTensor(X, ()), 1), (1.0, 1.5), (1.0, 2**31), (1.0, FakeTensor(X, ()))]
)
def test_scalars(alpha: object, n: object) -> None:
    p, _ = program()
    with refused("RUN016"):
        p.launch((*xy(), alpha, n))


def test_scalars_at_the_edge() -> None:
    p, fake = program()
    for alpha, n in ((1, 2**31 - 1), (True, -(2**31))):
        p.launch((*xy(), alpha, n))
        assert (fake.launches[-1].f32(5), fake.launches[-1].i32(6)) == (1.0, n)


@pytest.mark.parametrize("dtype", ["i32", "i64", "bool"])
def test_integer_scalars_at_and_beyond_their_range(dtype: str) -> None:
    step = Launch("k", (Const(1),) * 3, (IntScalar(sym("s"), 64 if dtype == "i64" else 32),))
    p, fake = program(one_kernel(step, (ScalarArgument("s", dtype),)))
    low, high = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1), "bool": (0, 1)}[dtype]
    for value in (low, high):
        p.launch((value,))
        size = 8 if dtype == "i64" else 4
        assert int.from_bytes(fake.launches[-1].raw(0, size), "little", signed=True) == value
    for value in (low - 1, high + 1):
        with refused("RUN016", f"s = {value}"):
            p.launch((value,))
    p.launch((True,))
    assert fake.launches[-1].i32(0) == 1


@pytest.mark.parametrize(
    "step",
    [
        Fill(TensorPointer("out"), 0, 4, M + 1),
        Fill(TensorPointer("out", Const(-4)), 0, 4, M),
        Copy(WorkspacePointer(0), TensorPointer("out"), Const(1 << 40)),
        Copy(WorkspacePointer(0, Const(256)), TensorPointer("out"), M * 4),
    ],
)
def test_steps_of_the_host_stay_inside(step: Fill | Copy) -> None:
    artifact = staged()
    (only,) = artifact.variants
    p, fake = program(replace(artifact, variants=(replace(only, steps=(*only.steps, step)),)))
    with refused("RUN017"):
        p.launch((FakeTensor(X, (64, 64)), FakeTensor(Y, (64,), dtype="torch.float32")))
    assert not fake.launches


def test_a_fact_or_class_that_divides_by_zero() -> None:
    for changed in (
        replace(scale(), facts=(parse("M % (N - 200) == 0"),)),
        replace(
            scale(),
            facts=(),
            bounds=(),
            variants=scale().variants[:1],
            left_out=(LeftOut(parse("M // (N - 200) == 1"), "", ""),),
        ),
    ):
        p, _ = program(changed)
        with refused("RUN017"):
            p.launch((*xy(cols=200), 1.0, 1))


def test_a_descriptor_with_impossible_fields() -> None:
    artifact = staged()
    (only,) = artifact.variants
    encode = only.steps[1]
    assert isinstance(encode, EncodeTensorMap)
    for dims in ((N, 0 - M), (N, M * (1 << 70))):
        steps = (only.steps[0], replace(encode, recipe=replace(encode.recipe, dims=dims)), *only.steps[2:])
        p, _ = program(replace(artifact, variants=(replace(only, steps=steps),)))
        with refused("RUN017"):
            p.launch((FakeTensor(X, (64, 64)), FakeTensor(Y, (64,), dtype="torch.float32")))


class OwnStream:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> object:
        return self.answer


class Handle(int):
    """A handle of a library with a type of its own."""


@pytest.mark.parametrize("stream", [77, Handle(77), OwnStream((0, 77))])
def test_what_is_a_stream(stream: object) -> None:
    p, fake = program()
    p.launch((*xy(), 1.0, 1), stream)
    assert fake.launches[-1].stream == 77


@pytest.mark.parametrize("stream", [OwnStream(5), OwnStream((0, "x")), OwnStream(None), "x", -1, 2**64, True, 1.5])
def test_what_is_no_stream(stream: object) -> None:
    with refused("RUN018"):
        program()[0].launch((*xy(), 1.0, 1), stream)


@pytest.mark.parametrize("alpha", [10**400, "2", None, [2.0], 1j])
def test_what_is_no_number(alpha: object) -> None:
    with refused("RUN016"):
        program()[0].launch((*xy(), alpha, 1))


@pytest.mark.parametrize(("rows", "legal"), [(65535, True), (65536, False)])
def test_grid_limit(rows: int, legal: bool) -> None:
    step = Launch("k", (Const(1), M, Const(1)), ())
    p, fake = program(one_kernel(step, (TensorArgument("x", "bf16", (M,), AccessMode.READ),)))
    if legal:
        p.launch((FakeTensor(X, (rows,)),))
        assert fake.launches[0].parameters == 0
        return
    with refused("RUN017", "grid.y", "65536"):
        p.launch((FakeTensor(X, (rows,)),))


@pytest.mark.parametrize("value", [M * 2**20, 7 // (M - 2048), M - M * 2**21])
def test_integer_arguments_must_fit(value: Any) -> None:
    step = Launch("k", (Const(1),) * 3, (IntScalar(value),))
    p, _ = program(one_kernel(step, (TensorArgument("x", "bf16", (M,), AccessMode.READ),)))
    with refused("RUN017", "an integer argument"):
        p.launch((FakeTensor(X, (2048,)),))


def test_cluster_must_divide_the_grid() -> None:
    p, _ = program(staged())
    with refused("RUN017", r"cluster \(2, 1, 1\)"):
        p.launch((FakeTensor(X, (5, 64)), FakeTensor(Y, (5,), dtype="float32")))


def test_no_variant() -> None:
    base = scale()
    p, _ = program(replace(base, variants=base.variants[:1]))
    with refused("RUN015", "N = 129", "narrow: N <= 128"):
        p.launch((*xy(cols=129), 1.0, 1))


def test_a_class_that_was_left_out() -> None:
    base = scale()
    left = LeftOut(all_of([N <= 4096, M <= 100]), "spilled", "use smaller tiles")
    p, _ = program(replace(base, variants=base.variants[:1], left_out=(left,)))
    p.launch((*xy(cols=128), 1.0, 1))
    with refused("RUN021", "N = 129", "narrow: N <= 128", "no kernel .*: spilled", "help: use smaller tiles"):
        p.launch((*xy(cols=129), 1.0, 1))
    with refused("RUN015"):  # of no class at all
        p.launch((*xy(101, 129), 1.0, 1))


def test_a_refused_call_leaves_the_program_usable() -> None:
    p, fake = program()
    for _ in range(2):
        with refused("RUN005"):
            p.launch((FakeTensor(X, (8, 64)), FakeTensor(Y, (9, 64)), 1.0, 1))
    p.launch((*xy(), 1.0, 1))
    assert len(fake.launches) == 1


def test_close_unloads() -> None:
    p, fake = program()
    p.launch((*xy(), 1.0, 1))
    p.close()
    assert fake.kinds()[-1] == "unload"


def test_a_launch_after_close_reports_broken_promises() -> None:
    fake = FakeDriver()
    p = load(promised(), fake)
    arguments = (
        FakeTensor(X, (8,), dtype="torch.int32"),
        FakeTensor(Y, (3,), dtype="torch.int64"),
        FakeTensor(2 * Y, (8,), dtype="torch.float32"),
    )
    p.launch(arguments)
    p.close()
    p.launch(arguments)
    ctypes.c_uint32.from_buffer(fake.kept[-1]).value = 1
    with refused("RUN023", "promised"):
        index_promises.report()
    p.close()
    ctypes.c_uint32.from_buffer(fake.kept[-1]).value = 2
    index_promises.report()


@pytest.mark.skipif(gpu_present(), reason="a GPU is present")
def test_no_gpu_is_said_clearly() -> None:
    with refused("RUN013", "simulator"):
        load(scale())


def one_kernel(step: Launch, parameters: tuple[Any, ...]) -> Artifact:
    """The smallest program around one launch."""
    return Artifact(
        name="one",
        target="sm_90a",
        parameters=parameters,
        variants=(Variant("only", TRUE, (step,)),),
        kernels=(KernelImage("k", 32, b"\x7fELF"),),
    )


# -- arguments that were launched before ------------------------------------------------------------------------------


def test_known_arguments_launch() -> None:
    p, fake = program()
    p.launch((*xy(), 1.0, 1))
    assert p.launch_known((*xy(), 2.0, 1), 5)
    assert [launched.stream for launched in fake.launches] == [1, 5]


@pytest.mark.parametrize(
    "x",
    [
        FakeTensor(X + 2, (8, 64)),
        FakeTensor(X, (8, 64), dtype="torch.float32"),
        FakeTensor(X, (8, 64), (1, 8)),
        FakeTensor(X, (9, 64)),
    ],
)
def test_other_arguments_are_left_alone(x: FakeTensor) -> None:
    p, fake = program()
    p.launch((*xy(), 1.0, 1))
    for _ in range(2):
        assert not p.launch_known((x, xy()[1], 1.0, 1))
    assert not p.launch_known(xy())
    assert len(fake.launches) == 1


def test_addresses_seen_before_are_judged_as_they_are() -> None:
    p, fake = program()
    x, y = xy()
    for _ in range(2):
        p.launch((x, y, 1.0, 1))
        with refused("RUN010"):
            p.launch((x, FakeTensor(X + 512, (8, 64)), 1.0, 1))
        p.launch((FakeTensor(X + 4096, (8, 64)), y, 1.0, 1))
    assert len(fake.launches) == 4


def test_shapes_that_alternate_have_each_their_plan() -> None:
    p, fake = program()
    for rows in (8, 16, 16, 8, 8):
        p.launch((FakeTensor(X, (rows, 64)), FakeTensor(Y, (rows, 64)), 1.0, 1))
    grids = [launch.shape.grid for launch in fake.launches]
    assert grids[0] == grids[3] == grids[4] != grids[1] == grids[2]


def test_checks_without_a_launch() -> None:
    x, y = xy()
    symbols = check(scale(), describe_all({"x": x, "y": y}), {"alpha": 1.0, "n": 3})
    assert (symbols["M"], symbols["N"], symbols["x.stride0"], symbols["n"]) == (8, 64, 64, 3)
    with refused("RUN010"):
        check(scale(), describe_all({"x": x, "y": x}), {"alpha": 1.0, "n": 3})


def test_arrays_of_our_own_are_read_as_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch reads them directly: describing an argument costs more than the launch."""
    p, driver = program()
    array = DeviceArray(cast("Driver", driver), (8, 64), f32)
    tensors = [array if isinstance(parameter, TensorArgument) else 2 for parameter in p.artifact.parameters]

    def described(*_: object) -> dict[str, TensorDescription]:
        raise AssertionError("described")

    monkeypatch.setattr(Program, "_describe", described)
    assert p._look_up(tensors, 0)[3] is None  # pyright: ignore[reportPrivateUsage]
