"""The rules a protocol must keep, and the codes under which a breach is reported."""

from __future__ import annotations

from enum import Enum

from tilewright.diag import Diagnostic, Label, Location, Severity
from tilewright.diag.catalogue import CATALOGUE


class Policy(Enum):
    """How strictly the proxy rules are applied. STRICT: a generic read needs a proxy fence before an asynchronous write
    of the same bytes; a generic write that an asynchronous op reads is fenced by the writer. LENIENT: the first is a
    warning, and the reader may fence."""

    STRICT = "strict"
    LENIENT = "lenient"


class Rule(Enum):
    """One rule: the code of its violation, and a short name. The catalogue has the rest under the code."""

    COUNT = "MBR010", "arrival counts"
    BYTES = "MBR011", "transaction bytes"
    DEADLOCK = "MBR012", "deadlock freedom"
    LAPPING = "MBR013", "no lapping"
    EARLY = "MBR014", "phase order at waits"
    RECYCLE = "MBR015", "barrier recycling"
    READ_EARLY = "MBR016", "bytes are there before they are read"
    OVERWRITE = "MBR017", "bytes are read before they are overwritten"
    WRITE_WRITE = "MBR018", "writes are ordered"
    FENCE_RAW = "MBR019", "proxy fence after generic writes"
    FENCE_WAR = "MBR020", "proxy fence before asynchronous overwrites"
    INIT = "MBR021", "barrier initialisation"
    INIT_FENCE = "MBR022", "initialisation fence"
    GROUP = "MBR023", "groups are waited for"
    EXIT = "MBR024", "nothing in flight at exit"
    CLUSTER_EXIT = "MBR025", "peers outlive remote accesses"
    PEER_START = "MBR037", "peers run before remote accesses"
    BAR_RECYCLE = "MBR026", "named barrier recycling"
    BAR_SITE = "MBR027", "aligned barriers have one site"
    REGISTERS = "MBR028", "register pool"
    TMEM = "MBR029", "tensor memory lifetime"
    TCGEN_FENCE = "MBR030", "tcgen05 thread-sync fences"
    WGMMA_REGISTERS = "MBR031", "wgmma registers"
    TENSORMAP = "MBR033", "descriptor updates"
    CLUSTER_BARRIER = "MBR034", "cluster barrier use"
    SLOT_RANGE = "MBR035", "indices in range"
    LIMITS = "MBR038", "limits of the target"
    OPERANDS = "MBR039", "operands that instructions take"
    RESIDENT = "MBR040", "waits for CTAs that have begun"
    STRONG = "MBR041", "scopes of strong operations"
    RESET = "MBR042", "counters are zero for the next launch"

    def __init__(self, code: str, obligation: str):
        self.code, self.obligation = code, obligation

    @property
    def text(self) -> str:
        """The rule's statement."""
        why = CATALOGUE[self.code].why
        return why[0].lower() + why[1:].removesuffix(".")

    @property
    def source(self) -> str:
        """The rule's source."""
        return CATALOGUE[self.code].source

    @property
    def help(self) -> str:
        """How to repair a violation."""
        return CATALOGUE[self.code].help

    def diagnostic(
        self,
        found: str,
        where: Location | None = None,
        *,
        more_help: str = "",
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        severity: Severity = Severity.ERROR,
    ) -> Diagnostic:
        """The diagnostic of a violation, with the catalogue's text."""
        return Diagnostic(
            self.code,
            where=where,
            found=found,
            required=self.text,
            source=self.source,
            help=self.help + more_help,
            labels=labels,
            notes=notes,
            severity=severity,
        )


ASSUMPTIONS: tuple[tuple[str, str], ...] = (
    (
        "wgmma-whole-group",
        "a wgmma group is one operation of its warpgroup: when any of its threads returns from wgmma.wait_group, all "
        "four warps' reads of the group are done (CUTLASS releases a stage by one thread of the warpgroup on it)",
    ),
    (
        "tma-completion-fence",
        "bytes whose completion was observed on an mbarrier are visible to all reads without a fence "
        "(PTX ISA 9.1, 9.7.9.25.2)",
    ),
    (
        "relaxed-remote-release",
        "a remote arrive of .cta scope, or a relaxed one, orders asynchronous accesses, not generic ones "
        "(CUTLASS empty barriers)",
    ),
    (
        "asynchronous-arrivals-release-nothing",
        "the arrive of tcgen05.commit or cp.async.mbarrier.arrive publishes no generic access of its thread: of "
        "arrivals PTX ISA 9.1, 9.7.13.15.16, names those of mbarrier.arrive with release, and for "
        "cp.async.mbarrier.arrive the cp.async before it; where it is silent nothing is assumed",
    ),
    (
        "store-wait-covers-descriptor",
        "cp.async.bulk.wait_group, with or without .read, waits until the stores have read their tensor map, which may "
        "then be rewritten (PTX ISA 9.1, 9.7.9.27.2.2); that of a load is read when its bytes have landed",
    ),
    ("distinct-buffers", "buffers of one space overlap only as their declared offsets say"),
    ("data-independent-control", "control depends on counters, trip symbols, the CTA's rank and drawn tickets alone"),
    (
        "counters-of-one-launch",
        "while a grid runs nobody else touches its counters and buffers; a counter said to be reset is filled with "
        "zeros before each launch, any other was zero before the first",
    ),
    (
        "begun-ctas-go-on",
        "a CTA that has begun runs on until it ends, and a load in a loop returns the last value in the end (CUDA C++ "
        "Programming Guide, forward progress)",
    ),
)
"""Assumptions about the hardware and the protocol, by name."""
