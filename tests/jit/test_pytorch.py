"""``stream=None`` on tensors of PyTorch: its current stream on their device, and nothing of PyTorch imported by us."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.fake_driver import CUDA0, Device, FakeDriver, FakeTensor
from tilewright.jit.pytorch import allocator, current_stream, first_on_gpu
from tilewright.runtime.driver import LEGACY_STREAM


@tw.kernel
def doubled(x: tw.Tensor["N"], y: tw.Tensor["N"], *, scale: tw.f32 = 2.0, bn=64):
    n = tw.grid(y, bn)
    y[n] = x[n] * scale


@tw.kernel
def increased(x: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(y, 64)
    y[n] = x[n] + 1


@tw.kernel
def multiplied(x: tw.Tensor["N"], y: tw.Tensor["N"], *, by=2, bn=64):
    n = tw.grid(y, bn)
    y[n] = x[n] * by


class TorchTensor(FakeTensor):
    """What ``torch.Tensor`` is here."""

    def get_device(self) -> int:
        return self.device.index


@dataclass
class Streams:
    """``torch.cuda``: one current stream a device, and who asked."""

    current: dict[Device, int] = field(default_factory=dict[Device, int])
    asked: list[Device] = field(default_factory=list[Device])

    def current_stream(self, device: Device) -> Any:
        self.asked.append(device)
        return SimpleNamespace(cuda_stream=self.current.get(device, 0))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    torch = ModuleType("torch")
    torch.Tensor, torch.cuda = TorchTensor, Streams()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch.cuda


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(devices=2, locations={0x1000: 0, 0x2000: 0})
    for module in ("check", "program"):
        monkeypatch.setattr(sys.modules[f"tilewright.runtime.{module}"], "process_driver", lambda: fake)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    yield fake
    for kernel in (doubled, increased, multiplied):
        kernel.__dict__.pop("compiled", None)


def pair(kind: type[FakeTensor], device: Device = CUDA0) -> tuple[FakeTensor, FakeTensor]:
    return tuple(kind(address, (64,), (1,), "torch.float32", device) for address in (0x1000, 0x2000))  # type: ignore[return-value]


def launched_on(driver: FakeDriver) -> list[int]:
    return [launched.stream for launched in driver.launches]


def test_the_current_stream_is_used(streams: Streams, driver: FakeDriver) -> None:
    x, y = pair(TorchTensor)
    doubled(x, y)
    streams.current[CUDA0] = 0xABC0
    doubled(x, y)
    doubled(x=x, y=y, scale=3.0)
    doubled(x, y, stream=0xDEF0)
    assert launched_on(driver) == [LEGACY_STREAM, 0xABC0, 0xABC0, 0xDEF0]
    assert streams.asked == [CUDA0] * 3


def test_the_handle_is_asked_for_where_pytorch_gives_it(streams: Streams, driver: FakeDriver) -> None:
    """Its stream object takes ten times as long."""
    handles = {0: 0x7770, 1: 0x8880}
    sys.modules["torch"]._C = SimpleNamespace(_cuda_getCurrentRawStream=handles.__getitem__)  # type: ignore[attr-defined]
    doubled(*pair(TorchTensor))
    assert current_stream(pair(TorchTensor, Device("cuda", 1))[0]) == 0x8880
    assert launched_on(driver) == [0x7770]
    assert not streams.asked


def test_workspaces_are_of_the_caching_allocator(streams: Streams) -> None:
    """On the stream's own pool; the legacy default stream is PyTorch's stream 0."""
    asked: list[tuple[object, ...]] = []

    def caching_allocator_alloc(*args: object) -> int:
        asked.append(args)
        return 0xB000

    streams.caching_allocator_alloc = caching_allocator_alloc  # type: ignore[attr-defined]
    streams.caching_allocator_delete = lambda address: asked.append((address,))  # type: ignore[attr-defined]
    of_one = allocator(pair(TorchTensor, Device("cuda", 1))[0])
    assert [of_one.allocate(512, stream) for stream in (LEGACY_STREAM, 0xABC0)] == [0xB000, 0xB000]
    of_one.free(0xB000, 0xABC0)
    assert asked == [(512, 1, 0), (512, 1, 0xABC0), (0xB000,)]


def test_it_is_the_stream_of_the_tensors_device(streams: Streams, driver: FakeDriver) -> None:
    one = Device("cuda", 1)
    streams.current = {CUDA0: 0xABC0, one: 0x1110}
    driver.locations.update({0x1000: 1, 0x2000: 1})
    doubled(*pair(TorchTensor, one))
    assert streams.asked == [one]
    assert launched_on(driver) == [0x1110]


def test_tensors_of_others_stay_on_the_legacy_stream(streams: Streams, driver: FakeDriver) -> None:
    streams.current[CUDA0] = 0xABC0
    doubled(*pair(FakeTensor))
    assert launched_on(driver) == [LEGACY_STREAM]
    assert not streams.asked


def test_tensors_of_the_cpu_have_no_stream(streams: Streams) -> None:
    x, _ = pair(TorchTensor)
    x.is_cuda = False
    assert first_on_gpu([x, 2.0, None]) is None
    array = np.ones(64, np.float32)
    doubled(array, array.copy())
    assert not streams.asked


@pytest.mark.parametrize("module", [None, ModuleType("torch")])
def test_without_pytorch_nothing_is_queried(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """It is not imported, or its import has only begun."""
    if module is None:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "torch", module)
    assert first_on_gpu(pair(FakeTensor)) is None
    assert sys.modules.get("torch") is module


def test_a_call_is_served_by_the_program_of_its_own_class(streams: Streams, driver: FakeDriver) -> None:
    """One for unaligned tensors takes aligned ones too, but copies element by element."""
    loaded: list[int] = []
    for offset in (4, 0, 4, 0):
        addresses = (0x1000 + offset, 0x2000 + offset)
        driver.locations.update(dict.fromkeys(addresses, 0))
        doubled(*(FakeTensor(address, (64,), (1,), "torch.float32") for address in addresses))
        loaded.append(driver.kinds().count("load"))
    assert loaded == [1, 2, 2, 2]


def test_keywords_of_other_types_are_other_programs(streams: Streams, driver: FakeDriver) -> None:
    """Though they equal each other: what a tile of integers is multiplied by says whether it wraps."""
    loaded: list[int] = []
    for by in (2, 2.0, 1, True, 1.0, 0.0, -0.0, 2, 1.0, -0.0):
        multiplied(*pair(FakeTensor), by=by)
        loaded.append(driver.kinds().count("load"))
    assert loaded == [1, 2, 3, 4, 5, 6, 7, 7, 7, 7]


def test_arrays_of_the_host_are_simulated_after_a_launch(streams: Streams, driver: FakeDriver) -> None:
    increased(*pair(FakeTensor))
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    increased(x, y)
    assert (y == 2).all()
    assert len(driver.launches) == 1
