"""Asynchronous protocols as plain data: roles, barriers, byte regions and what each role does in order.

``ops`` holds the operations, ``model`` the protocol, ``build`` the API for writing one by hand, ``text`` a notation
that round-trips, ``validate`` the checks of form.
"""

from __future__ import annotations

from tilewright.protocol.build import Build as Build
from tilewright.protocol.build import PipelineHandle as PipelineHandle
from tilewright.protocol.build import RoleBuilder as RoleBuilder
from tilewright.protocol.lint import lints as lints
from tilewright.protocol.model import Buffer as Buffer
from tilewright.protocol.model import By as By
from tilewright.protocol.model import GlobalCounter as GlobalCounter
from tilewright.protocol.model import If as If
from tilewright.protocol.model import Loop as Loop
from tilewright.protocol.model import MbarrierArray as MbarrierArray
from tilewright.protocol.model import Node as Node
from tilewright.protocol.model import Pipeline as Pipeline
from tilewright.protocol.model import Protocol as Protocol
from tilewright.protocol.model import Role as Role
from tilewright.protocol.model import Step as Step
from tilewright.protocol.model import Symbol as Symbol
from tilewright.protocol.model import steps as steps
from tilewright.protocol.ops import Op as Op
from tilewright.protocol.ops import Region as Region
from tilewright.protocol.ops import Scope as Scope
from tilewright.protocol.ops import Slot as Slot
from tilewright.protocol.pipelines import expand as expand
from tilewright.protocol.recover import recover as recover
from tilewright.protocol.text import from_text as from_text
from tilewright.protocol.text import to_text as to_text
from tilewright.protocol.well_formed import problems as problems
