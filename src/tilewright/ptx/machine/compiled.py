"""An entry compiled to Python functions, one for each segment; all its launches share them."""

from __future__ import annotations

from tilewright.ptx.flow import graph
from tilewright.ptx.machine.scratch import ArrayPool
from tilewright.ptx.machine.segments import Compiler
from tilewright.ptx.ssa import ssa
from tilewright.ptx.syntax import Entry, Module


class CompiledEntry:
    """An entry's segments, and where its registers lie."""

    def __init__(self, module: Module, name: str = ""):
        self.module = module
        self.entry: Entry = module.entry(name)
        self.flow = graph(self.entry)
        self.scratch = ArrayPool()
        compiler = Compiler(ssa(self.flow))
        self.segments = compiler.compiled()
        self.heads, self.slots, self.types, self.suspect = (
            compiler.heads,
            compiler.slots,
            compiler.types,
            compiler.suspect,
        )
