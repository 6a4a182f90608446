"""Device functions for the asynchronous instructions of sm_90a; each is one instruction, or a loop around one.

Arrives and waits have no explicit scope: data moves through the async proxy only, and the scoped forms halve the
throughput of a ring buffer across a cluster (measured on H200).
"""

from __future__ import annotations

_INLINE = "__device__ __forceinline__ void"


def _coordinates(rank: int, first: int) -> tuple[str, str, str]:
    """Parameters, operand places from ``first``, and operands of a box's coordinates."""
    coords = ", ".join(f"int c{i}" for i in range(rank))
    places = ", ".join(f"%{first + i}" for i in range(rank))
    return coords, places, ", ".join(f'"r"(c{i})' for i in range(rank))


def _load(rank: int, *, multicast: bool = False, evict_first: bool = False) -> str:
    """Loads a box into shared memory; ``multicast``: into every CTA of ``mask``, at the same offset, signalling that
    CTA's own mbarrier; ``evict_first``: with the L2 evict-first cache policy."""
    coords, places, values = _coordinates(rank, 2)
    name, form, mask, last, given, before, after = f"tma_load_{rank}d", "", "", "", "", "", ""
    if multicast:
        name, form, mask = f"tma_multicast_{rank}d", ".multicast::cluster", " int mask,"
        last, given = f", %{3 + rank}", ', "h"((unsigned short)mask)'
    if evict_first:
        name, form, last, after = f"tma_load_first_{rank}d", ".L2::cache_hint", ", policy", ";\\n}"
        before = "{\\n.reg .b64 policy;\\ncreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\\n"
    return (
        f"{_INLINE} {name}(unsigned to, const TensorMap* map, unsigned bar,{mask} {coords}) {{\n"
        f'  asm volatile("{before}cp.async.bulk.tensor.{rank}d.shared::cluster.global'
        f".mbarrier::complete_tx::bytes{form} "
        f'[%0], [%1, {{{places}}}], [%{2 + rank}]{last}{after or ";"}"\n'
        f'    :: "r"(to), "l"(map), {values}, "r"(bar){given} : "memory");\n}}'
    )


def _store(rank: int) -> str:
    coords, places, values = _coordinates(rank, 1)
    return (
        f"{_INLINE} tma_store_{rank}d(const TensorMap* map, unsigned from, {coords}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group '
        f'[%0, {{{places}}}], [%{1 + rank}];"\n'
        f'    :: "l"(map), {values}, "r"(from) : "memory");\n}}'
    )


def _thread_copy(size: int) -> str:
    """cp.async of ``size`` bytes from global to shared memory: ``read`` bytes are read, the others are zero-filled;
    copies of 16 bytes bypass the L1 cache."""
    return (
        f"{_INLINE} cp_async_{size}(unsigned to, const void* from, int read) {{\n"
        f'  asm volatile("cp.async.{"cg" if size == 16 else "ca"}.shared.global [%0], [%1], {size}, %2;"\n'
        f'    :: "r"(to), "l"(from), "r"(read) : "memory");\n}}'
    )


def _cluster_load(size: int) -> str:
    """``size`` bytes of shared memory, at the address that ``from`` is in CTA ``cta`` of the cluster."""
    vector, lanes = {4: ("unsigned", ""), 8: ("uint2", "xy"), 16: ("uint4", "xyzw")}[size]
    words = [f"word.{lane}" for lane in lanes] or ["word"]
    form = f"v{len(words)}.u32 {{{', '.join(f'%{i}' for i in range(len(words)))}}}" if lanes else "u32 %0"
    given = ", ".join(f'"=r"({word})' for word in words)
    mapped = f"mapa.shared::cluster.u32 there, %{len(words)}, %{len(words) + 1};"
    return (
        f"__device__ __forceinline__ {vector} cluster_load_{size}(unsigned from, int cta) {{\n  {vector} word;\n"
        f'  asm volatile("{{\\n.reg .b32 there;\\n{mapped}\\nld.shared::cluster.{form}, [there];\\n}}"\n'
        f'    : {given} : "r"(from), "r"(cta) : "memory");\n  return word;\n}}'
    )


FUNCTIONS: dict[str, str] = {
    "elect_one": """__device__ __forceinline__ bool elect_one() {
  unsigned mine;
  asm volatile("{\\n.reg .pred elected;\\nelect.sync _|elected, 0xffffffff;\\nselp.b32 %0, 1, 0, elected;\\n}"
    : "=r"(mine));
  return mine != 0u;
}""",
    "warp_of": """__device__ __forceinline__ int warp_of(int tid) {
  return __shfl_sync(0xffffffffu, tid >> 5, 0);
}""",
    "mbarrier_init": """__device__ __forceinline__ void mbarrier_init(unsigned bar, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}""",
    "mbarrier_arrive": """__device__ __forceinline__ void mbarrier_arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}""",
    "mbarrier_arrive_expect_tx": """__device__ __forceinline__
void mbarrier_arrive_expect_tx(unsigned bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}""",
    "mbarrier_wait": """__device__ __forceinline__ void mbarrier_wait(unsigned bar, unsigned parity) {
  asm volatile("{\\n.reg .pred done;\\nWAIT_%=:\\n"
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n@done bra DONE_%=;\\nbra WAIT_%=;\\nDONE_%=:\\n}"
    :: "r"(bar), "r"(parity) : "memory");
}""",
    "named_barrier_sync": """__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}""",
    "named_barrier_arrive": """__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}""",
    "mbarrier_arrive_at": """__device__ __forceinline__ void mbarrier_arrive_at(unsigned bar, int cta) {
  asm volatile("{\\n.reg .b32 there;\\nmapa.shared::cluster.u32 there, %0, %1;\\n"
    "mbarrier.arrive.shared::cluster.b64 _, [there];\\n}" :: "r"(bar), "r"(cta) : "memory");
}""",
    "cluster_rank": """__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}""",
    "opaque": """__device__ __forceinline__ void opaque(int& value) { asm volatile("" : "+r"(value)); }
template <class T> __device__ __forceinline__ void opaque(T*& value) { asm volatile("" : "+l"(value)); }""",
    "cp_async_arrive": """__device__ __forceinline__ void cp_async_arrive(unsigned bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
}""",
    **{f"cp_async_{size}": _thread_copy(size) for size in (4, 8, 16)},
    **{f"cluster_load_{size}": _cluster_load(size) for size in (4, 8, 16)},
    **{f"tma_load_{rank}d": _load(rank) for rank in range(1, 6)},
    **{f"tma_load_first_{rank}d": _load(rank, evict_first=True) for rank in range(1, 6)},
    **{f"tma_multicast_{rank}d": _load(rank, multicast=True) for rank in range(1, 6)},
    **{f"tma_store_{rank}d": _store(rank) for rank in range(1, 6)},
}

TENSOR_MAP = "struct alignas(64) TensorMap { char bytes[128]; };"


def wgmma(name: str, n: int, kind: str, k: int, a_major: int, b_major: int, *, registers: bool) -> str:
    """One wgmma m64 ``n`` ``k`` with f32 accumulators ``d[0 .. n/2 - 1]``; A from a descriptor or from registers.

    Only the 16-bit forms have transpose immediates, for MN-major operands.
    """
    count = n // 2
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    places = ", ".join(f"%{i}" for i in range(count))
    if registers:
        left, inputs, last = "const unsigned* a", '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)', count + 4
        operands = f"{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}, %{count + 4}"
        majors = f", {b_major}"
    else:
        left, inputs, last = "unsigned long long a", '"l"(a), "l"(b)', count + 1
        operands = f"%{count}, %{count + 1}"
        majors = f", {a_major}, {b_major}"
    if k != 16:
        majors = ""
    return (
        f"{_INLINE} {name}(float* d, {left}, unsigned long long b, int accumulate) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{last + 1}, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} {{{places}}}, "\n'
        f'    "{operands}, p, 1, 1{majors};\\n}}\\n"\n'
        f'    : {outputs} : {inputs}, "r"(accumulate));\n}}'
    )
