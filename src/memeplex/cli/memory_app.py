"""``memory``: the commands on what agents remember, in a run and beyond it."""

from typing import Annotated

import typer

from memeplex.cli.options import AgentName, AsJson, EmbedderName, OfRun, Quiet, Store, TeamModel

__all__ = ["memory_app"]

memory_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Owner = Annotated[str, typer.Argument(help="An owner of records, such as TEAM or TEAM/AGENT.", metavar="OWNER")]
RecordId = Annotated[str, typer.Argument(help="A record's id.", metavar="ID")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only this kind; may be given again.", metavar="KIND")]
Limit = Annotated[int, typer.Option(help="Records at most.", min=1, max=10**6)]
Cause = Annotated[str, typer.Option(help="Why; kept in the record's history.")]


@memory_app.command("show", epilog="Example: memeplex memory show DEA --run 20260131-0915")
def memory_show(agent: AgentName, run_id: OfRun = None, store: Store = None, as_json: AsJson = False) -> None:
    """What an agent's memory holds now."""
    from memeplex.cli.memory import show_memory

    show_memory(agent, run_id, store, as_json=as_json)


@memory_app.command("history", epilog="Example: memeplex memory history DEA")
def memory_history(agent: AgentName, run_id: OfRun = None, store: Store = None, as_json: AsJson = False) -> None:
    """Every attempt to update an agent's memory, with its cause."""
    from memeplex.cli.memory import show_history

    show_history(agent, run_id, store, as_json=as_json)


@memory_app.command("diff", epilog="Example: memeplex memory diff DEA --from 1 --to 4")
def memory_diff(
    agent: AgentName,
    older: Annotated[int | None, typer.Option("--from", help="A version; by default the last but one.", min=0)] = None,
    newer: Annotated[int | None, typer.Option("--to", help="A version; by default the newest.", min=0)] = None,
    run_id: OfRun = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """What changed between two versions of an agent's memory."""
    from memeplex.cli.memory import show_diff

    show_diff(agent, run_id, store, older=older, newer=newer, as_json=as_json)


@memory_app.command("list", epilog="Example: memeplex memory list panel/critic --kind episode")
def memory_list(
    owner: Annotated[str | None, typer.Argument(help="An owner; by default all owners are listed.")] = None,
    kind: Kinds = None,
    limit: Limit = 50,
    after: Annotated[str, typer.Option(help="Begin after the record of this id.", metavar="ID")] = "",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """The owners of records, or what one of them keeps, oldest first."""
    from memeplex.cli.records import list_records

    list_records(owner, kind or (), limit, after, store, as_json=as_json)


@memory_app.command("search", epilog="Example: memeplex memory search 'retention of lidar data' --owner panel")
def memory_search(
    text: Annotated[str, typer.Argument(help="What to look for.")],
    owner: Annotated[list[str] | None, typer.Option("--owner", help="Only this owner; may be given again.")] = None,
    kind: Kinds = None,
    limit: Limit = 10,
    embedder: EmbedderName = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Find records by their words, in any language, and by their meaning where they have been embedded."""
    from memeplex.cli.records import search_records

    search_records(text, owner or (), kind or (), limit, embedder, store, as_json=as_json)


@memory_app.command("record", epilog="Example: memeplex memory record 01a22f8daff030d23944e61170a --history")
def memory_record(
    record_id: RecordId,
    history: Annotated[bool, typer.Option("--history", help="Every revision, and who made it.")] = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """One record: its text, where it comes from, and what it was before."""
    from memeplex.cli.records import record_history, show_record

    (record_history if history else show_record)(record_id, store, as_json=as_json)


@memory_app.command("edit", epilog="Example: memeplex memory edit 01a22f8daff030d23944e61170a --text 'Call zed first.'")
def memory_edit(
    record_id: RecordId,
    text: Annotated[str | None, typer.Option(help="The new text.")] = None,
    trust: Annotated[float | None, typer.Option(help="How far to trust it, from 0 to 1.", min=0, max=1)] = None,
    cause: Cause = "",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Change a record; what it was stays in its history."""
    from memeplex.cli.records import edit_record

    edit_record(record_id, text, trust, cause, store, as_json=as_json)


@memory_app.command("conflicts", epilog="Example: memeplex memory conflicts panel/critic")
def memory_conflicts(
    agent: Annotated[str, typer.Argument(help="An agent, or TEAM/AGENT where several have its name.", metavar="AGENT")],
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """What an agent's long-term memories contradict each other in, and which of them holds."""
    from memeplex.cli.conflicts import list_conflicts

    list_conflicts(agent, store, as_json=as_json)


Ids = Annotated[list[str] | None, typer.Argument(help="Ids of records.", metavar="ID")]
Everything = Annotated[bool, typer.Option("--all", help="Everything that the owner has.")]


@memory_app.command("forget", epilog="Example: memeplex memory forget panel/critic --all --cause 'a new project'")
def memory_forget(
    owner: Owner,
    ids: Ids = None,
    everything: Everything = False,
    cause: Cause = "",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take records out of a memory. Their history is kept; purge deletes that too."""
    from memeplex.cli.records import forget_records

    forget_records(owner, ids or (), cause, store, purge=False, everything=everything, as_json=as_json)


@memory_app.command("purge", epilog="Example: memeplex memory purge panel/critic --all")
def memory_purge(
    owner: Owner,
    ids: Ids = None,
    everything: Everything = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Delete records with their history, so that no trace of them is left in the store."""
    from memeplex.cli.records import forget_records

    forget_records(owner, ids or (), "", store, purge=True, everything=everything, as_json=as_json)


@memory_app.command("export", epilog="Example: memeplex memory export panel --out panel.jsonl")
def memory_export(
    owner: Annotated[str | None, typer.Argument(help="An owner; by default all.")] = None,
    out: Annotated[str | None, typer.Option(help="A file; by default standard output.", metavar="FILE")] = None,
    store: Store = None,
) -> None:
    """Write records with their history as canonical JSON, one a line."""
    from memeplex.cli.records import export_records

    export_records(owner, out, store)


@memory_app.command("import", epilog="Example: memeplex memory import panel.jsonl --store new.db")
def memory_import(
    path: Annotated[str, typer.Argument(help="What memory export wrote; - reads standard input.", metavar="FILE")],
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take in an export, all of it or nothing; what is there already is left as it is."""
    from memeplex.cli.records import import_records

    import_records(path, store, as_json=as_json)


@memory_app.command("catch-up", epilog="Example: memeplex memory catch-up panel --model ollama:gemma3:12b --again")
def memory_catch_up(
    team: Annotated[str | None, typer.Argument(help="A team by its name; by default all.", metavar="TEAM")] = None,
    model: TeamModel = None,
    again: Annotated[bool, typer.Option("--again", help="Try at once what has failed, too.")] = False,
    store: Store = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Draw the lessons and write the procedures that killed runs and failing models have left over.

    Ctrl-C stops after the job; the same command goes on. Exit code 3 if something has failed again.
    """
    from memeplex.cli.catch_up import catch_up

    return catch_up(team, model, again=again, store=store, as_json=as_json, quiet=quiet)


@memory_app.command("stats", epilog="Example: memeplex memory stats --json")
def memory_stats(store: Store = None, as_json: AsJson = False) -> None:
    """How much is kept, what was done last, and what work is waiting."""
    from memeplex.cli.backlog import show_stats

    show_stats(store, as_json=as_json)
