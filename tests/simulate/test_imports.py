"""The oracle stands alone: it imports no calculus and no checker, and works when the layout room is broken."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tilewright.layout
from support.transport import softmax
from tilewright import simulate

_FORBIDDEN = ("legal", "protocol", "verify", "layout", "tier", "schedule", "codegen")


def test_no_module_of_the_simulator_imports_what_it_judges() -> None:
    for path in Path(inspect.getfile(simulate)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not any((name or "").startswith(f"tilewright.{room}") for room in _FORBIDDEN), (path, name)


def _modules() -> list[ModuleType]:
    found = pkgutil.iter_modules(tilewright.layout.__path__, "tilewright.layout.")
    return [pkgutil.resolve_name(info.name) for info in found]


def test_runs_with_every_function_of_layout_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = softmax()

    def broken(*args: object, **kwargs: object) -> None:
        raise AssertionError("the simulator called the layout calculus")

    replaced = 0
    for module in _modules():
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value):
                monkeypatch.setattr(module, name, broken)
                replaced += 1
            elif inspect.isclass(value) and value.__module__ == module.__name__:
                for attribute, member in list(vars(value).items()):
                    if inspect.isfunction(member):
                        monkeypatch.setattr(value, attribute, broken)
                        replaced += 1
    assert replaced > 50
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    y = np.zeros_like(x)
    simulate.run(kernel, {"x": x, "y": y})
    assert np.allclose(y.sum(1), 1)
