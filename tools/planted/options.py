"""Bugs in what NVRTC and ptxas are told, and in what the compiler is told of the class of arguments."""

from __future__ import annotations

from planted.mutant import Kind, Mutant

_OPTIONS = 'b"--fmad=false", b"--no-cache")'


def _bug(
    name: str, what: str, file: str, old: str, new: str, *probes: str, named: bool = False, harmless: str = ""
) -> Mutant:
    return Mutant(name, Kind.OPTIONS, what, f"{file}.py", old, new, probes, named, harmless)


def _option(name: str, what: str, option: str, *probes: str, harmless: str = "") -> Mutant:
    """One option more."""
    return _bug(name, what, "codegen/assemble", _OPTIONS, f'{_OPTIONS[:-1]}, b"{option}")', *probes, harmless=harmless)


_ASSEMBLER = (
    _bug(
        "--fmad=false lost",
        "NVRTC may contract products and sums",
        "codegen/assemble",
        ', b"--fmad=false"',
        "",
        "fast",
        "captured",
        "gated",
        named=True,
    ),
    _bug(
        "contraction by the last option",
        "NVRTC is told to contract",
        "codegen/assemble",
        'b"--fmad=false"',
        'b"--fmad=true"',
        "captured",
        "gated",
    ),
    _option("fast math", "NVRTC uses fast math", "--use_fast_math", "roots", "gated", "softmax"),
    _option("denormals are zero", "NVRTC flushes denormals", "--ftz=true", "roots", "gated", "softmax"),
    _option("approximate quotients", "NVRTC divides by approximate reciprocals", "--prec-div=false", "roots", "gated"),
    _option("approximate roots", "NVRTC takes approximate square roots", "--prec-sqrt=false", "roots"),
    _option("a macro", "exp is another function", "-Dexpf=exp2f", "gated"),
    _option("a macro of intrinsics", "sums are rounded up", "-D__fadd_rn=__fadd_ru", "add", "row_sum"),
    _option("registers limited", "a thread gets 32 registers", "--maxrregcount=32", "nt", "tall"),
    _option("debug code", "NVRTC does not optimise", "--device-debug", "add", "nt"),
    _option("line numbers", "machine code with line numbers", "--generate-line-info", "add", "nt"),
    _option(
        "relocatable code", "machine code that a linker must still see", "--relocatable-device-code=true", "nt", "tall"
    ),
    _option("code for the linker", "NVRTC leaves its own code instead of PTX", "--dlink-time-opt", "add", "nt"),
    _option("ptxas without optimisation", "ptxas does not optimise", "--ptxas-options=-O0", "add", "nt"),
    _option("ptxas at -O1", "ptxas optimises less", "--ptxas-options=-O1", "add", "nt"),
    _bug(
        "the log unasked for",
        "ptxas does not say how many registers it takes and what it spills",
        "codegen/assemble",
        'b"--ptxas-options=-v", ',
        "",
        "nt",
        "add",
    ),
    _bug(
        "another architecture",
        "code for sm_90, without what sm_90a has",
        "codegen/assemble",
        'f"--gpu-architecture={arch}"',
        "f\"--gpu-architecture={arch.removesuffix('a')}\"",
        "nt",
        "add",
    ),
    _bug(
        "a virtual architecture",
        "PTX without machine code",
        "codegen/assemble",
        'f"--gpu-architecture={arch}"',
        "f\"--gpu-architecture={arch.replace('sm', 'compute')}\"",
        "nt",
        "add",
    ),
    _bug(
        "the next architecture",
        "code for sm_100a",
        "codegen/assemble",
        'f"--gpu-architecture={arch}"',
        'f"--gpu-architecture=sm_100a"',
        "nt",
        "add",
    ),
)

_CLASS = (
    _bug(
        "addresses unasked",
        "dispatch does not ask whether addresses are aligned",
        "schedule/facts",
        'result.append((Sym(f"{name}.address") % facts.align_bytes).eq(0))',
        "pass",
        "add",
        "softmax",
        "nt",
    ),
    _bug(
        "strides unasked",
        "dispatch does not ask whether rows are aligned",
        "schedule/facts",
        "result.append(any_of([dim <= 1, aligned]))",
        "pass",
        "softmax",
        "nt",
    ),
    _bug(
        "density unasked",
        "dispatch does not ask whether the last axis is dense",
        "schedule/facts",
        'result.append(Sym(f"{name}.stride{facts.unit_axis}").eq(1))',
        "pass",
        "add",
        "softmax",
        "nt",
    ),
    _bug(
        "direction unasked",
        "dispatch does not ask whether strides are positive",
        "schedule/facts",
        "if facts.forward:",
        "if not facts.forward:",
        "nt",
    ),
    _bug(
        "peers unasked",
        "dispatch does not ask whether rows of two tensors start alike",
        "schedule/facts",
        "if facts.peer:\n        result",
        "if not facts.peer and False:\n        result",
        "skewed",
    ),
    _bug(
        "offsets unasked",
        "dispatch does not ask whether offsets fit into 32 bits",
        "compiler/requests",
        "if facts.index_bits == 32:",
        "if facts.index_bits == 16:",
        "add",
        "softmax",
        "nt",
        named=True,
    ),
    _bug(
        "offsets of 33 bits",
        "dispatch takes offsets of 33 bits for such of 31",
        "schedule/facts",
        "reach < expr(1 << 31)",
        "reach < expr(1 << 33)",
        "add",
        "softmax",
        "nt",
        named=True,
    ),
    _bug(
        "counts unasked",
        "dispatch does not ask whether counters of programs fit",
        "compiler/counter_bounds",
        "if ctas is None:",
        "if True:",
        "nt",
        named=True,
    ),
    _bug(
        "last turn uncounted",
        "counters of threads that take turns are bounded by the programs of a CTA",
        "compiler/counter_bounds",
        " + max(op.interleaving[1] for op in walks) - 1",
        "",
        "pingpong",
    ),
    _bug(
        "narrow indices",
        "offsets are formed in 32 bits where the class needs 64",
        "schedule/lower",
        "index_bits=self.facts.index_bits",
        "index_bits=32",
        "add_wide",
    ),
    _bug(
        "accurate as fast",
        "an accurate kernel is lowered as a fast one",
        "schedule/hopper/lower",
        "numerics=source.numerics.data.value",
        'numerics="fast"',
        "gated",
    ),
    _bug(
        "plain accurate as fast",
        "an accurate kernel without products is lowered as a fast one",
        "schedule/lower",
        "numerics=source.numerics.data.value",
        'numerics="fast"',
        "floats",
        "roots",
    ),
    _bug(
        "bounds doubled",
        "dispatch takes rows twice as long as the tile",
        "compiler/requests",
        "bounds.append(ArgumentBound(extent.name, upto))",
        "bounds.append(ArgumentBound(extent.name, 2 * upto))",
        "row_max",
    ),
    _bug(
        "facts forgotten",
        "an artifact has none of its class's facts",
        "compiler/requests",
        "facts = list(assumptions_of(kernel, request.facts, workspaces=False))",
        "facts = list[Expr]()",
        "add",
        "nt",
    ),
    _bug(
        "read for written",
        "an output is declared an input",
        "compiler/requests",
        "AccessMode.WRITE if writes else AccessMode.READ\n",
        "AccessMode.READ\n",
        "add",
        "nt",
    ),
    _bug(
        "variant's sizes",
        "the kernel does not know the sizes of its class",
        "compiler/requests",
        "(*known, *found)",
        "(*known,)",
        "row_max",
        harmless="dispatch asks for the same, and the kernel's text and its proofs do without: it assumes less",
    ),
    _bug(
        "conditions of schedules",
        "dispatch does not ask what the schedule needs of extents",
        "compiler/program",
        "yield from (g for g in guards if binding.keys().isdisjoint(g.symbols))",
        "pass",
        "nt",
        "attention_wide",
    ),
    _bug(
        "wider facts of copies",
        "a workspace is said to be aligned to 32 bytes",
        "compiler/staging",
        "return TensorFacts(item.unit_axis, MAX_VECTOR_BYTES)",
        "return TensorFacts(item.unit_axis, 2 * MAX_VECTOR_BYTES)",
        "staged",
        harmless="workspaces begin at multiples of 256 bytes and their rows are padded to whole lines of 128",
    ),
)

OPTIONS = (*_ASSEMBLER, *_CLASS)
