"""What a debug build checks while it runs: waits end, threads agree, roles count alike.

    wait        spins for ``WAIT_LIMIT_MS`` at most, then names role, barrier, slot and parity, and traps
    uniform     the lanes that wait together wait for the same slot and parity
    balanced    at the end, the roles' counters of one ring agree: as many uses filled as freed

The checks call ``printf``, so that a debug build may spill and run its wgmmas one by one; it keeps the order of every
barrier, copy and fence. Named and cluster barriers have no form that gives up: a hang there shows as the role that
waits on an mbarrier for those that stand there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

WAIT_LIMIT_MS = 2000

_TELL = """__device__ __noinline__ void {name}({parameters}) {{
  printf("tilewright: {text}\\n", {arguments});
  asm volatile("trap;");
}}"""

FUNCTIONS: dict[str, str] = {
    "mbarrier_passed": """__device__ __forceinline__
int mbarrier_passed(unsigned bar, unsigned parity, unsigned long long limit_ns) {
  int done;
  asm volatile("{\\n.reg .pred done, more;\\n.reg .u64 begin, now;\\nmov.u64 begin, %%globaltimer;\\nWAIT_%=:\\n"
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\\n@done bra DONE_%=;\\n"
    "mov.u64 now, %%globaltimer;\\nsub.u64 now, now, begin;\\nsetp.lt.u64 more, now, %3;\\n@more bra WAIT_%=;\\n"
    "DONE_%=:\\nselp.s32 %0, 1, 0, done;\\n}" : "=r"(done) : "r"(bar), "r"(parity), "l"(limit_ns) : "memory");
  return done;
}""",
    "tell_wait": _TELL.format(
        name="tell_wait",
        parameters="const char* role, const char* bar, int slot, int parity",
        text=f"role %s, thread %d of CTA %d: {WAIT_LIMIT_MS} ms in a wait for %s[%d], phase of parity %d",
        arguments="role, (int)threadIdx.x, (int)blockIdx.x, bar, slot, parity",
    ),
    "tell_uneven": _TELL.format(
        name="tell_uneven",
        parameters="const char* role, const char* bar",
        text="role %s, thread %d of CTA %d: the lanes of its warp wait for different phases of %s",
        arguments="role, (int)threadIdx.x, (int)blockIdx.x, bar",
    ),
    "tell_unbalanced": _TELL.format(
        name="tell_unbalanced",
        parameters="const char* counter, const char* one, int first, const char* other, int second",
        text="CTA %d: counter %s ends at %d in role %s and at %d in role %s",
        arguments="(int)blockIdx.x, counter, first, one, second, other",
    ),
    "mbarrier_wait_or_tell": f"""__device__ __forceinline__
void mbarrier_wait_or_tell(unsigned bar, int parity, int slot, const char* name, const char* role) {{
  if (!mbarrier_passed(bar, (unsigned)parity, {WAIT_LIMIT_MS}000000ull)) tell_wait(role, name, slot, parity);
}}""",
    "expect_uniform": """__device__ __forceinline__
void expect_uniform(int slot, int parity, const char* name, const char* role) {
  int same;
  __match_all_sync(__activemask(), slot * 2 + parity, &same);
  if (!same) tell_uneven(role, name);
}""",
}
"""Device functions of debug builds, by name."""

COUNTERS = "debug_counters"
"""The shared array into which each role leaves its counters."""


def wait(bar: str, parity: str, slot: str, name: str, role: str, *, together: bool) -> list[str]:
    """A bounded wait; where all lanes of a warp wait ``together``, for the same phase."""
    lines = [f'mbarrier_wait_or_tell({bar}, {parity}, {slot}, "{name}", "{role}");']
    return [f'expect_uniform({slot}, {parity}, "{name}", "{role}");', *lines] if together else lines


def declared(roles: Mapping[str, tuple[str, ...]]) -> str:
    """The declaration of the counters' array; empty if no two roles share a counter."""
    return f"__shared__ int {COUNTERS}[{_size(roles)}];" if _pairs(roles) else ""


def left(roles: Mapping[str, tuple[str, ...]], role: str, names: Iterable[str], *, one: bool) -> list[str]:
    """At the end of the block that declares them, counters of a role are left for comparison by one thread."""
    places = _places(roles)
    if not _pairs(roles):
        return []
    guard = "" if one else "if (tid == 0) "
    return [f"{guard}{COUNTERS}[{places[role, name]}] = {name};" for name in names]


def compared(roles: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Behind all roles, thread 0 compares what they left."""
    places = _places(roles)
    checks = [
        f"  if ({COUNTERS}[{places[one, name]}] != {COUNTERS}[{places[other, name]}]) "
        f'tell_unbalanced("{name}", "{one}", {COUNTERS}[{places[one, name]}], '
        f'"{other}", {COUNTERS}[{places[other, name]}]);'
        for one, other, name in _pairs(roles)
    ]
    return ["__syncthreads();", "if (threadIdx.x == 0) {", *checks, "}"] if checks else []


def _places(roles: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, str], int]:
    named = [(role, name) for role, names in roles.items() for name in names]
    return {key: i for i, key in enumerate(named)}


def _size(roles: Mapping[str, tuple[str, ...]]) -> int:
    return len(_places(roles))


def _pairs(roles: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str, str]]:
    """Roles that share a counter: the first that has it, with each other one."""
    first: dict[str, str] = {}
    found: list[tuple[str, str, str]] = []
    for role, names in roles.items():
        for name in names:
            if name in first:
                found.append((first[name], role, name))
            first.setdefault(name, role)
    return found
