"""Options and arguments that several commands have in common."""

from typing import Annotated

import typer

__all__ = ["AgentName", "AsJson", "ModelName", "OfRun", "Out", "Quiet", "RunId", "Store"]

Store = Annotated[str | None, typer.Option(help="Where runs are kept: a path or a URL.", metavar="URL")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result.")]
Out = Annotated[str | None, typer.Option(help="Also write the results to this folder.", metavar="DIR")]
RunId = Annotated[str, typer.Argument(help="A run's id, or a unique beginning of it.", metavar="RUN")]
OfRun = Annotated[str | None, typer.Option("--run", help="The run; by default the newest.", metavar="RUN")]
AgentName = Annotated[str, typer.Argument(help="An agent's name.")]
ModelName = Annotated[str, typer.Argument(help="A known model, such as qwen2.5-coder-0.5b.")]
