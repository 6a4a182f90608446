"""CUDA C++ of single wgmma products: one kernel for each operand type, width, source of A and majors.

Every kernel fills shared memory from an image, multiplies along K with the descriptors it is given and writes each
thread's accumulator registers, so that nothing about layouts is compiled in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.base.dtypes import DTYPES, DType
from tilewright.hw.rules.wgmma import INSTRUCTION_K_BITS, OPERAND_TYPES
from tilewright.hw.target.sm_90a import WGMMA_N, WGMMA_N_INTEGER

WIDTHS = (8, 24, 32, 64, 80, 96, 128, 160, 192, 208, 256)
"""Accumulator widths of every type; bf16 takes all that exist."""
_PTX_TYPE = {"i8": "s8", "i32": "s32"}


@dataclass(frozen=True)
class Program:
    """All kernels of one operand type, accumulator type and width."""

    dtype: DType
    accumulator: str
    n: int

    @property
    def name(self) -> str:
        """Also the name of the cubin."""
        return f"{self.dtype.name}_{self.accumulator}_n{self.n}"

    @property
    def registers(self) -> int:
        """32-bit accumulator registers of a thread."""
        return self.n // 4 if self.accumulator == "f16" else self.n // 2

    @property
    def variants(self) -> tuple[Variant, ...]:
        """A from shared memory or registers, and every pair of majors the type admits."""
        majors = (0, 1) if self.dtype.bits == 16 else (0,)
        shared = [Variant(False, a, b) for a in majors for b in majors]
        return (*shared, *(Variant(True, 0, b) for b in majors))

    @property
    def source(self) -> str:
        """The program's text."""
        return "\n".join(_kernel(self, variant) for variant in self.variants)


@dataclass(frozen=True)
class Variant:
    """One kernel: whether A comes from registers, and the transpose immediates (1: MN-major)."""

    a_in_registers: bool
    transpose_a: int
    transpose_b: int

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return f"{'rs' if self.a_in_registers else 'ss'}_{self.transpose_a}{self.transpose_b}"


def programs() -> Iterator[Program]:
    """Every operand type with every accumulator type, at the widths of ``WIDTHS`` it has."""
    for name, accumulators in OPERAND_TYPES.items():
        dtype = DTYPES[name]
        known = WGMMA_N_INTEGER if dtype.is_int else WGMMA_N
        for accumulator in accumulators:
            for n in known if name == "bf16" else (w for w in WIDTHS if w in known):
                yield Program(dtype, accumulator, n)


def _kernel(program: Program, variant: Variant) -> str:
    count = program.registers
    register = "float" if program.accumulator == "f32" else "unsigned"
    constraint = "f" if program.accumulator == "f32" else "r"
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))
    a_inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) if variant.a_in_registers else '"l"(a)'
    load_a = (
        "unsigned a[4]; for (int i = 0; i < 4; ++i) a[i] = fragments[(step * 128 + threadIdx.x) * 4 + i];"
        if variant.a_in_registers
        else "unsigned long long a = a_descriptors[step];"
    )
    poison = "__int_as_float(0x7fc00000)" if register == "float" else "0x7fff7fffu"
    word = "__float_as_uint(d[i])" if register == "float" else "d[i]"
    return f"""
extern "C" __global__ void __launch_bounds__(128) {variant.name}(
    const uint4* image, int units, const unsigned long long* a_descriptors, const unsigned long long* b_descriptors,
    const unsigned* fragments, int steps, unsigned* out, unsigned* base) {{
  extern __shared__ uint4 shared[];
  for (int i = threadIdx.x; i < units; i += 128) shared[i] = image[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) *base = (unsigned)__cvta_generic_to_shared(shared);
  {register} d[{count}];
#pragma unroll
  for (int i = 0; i < {count}; ++i) d[i] = {poison};
  for (int step = 0; step < steps; ++step) {{
    {load_a}
    unsigned long long b = b_descriptors[step];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + (4 if variant.a_in_registers else 1) + 1}, 0; "
                 "{_instruction(program, variant)} }}"
                 : {outputs} : {a_inputs}, "l"(b), "r"(step) : "memory");
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }}
#pragma unroll
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = {word};
}}"""


def _instruction(program: Program, variant: Variant) -> str:
    kind = _PTX_TYPE.get(program.dtype.name, program.dtype.name)
    accumulator = _PTX_TYPE.get(program.accumulator, program.accumulator)
    depth = INSTRUCTION_K_BITS // program.dtype.bits
    count = program.registers
    d = ", ".join(f"%{i}" for i in range(count))
    a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if variant.a_in_registers else f"%{count}"
    b = f"%{count + (4 if variant.a_in_registers else 1)}"
    signs = "" if program.dtype.is_int else ", 1, 1"
    majors = ""
    if program.dtype.bits == 16:
        majors = f", {variant.transpose_b}"
        if not variant.a_in_registers:
            majors = f", {variant.transpose_a}{majors}"
    shape = f"m64n{program.n}k{depth}"
    return f"wgmma.mma_async.sync.aligned.{shape}.{accumulator}.{kind}.{kind} {{{d}}}, {a}, {b}, p{signs}{majors};"
