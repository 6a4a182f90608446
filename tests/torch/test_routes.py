"""Calls such as were served before: what guards tell apart, and that a known call launches what an ordinary one does.

Tensors of the CPU stand in for CUDA ones; the driver records.
"""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from support.fake_driver import FakeDriver
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tilewright import ops  # noqa: E402
from tilewright.ops import routes  # noqa: E402
from tilewright.ops.functional import norms, paged  # noqa: E402
from tilewright.runtime import arguments  # noqa: E402
from tilewright.runtime.program import Program  # noqa: E402
from tilewright.runtime.tensor_guards import guard  # noqa: E402

STREAM = 0xABC0


# -- guards -----------------------------------------------------------------------------------------------------------
class Sub(torch.Tensor):
    """A subclass."""


class Seeing(TorchDispatchMode):
    """Notes what is called under it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


X = torch.zeros(4, 6)
OTHERS = {
    "another shape": lambda: torch.zeros(6, 4),
    "other strides": lambda: torch.zeros(6, 4).t(),
    "another rank": lambda: torch.zeros(4, 6, 1),
    "another dtype": lambda: torch.zeros(4, 6, dtype=torch.int32),
    "a gradient wanted": lambda: torch.zeros(4, 6, requires_grad=True),
    "another device": lambda: torch.zeros(4, 6, device="meta"),
    "a subclass": lambda: torch.zeros(4, 6).as_subclass(Sub),
    "a parameter": lambda: torch.nn.Parameter(torch.zeros(4, 6), requires_grad=False),
    "a negative view": lambda: torch.zeros(4, 6, dtype=torch.complex64).conj().imag.contiguous()._neg_view(),
    "zeros without memory": lambda: torch._efficientzerotensor(4, 6),
    "none": lambda: None,
}


def told() -> Any:
    made = guard((X,))
    assert made is not None
    return made[0]


@pytest.mark.parametrize("what", OTHERS)
def test_a_guard_tells_other_tensors(what: str) -> None:
    check = told()
    assert check(torch.ones(4, 6))
    assert not check(OTHERS[what]())


def test_a_guard_tells_modes_and_transforms() -> None:
    check, found = told(), {}

    def ask(x: Any, name: str) -> Any:
        found[name] = check(X), type(x) is torch.Tensor and check(x)
        return x * 1

    torch.vmap(lambda x: ask(x, "vmap"))(torch.zeros(2, 4, 6))
    torch.func.grad(lambda x: ask(x, "grad").sum())(torch.zeros(4, 6))
    make_fx(lambda x: ask(x, "make_fx"))(torch.zeros(4, 6))
    torch.jit.trace(lambda x: ask(x, "trace"), (torch.zeros(4, 6),), check_trace=False)
    with Seeing():
        ask(X, "a mode")
    with torch.autocast("cpu", torch.bfloat16):
        ask(X, "autocast")
    seen = found.pop("make_fx")  # told by its mode alone
    assert seen == (True, True)
    assert found == dict.fromkeys(("vmap", "grad", "trace", "a mode", "autocast"), (False, False))
    assert check(X)


def test_a_guard_keeps_no_tensor_and_a_tensor_that_comes_twice_has_none() -> None:
    x = torch.zeros(3)
    assert guard((x, x)) is None
    made, gone = guard((x,)), weakref.ref(x)
    assert made is not None
    del x
    gc.collect()
    assert gone() is None


# -- a stand-in for a GPU ---------------------------------------------------------------------------------------------
FAKE = FakeDriver()
"""One for all tests, as programs are."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake, from_torch = FAKE, arguments._from_torch
    fake.words = 2
    fake.snapshots.clear()

    def on_gpu(name: str, tensor: Any) -> Any:
        return replace(from_torch(name, tensor), on_cpu=False, device=0)

    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    monkeypatch.setattr(arguments, "_from_torch", on_gpu)
    monkeypatch.setattr("tilewright.jit.pytorch.is_on_cpu", lambda value: False)
    monkeypatch.setattr("tilewright.jit.pytorch.raw_stream", lambda device: STREAM + device)
    monkeypatch.setattr("tilewright.jit.pytorch.current_stream", lambda tensor: STREAM)
    monkeypatch.setattr(routes, "_current_device", lambda: 0)
    monkeypatch.setattr(routes, "_raw_stream", lambda device: STREAM + device)
    monkeypatch.setattr(routes, "_empty_strided_cuda", torch._C._dynamo.guards._empty_strided_cpu)
    monkeypatch.setattr("tilewright.runtime.load", lambda artifact: Program(artifact, fake))
    monkeypatch.setattr("tilewright.runtime.capability", lambda described: (9, 0))
    return fake


def aligned(*shape: int, dtype: Any = torch.float32) -> Any:
    """A tensor at a multiple of 64 bytes."""
    whole = torch.zeros(shape.__len__() and torch.Size(shape).numel() + 64, dtype=dtype)
    skip = -whole.data_ptr() % 64 // whole.element_size()
    return whole[skip : skip + torch.Size(shape).numel()].view(shape)


@pytest.fixture
def normed() -> Any:
    """An operator of its own for each test: x times a scale, and times w if it is given."""

    @tw.op(name="tests_routes::normed", backward=lambda x, dy: (dy * 2, None))
    @tw.kernel
    def normed(
        x: tw.Tensor["M", "N"],
        w: tw.Tensor["N"] | None,
        y: tw.Tensor["M", "N"],
        *,
        scale: tw.f32 = 2.0,
        twice: bool = False,
        bm=4,
    ):
        m = tw.grid(x.shape[0], bm)
        n = tw.axis(x.shape[1], upto=64)
        v = x[m, n] * scale
        v = v if w is None else v * w[n]
        y[m, n] = v * 2 if twice else v

    return normed


def known(op: Any, *args: Any) -> Any:
    """A call until a route serves it."""
    for _ in range(4):
        op(*args)
    values = (*args, *op._tails[len(args)])
    assert op._execution.routes.find(values) is not None
    return op(*args)


def test_a_known_call_launches_what_an_ordinary_one_does(driver: FakeDriver, normed: Any) -> None:
    driver.words = 3
    x, w, loads = aligned(6, 64), aligned(64), driver.kinds().count("load")
    first = normed(x, w, 3.0)
    known(normed, x, w, 3.0)
    y = normed(x, w, 5.0)
    ordinary, *_, last = driver.snapshots
    assert last[0].stream == ordinary[0].stream == STREAM
    assert last[1][:3] == [x.data_ptr(), w.data_ptr(), y.data_ptr()]
    assert ordinary[1][:2] == last[1][:2]
    assert (y.shape, y.stride(), y.dtype, y.requires_grad) == (first.shape, first.stride(), first.dtype, False)
    assert next(i for i in range(3, 16) if last[0].f32(i) == 5.0)
    other = aligned(6, 64)
    assert known(normed, other, w, 5.0).data_ptr() not in (y.data_ptr(), other.data_ptr())
    assert driver.snapshots[-1][1][0] == other.data_ptr()
    assert driver.kinds().count("load") == loads + 1


def test_many_shapes_in_turn_have_each_their_route(driver: FakeDriver, normed: Any) -> None:
    w, given = aligned(64), [aligned(rows, 64) for rows in range(1, 41)]
    for _ in range(3):
        for x in given:
            normed(x, w)
    find, match = normed._execution.routes.find, normed._execution._kernel.match
    for x in given:
        route = find((x, w, 2.0, False, 4))
        assert route is not None
        assert route.steps.made[0][0] == x.shape
        assert match((x, w, aligned(*x.shape), 2.0), {}) is not None


def test_a_new_shape_is_known_however_many_calls_were_not(driver: FakeDriver, normed: Any) -> None:
    w = aligned(64)
    for rows in range(1, 21):
        for _ in range(5):
            normed(aligned(rows, 64), w)
    x = aligned(21, 64)
    for _ in range(2):
        normed(x, w)
    assert normed._execution.routes.find((x, w, 2.0, False, 4)) is not None


def test_other_calls_are_not_served_by_a_route(driver: FakeDriver, normed: Any) -> None:
    x, w = aligned(6, 64), aligned(64)
    known(normed, x, w, 2.0)
    find = normed._execution.routes.find
    assert find((x, w, 2.0, False, 4)) is not None
    wide = aligned(6, 65)
    for values in (
        (x, None, 2.0, False, 4),
        (x, w, 2.0, True, 4),
        (x, w, 2.0, False, 8),
        (aligned(7, 64), w, 2.0, False, 4),
        (wide[:, :64], w, 2.0, False, 4),
        (x.clone().requires_grad_(), w, 2.0, False, 4),
        (x.as_subclass(Sub), w, 2.0, False, 4),
        (x._neg_view(), w, 2.0, False, 4),
    ):
        assert find(values) is None
    with torch.autocast("cpu"):
        assert find((x, w, 2.0, False, 4)) is None
    with torch.device("cpu"):  # a mode of functions
        assert find((x, w, 2.0, False, 4)) is None


@pytest.fixture
def shifted() -> Any:
    """An operator whose keyword is a constant of its program."""

    @tw.op(name="tests_routes::shifted")
    @tw.kernel
    def shifted(x: tw.Tensor["N"], y: tw.Tensor["N"], *, sign: float = 0.0, bn=16):
        n = tw.grid(x.shape[0], bn)
        y[n] = x[n] * sign

    return shifted


def test_keywords_that_equal_each_other_have_routes_of_their_own(driver: FakeDriver, shifted: Any) -> None:
    x, loads = aligned(64), driver.kinds().count("load")
    known(shifted, x, 0.0)
    find = shifted._execution.routes.find
    for other in (-0.0, 0, False):
        assert find((x, other, 16)) is None
    assert find((x, float("0"), 16)) is not None
    known(shifted, x, -0.0)
    assert driver.kinds().count("load") == loads + 2


def test_a_keyword_that_equals_its_default_is_given_where_it_is_another_number(shifted: Any) -> None:
    x = torch.ones(5)
    assert torch.signbit(shifted(x, -0.0)).all()
    assert not torch.signbit(shifted(x, 0.0)).any()


def test_a_nested_tensor_behind_a_known_call_is_refused(driver: FakeDriver, normed: Any) -> None:
    """PyTorch's guard of such a tensor ended the process."""
    x, w = aligned(6, 64), aligned(64)
    known(normed, x, w, 2.0)
    nested = torch.nested.nested_tensor([x, x])
    assert normed._execution.routes.find((nested, w, 2.0, False, 4)) is None
    for given in ((nested, w), (x, nested)):
        with pytest.raises((tw.TilewrightError, RuntimeError)):
            normed(*given, 2.0)
    with pytest.raises(tw.TilewrightError, match="a nested tensor"):
        ops.rms_norm(nested, w)


def test_a_route_of_aligned_tensors_does_not_serve_others(driver: FakeDriver, normed: Any) -> None:
    driver.words = 3
    x, w = aligned(6, 64), aligned(64)
    known(normed, x, w)
    loads, skewed = driver.kinds().count("load"), aligned(6 * 64 + 1)[1:].view(6, 64)
    route = normed._execution.routes.find((skewed, w, 2.0, False, 4))
    assert route is not None
    assert route.launch((skewed, w, 2.0, False, 4)) is None
    y = normed(skewed, w)
    assert driver.snapshots[-1][1][:3] == [skewed.data_ptr(), w.data_ptr(), y.data_ptr()]
    assert driver.kinds().count("load") == loads + 1  # the program of its own class


def test_gradients_and_modes_see_a_known_call(driver: FakeDriver, normed: Any) -> None:
    x, w = aligned(6, 64).requires_grad_(), aligned(64)
    y = known(normed, x, w)
    assert y.requires_grad
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert (dx == 2).all()
    with torch.no_grad():
        assert not known(normed, x, w).requires_grad
    with torch.inference_mode():
        assert normed(x, w).is_inference()
    plain = aligned(6, 64)
    known(normed, plain, w)
    with Seeing() as mode:
        normed(plain, w)
    assert any("normed" in name for name in mode.seen)
    traced = make_fx(lambda x: normed(x, w))(plain)
    assert "tests_routes.normed" in traced.code
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(plain, torch.ones_like(plain))
        with pytest.raises(Exception, match=r"."):
            normed(dual, w)


def test_functions_take_routes_for_rows_of_any_rank(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.words = 3
    w = aligned(64, dtype=torch.bfloat16)
    for shape in ((6, 64), (2, 3, 64), (64,)):
        x = aligned(*shape, dtype=torch.bfloat16)
        for _ in range(8):
            y = ops.rms_norm(x, w)
        assert norms_known(x, w)
        assert y.shape == x.shape
        assert y.is_contiguous()
        assert driver.snapshots[-1][1][:3] == [x.data_ptr(), w.data_ptr(), y.data_ptr()]
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    with torch.autocast("cpu", torch.bfloat16):  # whose keys those of CUDA's stand for
        for _ in range(3):
            assert ops.rms_norm(x, w).dtype == torch.float32
    assert ops.rms_norm(x, w).dtype == torch.bfloat16


def test_a_known_call_writes_into_out(driver: FakeDriver, normed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.words = 3
    x, w, y = aligned(6, 64), aligned(64), aligned(6, 64)
    for _ in range(4):
        assert normed(x, w, 3.0, out=y) is y
    ordinary, version, launches = driver.snapshots[0], y._version, len(driver.snapshots)
    with monkeypatch.context() as patched:
        patched.setattr(normed._execution, "run_into", lambda *_: pytest.fail("not by its route"))
        assert normed(x, w, 5.0, out=y) is y
    last = driver.snapshots[-1]
    assert len(driver.snapshots) == launches + 1
    assert last[0].stream == STREAM
    assert last[1][:3] == ordinary[1][:3] == [x.data_ptr(), w.data_ptr(), y.data_ptr()]
    assert next(i for i in range(3, 16) if last[0].f32(i) == 5.0)
    assert y._version > version
    for refused in (aligned(7, 64), aligned(6, 64, dtype=torch.bfloat16), (y, y), (y,), [y], [], 3):
        with pytest.raises(tw.TilewrightError, match="JIT010"):
            normed(x, w, 3.0, out=refused)
    with pytest.raises(tw.TilewrightError, match="JIT011"):
        normed(x.clone().requires_grad_(), w, 3.0, out=y)
    with pytest.raises(tw.TilewrightError, match="RUN010"):
        normed(x, w, 3.0, out=x)


def test_a_function_asks_for_the_route_of_out_first(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, y = aligned(6, 64), aligned(64), aligned(6, 64)
    for _ in range(4):
        assert ops.rms_norm(x, w, out=y) is y
    launches = len(driver.snapshots)
    monkeypatch.setattr(norms, "on_rows", lambda *_, **named: pytest.fail("not by its route"))
    assert ops.rms_norm(x, w, out=y) is y
    assert len(driver.snapshots) == launches + 1


def test_a_known_call_that_wants_a_gradient_is_found_once(
    driver: FakeDriver, normed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w, asked = aligned(6, 64).requires_grad_(), aligned(64), []
    known(normed, x, w)
    find = normed._find
    monkeypatch.setattr(normed, "_find", lambda values: asked.append(values) or find(values))
    launches = len(driver.snapshots)
    assert (torch.autograd.grad(normed(x, w).sum(), x)[0] == 2).all()
    assert (len(asked), len(driver.snapshots)) == (1, launches + 1)


def test_out_tells_autograd_what_was_changed_beside_it() -> None:
    @tw.op(name="tests_routes::counted", mutates=("count",))
    @tw.kernel
    def counted(x: tw.Tensor["N"], count: tw.Tensor["N"], y: tw.Tensor["N"], *, bn: int = 16):
        n = tw.grid(x, bn)
        y[n] = x[n] + count[n]
        count[n] = count[n] + 1.0

    x, count, y = torch.ones(16), torch.zeros(16), torch.zeros(16)
    before = count._version
    counted(x, count, out=y)
    assert torch.equal(count, torch.ones(16))
    assert count._version > before


def norms_known(x: Any, w: Any) -> bool:
    return norms._rms_norm._execution.routes.find((x, w, 1e-6, *norms._rms_norm._tails[3])) is not None


@pytest.mark.parametrize("split", [1024, 64])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_a_known_decode_launches_what_an_ordinary_one_does(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, split: int, layout: str
) -> None:
    monkeypatch.setattr(paged, "_processors", lambda q: 132)
    monkeypatch.setattr(paged, "_routes", routes.Routes(5, routes.picker((6, 7, 8, 9))))
    q = aligned(4, 8, 128, dtype=torch.bfloat16)
    shape = (32, 16, 2, 128) if layout == "NHD" else (32, 2, 16, 128)
    k, v = (aligned(*shape, dtype=torch.bfloat16) for _ in range(2))
    table, lengths = aligned(4, 8, dtype=torch.int32), aligned(4, dtype=torch.int32)
    count = 1 if split == 1024 else 2

    def launched() -> tuple[Any, list[Any]]:
        """What was launched, its first parameters as the names of what they are addresses of."""
        before = len(driver.snapshots)
        y, lse = ops.paged_decode_with_lse(q, k, v, table, lengths, split=split, layout=layout)
        done = driver.snapshots[before:]
        assert len(done) == count
        known = {t.data_ptr(): n for n, t in enumerate((q, k, v, table, lengths, y, lse))}
        steps = [(launch.symbol, launch.shape, launch.stream, [known.get(w) for w in words]) for launch, words in done]
        return (y.shape, y.stride(), lse.shape, lse.stride(), lse.dtype), steps

    driver.words = 4
    ordinary = launched()
    for _ in range(6):
        again = launched()
        assert again == ordinary
    values = (q, k, v, table, lengths, 128**-0.5, layout, None, split, None)
    assert paged._routes.find(values) is not None
    assert paged._routes.find((*values[:8], 128, None)) is None


# -- raw kernels ------------------------------------------------------------------------------------------------------
@pytest.fixture
def scaled() -> Any:
    @tw.kernel
    def scaled(
        x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], w: tw.Tensor["N"] | None = None, *, a: tw.f32 = 1.0, bm=4
    ):
        m = tw.grid(x.shape[0], bm)
        n = tw.axis(x.shape[1], upto=64)
        v = x[m, n] * a
        y[m, n] = v if w is None else v * w[n]

    return scaled


def test_a_kernel_is_launched_by_its_guards(driver: FakeDriver, scaled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, w = aligned(6, 64), aligned(6, 64), aligned(64)
    for _ in range(3):
        scaled(x, y, a=2.0)
        scaled(x, y, w)
    monkeypatch.setattr(Program, "_look_up", lambda *_: pytest.fail("looked up"))
    scaled(x, y, a=4.0)
    launch, words = driver.snapshots[-1]
    assert words[:2] == [x.data_ptr(), y.data_ptr()]
    assert next(i for i in range(2, 12) if launch.f32(i) == 4.0)
    driver.words = 3
    scaled(x, y, w)
    assert driver.snapshots[-1][1][:3] == [x.data_ptr(), y.data_ptr(), w.data_ptr()]


def test_guards_do_not_hide_what_a_launch_refuses(driver: FakeDriver, scaled: Any) -> None:
    x, y = aligned(6, 64), aligned(6, 64)
    for _ in range(3):
        scaled(x, y)
    whole = aligned(13, 64)
    for given in ((x, x), (whole[:6], whole[5:11])):
        with pytest.raises(tw.TilewrightError) as caught:
            scaled(*given)
        assert caught.value.code == "RUN010"
    scaled(whole[:6], whole[6:12])
    launches = len(driver.snapshots)
    for refused in (x._neg_view(), torch._efficientzerotensor(6, 64)):
        with pytest.raises(tw.TilewrightError) as caught:
            scaled(refused, y)
        assert caught.value.code == "RUN001"
    with pytest.raises(tw.TilewrightError) as caught:
        scaled(x._neg_view(), y)
    assert "resolve_neg" in str(caught.value)
    assert len(driver.snapshots) == launches


def test_unaligned_tensors_are_not_served_by_the_plan_of_aligned_ones(driver: FakeDriver, scaled: Any) -> None:
    x, y = aligned(6, 64), aligned(6, 64)
    for _ in range(3):
        scaled(x, y)
    loads = driver.kinds().count("load")
    skewed = aligned(6 * 64 + 1)[1:].view(6, 64)
    scaled(skewed, y)
    assert driver.kinds().count("load") == loads + 1
    assert driver.snapshots[-1][1][:2] == [skewed.data_ptr(), y.data_ptr()]


def test_a_negative_view_in_the_host_s_memory_is_refused(scaled: Any) -> None:
    x = torch.ones(6, 64)
    with pytest.raises(tw.TilewrightError) as caught:
        scaled(x._neg_view(), torch.empty(6, 64))
    assert caught.value.code == "JIT003"
    y = torch.empty(6, 64)
    scaled(x._neg_view().resolve_neg(), y)
    assert (y == -1).all()
