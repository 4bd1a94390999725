"""Write ``docs/cli.md`` from the help of every command: ``python docs/gen_cli.py``."""

from collections.abc import Iterator
from pathlib import Path

import typer
from typer.testing import CliRunner

from memeplex.cli.app import app

PAGE = Path(__file__).with_name("cli.md")
INTRODUCTION = """\
# Command line

<!-- Written by docs/gen_cli.py with Typer VERSION from the help texts; a test compares the two. -->

Results go to standard output, progress and errors to standard error. With `--json` standard output is one JSON
object, in case of an error too. Every error is one line, with one more on what to do about it.

| exit code | what it says |
|---|---|
| 0 | done, with or without consensus |
| 1 | internal error; run again with `--debug` |
| 2 | wrong use, or a team file that is not right |
| 3 | the model or its endpoint |
| 4 | the store |
| 5 | the task is longer than the context budget |
| 6 | the team turned in circles |
| 130 | interrupted; `memeplex resume RUN` goes on |

A team that reaches its `max_turns` or `max_tokens` has ended as it should: exit code 0.

`MEMEPLEX_STORE` is the store where `--store` names none. `MEMEPLEX_MODEL` is the model of teams that name none, and the
one that `doctor` tries, where `--model` names none; a team or an agent that names a model keeps it. `MEMEPLEX_EMBEDDER`
is the same for `--embedder`. `config.toml` in the user's configuration folder (`~/.config/memeplex` on Linux) says all
this for good, and comes after the environment:

```toml
model = "openai:gpt-4.1-mini"
embedder = "ollama:nomic-embed-text"
store = "/data/memeplex.db"

[models."http://127.0.0.1:8000/v1#qwen3"]
key_env = "QWEN_KEY"       # the variable that holds the key; never the key itself
window = 32768
temperature = 0.5
body = {top_p = 0.9}       # sent along with every request

[embedders."ollama:nomic-embed-text"]
query_prefix = "search_query: "
passage_prefix = "search_document: "
```

`OPENAI_API_KEY` and `OPENAI_BASE_URL` are read for `openai:NAME` alone.
"""


def commands() -> Iterator[tuple[str, ...]]:
    """Every command by its words, the program itself first."""
    yield ()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        yield (name,)
        for below in getattr(command, "commands", ()):
            yield (name, below)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION.replace("VERSION", typer.__version__)]
    for words in commands():
        told = CliRunner().invoke(app, [*words, "--help"], prog_name="memeplex", env={"COLUMNS": "100"})
        parts.append(f"## {' '.join(('memeplex', *words))}\n\n```text\n{told.output.strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
