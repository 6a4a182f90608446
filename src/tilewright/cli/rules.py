"""``tilewright rules``: the hardware rules that verdicts cite, by architecture and topic."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.terminal import echo
from tilewright.diag import fail


def register(app: typer.Typer) -> None:
    app.command("rules", help="List the hardware rules that verdicts cite.")(list_rules)


def list_rules(
    arch: Annotated[str | None, typer.Option(help="only those in force there, such as sm_90a")] = None,
    topic: Annotated[str | None, typer.Option(help="tensormap, bulk, wgmma, tcgen05 or limits")] = None,
) -> None:
    """Print one line per rule: id, consequence of breaking it, evidence, and the rule itself."""
    from tilewright.legal.explain import TOPICS, rules

    if topic is not None and topic not in TOPICS:
        fail("CMD002", found=f"--topic {topic}", required=f"one of {', '.join(TOPICS)}")
    found = rules(arch, topic)
    for rule in found:
        echo(f"{rule.id}  {rule.consequence.value:17}  {rule.evidence.value:10}  {rule.title}")
    echo(f"\n{len(found)} rules; tilewright explain {found[0].id if found else 'CODE'} tells more")
