"""The commands that put to use what teams have learnt: ``who-knows``, ``team``, ``procedures`` and ``reindex``."""

from typing import Annotated

import typer

from memeplex.cli.options import AsJson, EmbedderName, Quiet, Store

__all__ = ["procedures_app", "reindex", "team_app", "who_knows"]

procedures_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
team_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

TaskText = Annotated[str, typer.Argument(help="What is to be done.", metavar="TASK")]
OfTeam = Annotated[str | None, typer.Option("--team", help="Only what this team has been through.", metavar="TEAM")]
OfType = Annotated[str, typer.Option("--type", help="The task's type, where tasks have one.", metavar="TYPE")]
OfOwner = Annotated[str | None, typer.Option("--owner", help="Only this owner's.", metavar="OWNER")]


def who_knows(
    task: TaskText,
    team: OfTeam = None,
    kind: OfType = "",
    embedder: EmbedderName = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Who is likely to manage a task, by what they did in tasks like it."""
    from memeplex.cli.knowledge import tell_experts

    tell_experts(task, team, kind, embedder, store, as_json=as_json)


@team_app.command("suggest", epilog="Example: memeplex team suggest 'Plan a data lake' --size 2")
def suggest(
    task: TaskText,
    size: Annotated[int, typer.Option(help="Agents in the team.", min=1, max=20)] = 3,
    team: OfTeam = None,
    kind: OfType = "",
    embedder: EmbedderName = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Propose teams for a task, with the counts behind each."""
    from memeplex.cli.knowledge import propose_team

    propose_team(task, team, size, kind, embedder, store, as_json=as_json)


@procedures_app.command("list", epilog="Example: memeplex procedures list --owner panel")
def procedures_list(owner: OfOwner = None, store: Store = None, as_json: AsJson = False) -> None:
    """Procedures, and how often each has worked."""
    from memeplex.cli.knowledge import list_procedures

    list_procedures(owner, store, as_json=as_json)


@procedures_app.command("export", epilog="Example: memeplex procedures export skills --as skills --owner panel")
def procedures_export(
    folder: Annotated[str, typer.Argument(help="Where the skills go, a folder each.", metavar="DIR")],
    kind: Annotated[str, typer.Option("--as", help="The format: skills (Agent Skills).")] = "skills",
    owner: OfOwner = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Write procedures as Agent Skills; retired ones are left out."""
    from memeplex.cli.knowledge import export_skills
    from memeplex.errors import UnknownNameError

    if kind != "skills":
        raise UnknownNameError("format", kind, ["skills"])
    export_skills(folder, owner, store, as_json=as_json)


@procedures_app.command("import", epilog="Example: memeplex procedures import skills --owner panel")
def procedures_import(
    folder: Annotated[str, typer.Argument(help="A folder of Agent Skills.", metavar="DIR")],
    owner: Annotated[str, typer.Option("--owner", help="Whose they become, such as TEAM or TEAM/AGENT.")],
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take in Agent Skills as procedures: unproven, until they have worked."""
    from memeplex.cli.knowledge import import_skills

    import_skills(folder, owner, store, as_json=as_json)


def reindex(embedder: EmbedderName = None, store: Store = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Embed all records anew, after a change of embedder; can be stopped, and goes on where it was."""
    from memeplex.cli.knowledge import rebuild_vectors

    rebuild_vectors(embedder, store, as_json=as_json, quiet=quiet)
