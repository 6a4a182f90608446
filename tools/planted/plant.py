"""Imports a changed copy of one module in place of the module. Nothing on disk is touched."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from planted.mutant import Mutant


class _Loader(SourceFileLoader):
    """Compiles the changed source; bytecode of the unchanged one is neither read nor written."""

    def __init__(self, mutant: Mutant):
        super().__init__(mutant.module, str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutant.applied(self._mutant.path.read_text()), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant):
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        spec.loader = _Loader(self._mutant)
        return spec


def plant(mutant: Mutant) -> None:
    """From now on ``mutant``'s module is imported with its bug. It must not have been imported before."""
    assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _Finder(mutant))
