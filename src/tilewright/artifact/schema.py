"""The artifact: a compiled program as plain data, complete enough to be launched by a runtime that knows no compiler.

An artifact serves one *specialisation class*: all arguments that satisfy its parameters, facts and bounds. Everything
that depends on the arguments (grids, workspace sizes, descriptor fields, which variant runs) is a closed integer
expression over these symbols:

    M               a dimension named by some parameter's ``dims``
    x.stride0       stride of dimension 0 of tensor x, in elements
    x.address       base address of tensor x, in bytes
    n               an integer scalar parameter
    $workspace0.address
                    address of the variant's workspace 0 in bytes (a descriptor's address only)

A program is a list of variants. The first one whose predicate holds runs its steps in order on one stream.
"""

# Annotations are evaluated here, not kept as text: the codec reads them, and a store hit has no time to parse them.

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.base.expr import Const, Expr, own
from tilewright.base.readable import condition

SCHEMA_VERSION = 7
"""Bundles of another version are refused. Raised by one with every change to this file that a reader can notice."""

ZERO: Expr = Const(0)

MAX_EXTENT = (1 << 31) - (1 << 21)
"""Longest axis of a tensor, most programs of a kernel whose CTAs walk them, and most steps that a CTA counts.
Coordinates in a tile at the end of such an axis still are 32-bit integers: a tile has 2^20 elements at most."""

WORKSPACE_ALIGN_BYTES = 256
"""Alignment of every workspace block; that of ``cuMemAllocAsync`` (CUDA Programming Guide, 6.2.2)."""


def workspace_address(index: int) -> str:
    """The symbol of a workspace's address."""
    return own(f"workspace{index}.address")


# -- parameters -----------------------------------------------------------------------------------------------------


class AccessMode(Enum):
    """How the program accesses a tensor."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "readwrite"

    @property
    def writes(self) -> bool:
        return self is not AccessMode.READ


@dataclass(frozen=True)
class TensorArgument:
    """A tensor argument. ``dims`` holds a symbol (the dimension's name) or a constant per dimension.

    A symbol that occurs more than once, in one tensor or in several, states that those extents agree.
    """

    name: str
    dtype: str
    dims: tuple[Expr, ...]
    access: AccessMode

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True)
class ScalarArgument:
    """A scalar argument of dtype ``i32``, ``i64``, ``u32``, ``bool``, ``f32``, ``f16`` or ``bf16``. Integers may
    appear in expressions by name."""

    name: str
    dtype: str


Parameter: TypeAlias = TensorArgument | ScalarArgument


@dataclass(frozen=True)
class ArgumentBound:
    """``symbol <= limit``: an axis declared ``upto=limit``, on which a kernel's tile was sized."""

    symbol: str
    limit: int

    def __str__(self) -> str:
        return f"{self.symbol} <= {self.limit}"


# -- steps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorPointer:
    """Address of tensor ``name`` plus ``offset`` bytes."""

    name: str
    offset: Expr = ZERO


@dataclass(frozen=True)
class WorkspacePointer:
    """Address of the variant's workspace ``index`` plus ``offset`` bytes."""

    index: int
    offset: Expr = ZERO


@dataclass(frozen=True)
class IntScalar:
    """A signed integer of ``bits`` (32 or 64); a value that doesn't fit is refused at launch."""

    value: Expr
    bits: int = 32


@dataclass(frozen=True)
class FloatScalar:
    """The floating scalar parameter ``name``, passed as its declared dtype."""

    name: str


@dataclass(frozen=True)
class TensorMapArg:
    """The descriptor that an earlier ``EncodeTensorMap`` of this variant wrote into ``slot``; passed by value."""

    slot: int


Pointer: TypeAlias = TensorPointer | WorkspacePointer
KernelArg: TypeAlias = TensorPointer | WorkspacePointer | IntScalar | FloatScalar | TensorMapArg


@dataclass(frozen=True)
class Launch:
    """Launch ``kernel`` (a ``KernelImage.symbol``) on ``grid`` CTAs; a grid with a zero extent launches nothing.

    ``args`` are the kernel's parameters in order. Threads, cluster and dynamic shared memory come from the image. CTAs
    of an ``early`` launch may begin before the launch before it has ended; the kernel waits for that itself.
    """

    kernel: str
    grid: tuple[Expr, Expr, Expr]
    args: tuple[KernelArg, ...]
    early: bool = False


@dataclass(frozen=True)
class Copy:
    """Copy ``size_bytes`` on the device."""

    source: Pointer
    destination: Pointer
    size_bytes: Expr


@dataclass(frozen=True)
class Fill:
    """Write ``count`` elements of ``width_bytes`` (1, 2 or 4), each the bit pattern ``pattern``."""

    destination: Pointer
    pattern: int
    width_bytes: int
    count: Expr


@dataclass(frozen=True)
class EncodeTensorMap:
    """Encode ``recipe`` on the host into ``slot``."""

    slot: int
    recipe: TensorMapRecipe


Step: TypeAlias = Launch | Copy | Fill | EncodeTensorMap


VALIDATION = "translation validation"
"""Method of obligations shown by comparing two programs, for all arguments of a class."""
EXECUTION = "execution"
"""Method of obligations tested by launches, for the arguments of these launches only."""
ASSUMPTION = "assumption"
"""Method of what a kernel's author states and samples do not contradict."""
CHECKED = "checked on the device"
"""Method of what steps of the program check on the device at each launch, before anything is stored."""
CONSTRUCTED = "by construction"
"""Method of what holds of a tensor because a plan of ours has made it, and a call gave the plan's handle."""
ASSUMED = (
    "ptxas: the machine code does what the PTX says",
    "the driver: a launch is what its recipe says",
    "the hardware: it does what the PTX ISA says",
    "the memory model: as docs/contracts.md reads it",
)
"""Assumptions of every certificate, which nothing here proves."""


@dataclass(frozen=True)
class Obligation:
    """One statement of a certificate: what holds (``once``, ``guards``), by which method it was decided, and for
    what."""

    name: str
    method: str
    detail: str = ""

    @property
    def standing(self) -> str:
        """``proved``, ``validated`` (compared, for all arguments), ``tested`` (executed, for a few), ``checked`` (at
        each launch), ``constructed`` (by a plan) or ``assumed``."""
        others = {VALIDATION: "validated", EXECUTION: "tested", CHECKED: "checked", ASSUMPTION: "assumed"}
        others |= {CONSTRUCTED: "constructed"}
        return others.get(self.method, "proved")


STANDINGS = ("proved", "validated", "tested", "checked", "constructed", "assumed")
"""The values of ``Obligation.standing``, the strongest first."""


@dataclass(frozen=True)
class PromiseReport:
    """Counters of broken promises, in workspace ``workspace``, which outlives a call: an i32 per promise, zero at
    first, counts the calls for which that promise did not hold. These calls stored nothing; a later call raises the
    diagnostic."""

    workspace: int
    promises: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One candidate for running the program, taken where its predicate is the first that holds.

    ``workspace`` lists scratch sizes in bytes, each block aligned to ``WORKSPACE_ALIGN_BYTES``; ``certificate`` is
    about the order of steps; ``plan`` describes what was chosen; ``reports`` are the workspaces, one at most, in which
    steps count broken promises.
    """

    name: str
    predicate: Expr
    steps: tuple[Step, ...]
    workspace: tuple[Expr, ...] = ()
    certificate: tuple[Obligation, ...] = ()
    plan: str = ""
    reports: tuple[PromiseReport, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """A class of arguments for which no kernel could be compiled; a call with them is refused unless a more general
    variant takes it. ``reason`` states why, ``help`` what the kernel's author can change."""

    predicate: Expr
    reason: str
    help: str

    def __str__(self) -> str:
        return f"no kernel if {condition(self.predicate)}: {self.reason}"


# -- kernels --------------------------------------------------------------------------------------------------------


NOT_COMPARED = "the PTX was not compared with the Transport IR"
"""Reason why a kernel's PTX is undecided where validation was not requested."""


@dataclass(frozen=True)
class KernelImage:
    """One assembled kernel and its sources.

    ``threads`` is per CTA; ``cluster`` is (1, 1, 1) without clusters; ``shared_bytes`` is dynamic shared memory;
    ``registers`` per thread and ``spill_bytes`` are what ptxas reported; ``undecided`` is the reason why its PTX is not
    shown to implement its Transport IR, empty where the certificate has that obligation; ``made_of`` names the
    ``OriginalProgram`` that was rewritten to its own, where one was, and that one at the extents of its CTAs' shares.
    """

    symbol: str
    threads: int
    cubin: bytes = field(metadata={"blob": "{symbol}.cubin"})
    source: str = field(default="", metadata={"blob": "{symbol}.cu"})
    ptx: str = field(default="", metadata={"blob": "{symbol}.ptx"})
    transport_ir: str = field(default="", metadata={"blob": "{symbol}.transport.mlir"})
    tile_ir: str = field(default="", metadata={"blob": "{symbol}.tile.mlir"})
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    static_shared_bytes: int = 0
    registers: int = 0
    spill_bytes: int = 0
    certificate: tuple[Obligation, ...] = ()
    undecided: tuple[str, ...] = ()
    made_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class OriginalProgram:
    """A program that a kernel was made of where its own is another one: with swapped operands, of a part of a stream or
    without its streams. Tile IR, at the extents of that kernel or of what its CTAs share."""

    name: str
    tile_ir: str = field(metadata={"blob": "{name}.program.mlir"})


@dataclass(frozen=True)
class Toolchain:
    """Name and version of one tool that took part."""

    name: str
    version: str


@dataclass(frozen=True)
class Artifact:
    """A compiled program. ``target`` names a row of ``hw.target``; ``facts`` are predicates that the arguments must
    satisfy; ``bounds`` what the variants' tiles were sized for, without the classes ``left_out``; ``plan`` is one
    human-readable note a line; ``schedule`` is the schedule's text form."""

    name: str
    target: str
    parameters: tuple[Parameter, ...]
    variants: tuple[Variant, ...]
    kernels: tuple[KernelImage, ...]
    facts: tuple[Expr, ...] = ()
    bounds: tuple[ArgumentBound, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    programs: tuple[OriginalProgram, ...] = ()
    toolchain: tuple[Toolchain, ...] = ()
    plan: tuple[str, ...] = ()
    schedule: str = ""
    tile_ir: str = field(default="", metadata={"blob": "tile.mlir"})
    schema_version: int = SCHEMA_VERSION

    def kernel(self, symbol: str) -> KernelImage:
        """The image called ``symbol``; ``KeyError`` if there is none."""
        for image in self.kernels:
            if image.symbol == symbol:
                return image
        raise KeyError(symbol)

    def programs_of(self, image: KernelImage) -> tuple[OriginalProgram, ...]:
        """The programs from which ``image`` was derived; none where its own program is the original."""
        named = {program.name: program for program in self.programs}
        return tuple(named[name] for name in image.made_of)

    @property
    def tensors(self) -> tuple[TensorArgument, ...]:
        return tuple(p for p in self.parameters if isinstance(p, TensorArgument))

    @property
    def source(self) -> str:
        """CUDA C++ of all kernels."""
        return "\n".join(image.source for image in self.kernels)

    @property
    def ptx(self) -> str:
        """PTX of all kernels."""
        return "\n".join(image.ptx for image in self.kernels)

    @property
    def compared(self) -> bool:
        """Whether each kernel's PTX was compared with its Transport IR, with any outcome."""
        return all(NOT_COMPARED not in image.undecided for image in self.kernels)

    @property
    def certificate(self) -> tuple[Obligation, ...]:
        """Every proved obligation: the kernels' and the variants'."""
        per_kernel = (o for image in self.kernels for o in image.certificate)
        return (*per_kernel, *(o for variant in self.variants for o in variant.certificate))
