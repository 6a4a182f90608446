"""``tilewright check``: whether a hand-written protocol keeps every rule, for any trip count."""

from __future__ import annotations

from enum import Enum
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.compile_ import module_of, running, split_name
from tilewright.cli.exit_status import Status, answering
from tilewright.cli.terminal import echo
from tilewright.diag import fail, render

if TYPE_CHECKING:
    from tilewright.protocol import Protocol
    from tilewright.verify import Policy
    from tilewright.verify.verification import Verification


MOST_CHARACTERS = 1 << 23
"""The longest protocol text; the largest here has 30,000 characters."""


class PolicyName(Enum):
    """How strictly the proxy rules are applied."""

    STRICT = "strict"
    LENIENT = "lenient"


def register(app: typer.Typer) -> None:
    app.command("check", help="Prove a protocol of barriers, copies and fences, or show how it breaks.")(check)


def check(
    protocol: Annotated[
        str, typer.Argument(metavar="FILE|FILE.py:NAME", help="protocol text, or a function that returns a protocol")
    ],
    policy: Annotated[PolicyName, typer.Option(help="how letter-true proxy rules are read")] = PolicyName.STRICT,
    json: Annotated[Path | None, typer.Option(help="write the counterexample's timeline as JSON")] = None,
    svg: Annotated[Path | None, typer.Option(help="draw it")] = None,
    trace: Annotated[Path | None, typer.Option(help="write it as a Chrome or Perfetto trace")] = None,
    unneeded: Annotated[bool, typer.Option("--unneeded", help="list sync ops whose removal keeps the proof")] = False,
    repair: Annotated[
        Path | None, typer.Option(help="write it with waits, fences and joins found anew, the cheapest that prove")
    ] = None,
    late_waits: Annotated[Path | None, typer.Option(help="write it with every wait as late as may be")] = None,
) -> None:
    """Exit status 0: proved; 1: refuted; 2: no protocol, or wrong arguments; 3: unknown; 70: a bug of ours."""
    with answering():
        _check(protocol, policy, (json, svg, trace), unneeded, repair, late_waits)


def _check(
    protocol: str, policy: PolicyName, drawn: tuple[Path | None, Path | None, Path | None], unneeded: bool,
    repair: Path | None, late_waits: Path | None,
) -> None:  # fmt: skip
    from tilewright.base.verdict import Proved, Refuted
    from tilewright.protocol import expand, lints
    from tilewright.verify import Policy, verify

    found = expand(find_protocol(protocol))
    verification = verify(found, Policy(policy.value))
    for diagnostic in (*verification.diagnostics, *lints(found)):
        echo(render(diagnostic), err=True)
    if repair is not None:
        _repair(found, Policy(policy.value), repair)
    match verification.proof:
        case Proved(obligations):
            echo(f"{found.name}: proved, {len(obligations)} obligations, {policy.value} ({_method(verification)})")
            if unneeded:
                _list_unneeded(found, Policy(policy.value))
            if late_waits is not None:
                _delay_waits(found, Policy(policy.value), late_waits)
        case Refuted(obligation, timeline):
            echo(f"{found.name}: refuted, {obligation} ({verification.replayed})")
            for path, text in zip(drawn, (timeline.json, timeline.svg, timeline.chrome_trace), strict=True):
                if path is not None:
                    path.write_text(text() + "\n")
            raise typer.Exit(Status.NO)
        case open_:
            echo(f"{found.name}: unknown, {open_.obligation}")
            raise typer.Exit(Status.UNKNOWN)


def _method(verification: Verification) -> str:
    assert verification.certificate is not None
    return verification.certificate.obligations[0].method


def _list_unneeded(protocol: Protocol, policy: Policy) -> None:
    from tilewright.compiler.synchronise import unneeded_syncs
    from tilewright.protocol.edit import step_at

    spots = unneeded_syncs(protocol, policy)
    for spot in spots:
        step = step_at(protocol, spot)
        where = f"  {step.where}" if step.where is not None else ""
        echo(f"  unneeded: {type(step.op).__name__} of {protocol.roles[spot.role].name}{where}")
    if not spots:
        echo("  every sync op is needed")


def _repair(protocol: Protocol, policy: Policy, path: Path) -> None:
    from tilewright.compiler.synchronise import synthesised
    from tilewright.protocol.text import to_text
    from tilewright.schedule.synchronise import cost

    found = synthesised(protocol, policy)
    if found.protocol is None:
        assert found.violation is not None
        left = f"{found.violation.code}, {found.violation.detail}"
        echo(f"{protocol.name}: no waits, fences and joins were found that prove; what remains: {left}")
        return
    path.write_text(to_text(found.protocol) + "\n")
    echo(
        f"{protocol.name}: proved as written to {path}; waits, fences and joins of {cost(found.protocol):.0f} cycles, "
        f"{cost(protocol):.0f} before"
    )


def _delay_waits(protocol: Protocol, policy: Policy, path: Path) -> None:
    from tilewright.compiler.synchronise import with_late_waits
    from tilewright.protocol.text import to_text

    found = with_late_waits(protocol, policy)
    if found is None:
        echo("  waits can't be moved with a proof")
        return
    later, _ = found
    path.write_text(to_text(later) + "\n")
    echo(f"  proved with late waits, as written to {path}" + (", nothing moved" if later == protocol else ""))


def find_protocol(name: str) -> Protocol:
    """The protocol in a text file, or what FILE.py:NAME returns; runs a Python file. CMD006 if there is none."""
    from tilewright.lang.params import KernelFunction
    from tilewright.protocol import Protocol, from_text

    file, attribute = split_name(name)
    path = Path(file if file.endswith(".py") else name)
    if not path.is_file():
        fail("CMD006", found=f"{path} is no file", required="protocol text, or FILE.py:NAME")
    if path.suffix != ".py":
        try:
            with path.open(encoding="utf-8") as text:
                found = text.read(MOST_CHARACTERS + 1)
            if len(found) > MOST_CHARACTERS:
                required = f"protocol text of at most {MOST_CHARACTERS} characters"
                fail("CMD006", found=f"{path} has more than {MOST_CHARACTERS} characters", required=required)
            return from_text(found)
        except (OSError, UnicodeDecodeError) as error:
            fail("CMD006", found=f"{path}: {error}", required="protocol text in UTF-8, or FILE.py:NAME")
    required = "a function that returns a Protocol"
    module = module_of(path)
    made = getattr(module, attribute, None)
    if made is None:
        own = [n for n, v in vars(module).items() if isfunction(v) and v.__module__ == getattr(module, "__name__", "")]
        functions = [n for n in own if n[0] != "_"]
        asked = f"{file} has no {attribute}" if attribute else f"{name} names no function"
        fail("CMD006", found=f"{asked}; the file has {', '.join(functions) or 'none'}", required=required)
    if isinstance(made, KernelFunction):
        help = "compile it: a kernel's protocol is proved on the way, and shown by tilewright show"
        fail("CMD006", found=f"{attribute} is a kernel", required=required, help=help)
    needed = [p.name for p in signature(made).parameters.values() if p.default is p.empty] if isfunction(made) else []
    if needed:
        fail("CMD006", found=f"{attribute} takes {', '.join(needed)}", required=required + ", without arguments")
    with running(path):
        value = made() if callable(made) else made
    if not isinstance(value, Protocol):
        fail("CMD006", found=f"{name} is {type(value).__name__}", required=required)
    return value
