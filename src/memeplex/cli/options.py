"""Options and arguments that several commands have in common."""

from typing import Annotated

import typer

__all__ = [
    "AgentName",
    "AsJson",
    "EmbedderName",
    "ModelName",
    "OfRun",
    "Out",
    "Quiet",
    "RunId",
    "Store",
    "TeamMemory",
    "TeamModel",
]

Store = Annotated[str | None, typer.Option(help="Where runs are kept: a path or a URL.", metavar="URL")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result.")]
Out = Annotated[str | None, typer.Option(help="Also write the results to this folder.", metavar="DIR")]
RunId = Annotated[str, typer.Argument(help="A run's id, or a unique beginning of it.", metavar="RUN")]
OfRun = Annotated[str | None, typer.Option("--run", help="The run; by default the newest.", metavar="RUN")]
AgentName = Annotated[str, typer.Argument(help="An agent's name.")]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embedder", help="What finds by meaning: auto is the embedded one; none finds by words alone.", metavar="NAME"
    ),
]
ModelName = Annotated[str, typer.Argument(help="A known model, such as qwen2.5-coder-0.5b.")]
TeamModel = Annotated[str | None, typer.Option("--model", help="The model of all agents.", metavar="NAME")]
TeamMemory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="NAME or NAME,argument=value for agents with none of their own in the team file; none is for all.",
        metavar="NAME",
    ),
]
