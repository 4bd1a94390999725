"""``prompts``: the commands on what agents' prompts have become."""

from typing import Annotated

import typer

from memeplex.cli.options import AsJson, Store

__all__ = ["prompts_app"]

prompts_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Owner = Annotated[str, typer.Argument(help="Whose prompt it is, such as TEAM/AGENT.", metavar="OWNER")]
Name = Annotated[str, typer.Argument(help="A prompt, such as reasoning or take_notes.", metavar="PROMPT")]
Waiting = Annotated[
    int | None, typer.Argument(help="A version; by default the one that is waiting.", metavar="VERSION", min=1)
]
Cause = Annotated[str, typer.Option(help="Why; kept in the history.")]


@prompts_app.command("list", epilog="Example: memeplex prompts list panel/critic")
def prompts_list(
    owner: Annotated[str | None, typer.Argument(help="An owner; by default all owners.", metavar="OWNER")] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """The prompts that have changed, the versions in use, and what waits for a decision."""
    from memeplex.cli.prompts import list_prompts

    list_prompts(owner, store, as_json=as_json)


@prompts_app.command("show", epilog="Example: memeplex prompts show panel/critic reasoning --version 2")
def prompts_show(
    owner: Owner,
    name: Name,
    version: Annotated[int | None, typer.Option(help="A version; by default the one in use.", min=1)] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """One version of a prompt: its editable text, where it comes from, and what it has shown."""
    from memeplex.cli.prompts import show_prompt

    show_prompt(owner, name, version, store, as_json=as_json)


@prompts_app.command("diff", epilog="Example: memeplex prompts diff panel/critic reasoning --from 1 --to 3")
def prompts_diff(
    owner: Owner,
    name: Name,
    older: Annotated[
        int | None, typer.Option("--from", help="A version; by default what the other was made from.", min=1)
    ] = None,
    newer: Annotated[int | None, typer.Option("--to", help="A version; by default the one in use.", min=1)] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """What changed between two versions of a prompt."""
    from memeplex.cli.prompts import show_changes

    show_changes(owner, name, older, newer, store, as_json=as_json)


@prompts_app.command("lineage", epilog="Example: memeplex prompts lineage panel/critic reasoning --json")
def prompts_lineage(owner: Owner, name: Name, store: Store = None, as_json: AsJson = False) -> None:
    """Every version of a prompt with what it was made from, other agents' versions too."""
    from memeplex.cli.prompts import show_lineage

    show_lineage(owner, name, store, as_json=as_json)


@prompts_app.command("rollback", epilog="Example: memeplex prompts rollback panel/critic reasoning --to 1")
def prompts_rollback(
    owner: Owner,
    name: Name,
    to: Annotated[
        int | None, typer.Option(help="A version; by default what the one in use was made from.", min=1)
    ] = None,
    cause: Cause = "",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Go back to a version that was in use before, byte for byte."""
    from memeplex.cli.prompts import roll_back

    roll_back(owner, name, to, cause, store, as_json=as_json)


@prompts_app.command("approve", epilog="Example: memeplex prompts approve panel/critic reasoning 2")
def prompts_approve(
    owner: Owner, name: Name, version: Waiting = None, cause: Cause = "", store: Store = None, as_json: AsJson = False
) -> None:
    """Put a proposal to use."""
    from memeplex.cli.prompts import decide

    decide(owner, name, version, cause, store, approve=True, as_json=as_json)


@prompts_app.command("reject", epilog="Example: memeplex prompts reject panel/critic reasoning 2 --cause 'too long'")
def prompts_reject(
    owner: Owner, name: Name, version: Waiting = None, cause: Cause = "", store: Store = None, as_json: AsJson = False
) -> None:
    """Turn a proposal down; it stays in the lineage."""
    from memeplex.cli.prompts import decide

    decide(owner, name, version, cause, store, approve=False, as_json=as_json)


@prompts_app.command("pin", epilog="Example: memeplex prompts pin panel/critic reasoning")
def prompts_pin(
    owner: Owner,
    name: Name,
    off: Annotated[bool, typer.Option("--off", help="Let it change again.")] = False,
    cause: Cause = "",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Keep a prompt at the version in use, whatever its agent learns."""
    from memeplex.cli.prompts import pin_prompt

    pin_prompt(owner, name, cause, store, pinned=not off, as_json=as_json)
