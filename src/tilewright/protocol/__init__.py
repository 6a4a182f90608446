"""Asynchronous protocols as plain data: roles, barriers, byte regions and what each role does in order.

``ops`` holds the operations, ``model`` the protocol, ``build`` the API for writing one by hand, ``text`` a notation
that round-trips, ``validate`` the checks of form.
"""

from __future__ import annotations

from tilewright.protocol.build import Build, PipelineHandle, RoleBuilder
from tilewright.protocol.lint import lints
from tilewright.protocol.model import (
    Buffer,
    By,
    GlobalCounter,
    If,
    Loop,
    MbarrierArray,
    Node,
    Pipeline,
    Protocol,
    Role,
    Step,
    Symbol,
    steps,
)
from tilewright.protocol.ops import Op, Region, Scope, Slot
from tilewright.protocol.pipelines import expand
from tilewright.protocol.recover import recover
from tilewright.protocol.text import from_text, to_text
from tilewright.protocol.validate import problems

__all__ = [
    "Buffer",
    "Build",
    "By",
    "GlobalCounter",
    "If",
    "Loop",
    "MbarrierArray",
    "Node",
    "Op",
    "Pipeline",
    "PipelineHandle",
    "Protocol",
    "Region",
    "Role",
    "RoleBuilder",
    "Scope",
    "Slot",
    "Step",
    "Symbol",
    "expand",
    "from_text",
    "lints",
    "problems",
    "recover",
    "steps",
    "to_text",
]
