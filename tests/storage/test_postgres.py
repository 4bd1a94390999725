"""PostgreSQL alone: what a server can do to a store, and what several clients of one do to each other."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from storage.servers import Server, server
from storage.test_records import add, exported, record, texts, vectors
from storage.test_runs import TESTS, python, run
from support import turn

from memeplex.errors import (
    ConflictError,
    EmbedderMismatchError,
    MissingExtraError,
    StorageError,
    StoreVersionError,
    UserError,
)
from memeplex.messages import Task
from memeplex.storage import Job, Query, Record, Store, open_store, shown_url
from memeplex.storage.postgres import create, opening
from memeplex.storage.postgres.address import Address
from memeplex.storage.postgres.store import PostgresStore


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.database() as made:
        yield made


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = create(url)
    yield opened
    await opened.aclose()


@pytest.fixture
async def pair(url: str) -> AsyncIterator[list[Store]]:
    """Two stores on one database, as two processes have them."""
    opened = [open_store(url) for _ in range(2)]
    yield opened
    for one in opened:
        await one.aclose()


def name_of(url: str) -> str:
    return str(Address.of(url).parameters["dbname"])


# ---- addresses and secrets

SECRET = "s3cr&t/@:?#%"
ENCODED = "s3cr%26t%2F%40%3A%3F%23%25"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://ada:{ENCODED}@db.example:5433/memory", "postgresql://ada@db.example:5433/memory"),
        (f"postgresql://db.example/memory?user=ada&password={ENCODED}", "postgresql://ada@db.example/memory"),
        ("postgresql:///memory?host=/run/pg&sslmode=require", "postgresql:///memory?host=/run/pg&sslmode=require"),
        ("postgresql://[::1]:5433/memory", "postgresql:///memory?host=%3A%3A1&port=5433"),
        ("postgresql://a:5433,b:5434/memory", "postgresql:///memory?host=a%2Cb&port=5433%2C5434"),
        ("postgresql://", "postgresql:///"),
    ],
)
def test_an_address_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    address = Address.of(url)
    assert address.shown == shown and SECRET not in repr(address)
    assert Address.of(shown).shown == shown
    without = {name: value for name, value in address.parameters.items() if name != "password"}
    assert {**Address.of(shown).parameters} == without
    assert address.parameters.get("password", SECRET) == SECRET


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:pa@ss@host/db",
        "postgresql://ada:pa/ss@host/db",
        "postgresql://ada:12/pass@host/db",
        "postgresql://ada:pa%ss@host/db",
        "postgresql://host:pass/db",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(UserError, match="cannot be read") as caught:
        open_store(url)
    assert "ss" not in str(caught.value).replace("PASSWORD", "") and "%40" in caught.value.remedy
    assert caught.value.__cause__ is None and (caught.value.__suppress_context__ or not caught.value.__context__)


async def test_a_password_opens_the_store_and_is_never_shown(postgres: Server, url: str) -> None:
    name = name_of(url)
    postgres.execute("create extension vector", database=name)
    postgres.execute(f"create role ada login password '{SECRET}'", f"grant create on database {name} to ada")
    rules = postgres.folder / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all ada scram-sha-256\n{before}")
    try:
        postgres.execute("select pg_reload_conf()")
        whole = postgres.url(name, f"ada:{ENCODED}")
        right, wrong, without = (
            open_store(one) for one in (whole, whole.replace("s3", "s4"), postgres.url(name, "ada"))
        )
        await right.add_run(run())
        with right.lock("r"):
            assert SECRET not in right.url + repr(vars(right))
        for one in (wrong, without):
            with pytest.raises(StorageError) as caught:
                await one.runs()
            with pytest.raises(StorageError), one.lock("r"):
                pass
            assert "cr&t" not in str(caught.value) and "password" in caught.value.remedy
            assert "ada@" in str(caught.value) and "\n" not in str(caught.value)
        for one in (right, wrong, without):
            await one.aclose()
    finally:
        rules.write_text(before)
        postgres.execute("select pg_reload_conf()", "drop owned by ada cascade", database=name)
        postgres.execute("drop role ada")


async def test_a_password_is_struck_out_of_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**parameters: Any) -> None:
        raise psycopg.OperationalError(f"no good: {parameters['password']}")

    monkeypatch.setattr(psycopg, "connect", refuse)
    store = open_store(f"postgresql://ada:{ENCODED}@host/db")
    with pytest.raises(StorageError, match=r"no good: \*\*\*") as caught:
        await store.runs()
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    await store.aclose()


def test_commands_are_shown_without_a_password() -> None:
    assert shown_url(f"postgresql://ada:{ENCODED}@host/db") == "postgresql://ada@host/db"
    for url in ("a/b.db", "sqlite:///a/b@c.db", "sqlite://"):
        assert shown_url(url) == url


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError) as caught:
        open_store("postgresql://host/db")
    assert "memeplex[postgres]" in caught.value.remedy


def test_what_does_not_use_it_does_not_load_the_driver() -> None:
    code = "import sys, memeplex.cli, memeplex.storage.postgres; print('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# ---- opening


async def test_a_server_that_is_not_there_is_named_with_a_remedy(tmp_path: Path) -> None:
    store = open_store(f"postgresql:///memory?host={tmp_path}")
    with pytest.raises(StorageError) as caught:
        await store.runs()
    assert str(tmp_path) in str(caught.value) and "server runs" in caught.value.remedy and "\n" not in str(caught.value)
    for attempt in (lambda: store.held("r"), lambda: store.lock("r").__enter__()):
        with pytest.raises(StorageError):
            attempt()
    await store.aclose()


async def test_a_database_that_is_not_there_is_named_with_a_remedy(postgres: Server) -> None:
    store = open_store(postgres.url("nowhere"))
    with pytest.raises(StorageError, match="nowhere") as caught:
        await store.runs()
    assert "createdb" in caught.value.remedy
    await store.aclose()


async def test_opened_by_many_at_once_a_new_store_is_migrated_once(url: str, postgres: Server) -> None:
    stores = [open_store(url) for _ in range(8)]
    async with asyncio.TaskGroup() as tasks:
        for number, one in enumerate(stores):
            tasks.create_task(one.add_run(run(f"r{number}")))
    assert len(await stores[0].runs()) == 8
    for one in stores:
        await one.aclose()
    numbers = postgres.execute("select number from migrations order by 1", database=name_of(url))
    assert numbers == [(1,), (2,), (3,)]


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    store: PostgresStore, url: str, postgres: Server
) -> None:
    await store.add_run(run())
    postgres.execute("insert into migrations values (99)", database=name_of(url))
    newer = open_store(url)
    with pytest.raises(StoreVersionError, match="newer version") as caught:
        await newer.add_run(run("s"))
    assert "upgrade" in caught.value.remedy
    await newer.aclose()
    assert len(await store.runs()) == 1


async def test_the_schema_of_another_program_is_left_alone(store: PostgresStore, url: str, postgres: Server) -> None:
    postgres.execute("create schema memeplex", "create table memeplex.runs (a int)", database=name_of(url))
    with pytest.raises(StorageError, match="another program"):
        await store.runs()
    assert postgres.execute(
        "select count(*) from pg_class where relnamespace = 'memeplex'::regnamespace", database=name_of(url)
    ) == [(1,)]


async def test_other_tables_of_the_database_are_no_concern_of_ours(
    store: PostgresStore, url: str, postgres: Server
) -> None:
    postgres.execute("create table public.runs (a int)", database=name_of(url))
    await store.add_run(run())
    assert len(await store.runs()) == 1
    assert postgres.execute("select count(*) from public.runs", database=name_of(url)) == [(0,)]


async def test_a_server_without_the_extension_is_named(
    store: PostgresStore, url: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_EXTENSION", "victor")
    with pytest.raises(StorageError, match="no extension 'victor'") as caught:
        await store.runs()
    assert "install pgvector" in caught.value.remedy
    schemas = postgres.execute("select 1 from pg_namespace where nspname = 'memeplex'", database=name_of(url))
    assert schemas == [], "nothing was made by halves"


async def test_an_extension_that_is_too_old_or_dropped_is_named(
    store: PostgresStore, url: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "_OLDEST", (99, 0))
        with pytest.raises(StorageError, match=r"older than 99\.0") as caught:
            await store.runs()
        assert "alter extension" in caught.value.remedy
    assert not await store.runs()
    postgres.execute("drop extension vector cascade", database=name_of(url))
    again = open_store(url)
    with pytest.raises(StorageError, match="has been dropped"):
        await again.runs()
    await again.aclose()


async def test_a_role_that_may_not_is_told_what_it_lacks(url: str, postgres: Server) -> None:
    name = name_of(url)
    postgres.execute("create role guest login")
    store = open_store(postgres.url(name, "guest"))
    try:
        with pytest.raises(StorageError, match="permission denied") as caught:
            await store.runs()
        assert "CREATE on the database" in caught.value.remedy
        postgres.execute(f"grant create on database {name} to guest")
        with pytest.raises(StorageError, match="may not create the extension") as caught:
            await store.runs()
        assert "create extension vector" in caught.value.remedy
        postgres.execute("create extension vector", database=name)
        assert not await store.runs()
    finally:
        await store.aclose()
        postgres.execute("drop owned by guest cascade", database=name)
        postgres.execute("drop role guest")


async def test_a_database_that_does_not_hold_every_text_is_refused(postgres: Server) -> None:
    postgres.execute("create database narrow encoding latin1 locale 'C' template template0")
    store = open_store(postgres.url("narrow"))
    with pytest.raises(StorageError, match="encoding is LATIN1") as caught:
        await store.runs()
    assert "UTF8" in caught.value.remedy
    await store.aclose()
    postgres.execute("drop database narrow")


# ---- a server that goes away


def end_connections(postgres: Server, url: str) -> None:
    sql = f"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '{name_of(url)}'"
    postgres.execute(sql)


async def test_connections_that_died_while_idle_are_replaced(store: PostgresStore, url: str, postgres: Server) -> None:
    async with asyncio.TaskGroup() as tasks:
        for name in "abcd":
            tasks.create_task(store.add_run(run(name)))
    end_connections(postgres, url)
    assert len(await store.runs()) == 4
    await store.add_run(run("e"))


async def test_a_call_that_is_cut_off_is_an_error_and_the_next_works(
    store: PostgresStore, url: str, postgres: Server
) -> None:
    await store.add_run(run())

    def hang(db: psycopg.Connection[Any]) -> None:
        db.execute("begin")
        db.execute("update runs set status = 'lost'")
        postgres.execute(f"select pg_terminate_backend({db.info.backend_pid}, 10000)")
        db.execute("select 1")

    with pytest.raises(StorageError) as caught:
        await store._call(hang)
    assert "nothing committed is lost" in caught.value.remedy and "\n" not in str(caught.value)
    assert (await store.run("r")).status == "running"


async def test_a_changing_call_that_is_cut_off_changes_nothing(
    store: PostgresStore, url: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memeplex.storage.postgres.write import PostgresWrite

    kept = PostgresWrite.index

    def cut(self: PostgresWrite, *arguments: Any) -> None:
        postgres.execute(f"select pg_terminate_backend({self.db.info.backend_pid}, 10000)")
        kept(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresWrite, "index", cut)
        with pytest.raises(StorageError):
            await store.records.add([record("steel")], actor="test")
    assert await store.records.owners() == {} and await store.records.audit() == []
    await add(store, "steel")
    assert await texts(store, Query(owners=("ada",), text="steel")) == ["steel"]


async def test_a_server_that_stops_and_starts_again_is_found_again() -> None:
    with server() as own, own.database() as url:
        store = open_store(url)
        await store.add_run(run())
        with store.lock("r"):
            own.stop()
            with pytest.raises(StorageError) as caught:
                await store.runs()
            assert caught.value.remedy
            own.start()
        assert len(await store.runs()) == 1 and not store.held("r")
        await store.aclose()


# ---- several clients

ADDER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from memeplex.storage import Record, open_store

async def main(name):
    store = open_store(sys.argv[1])
    for i in range(40):
        records = [Record(owner=owner, kind="fact", text=f"steel {i} {n}") for owner in ["both"] for n in range(3)]
        await store.records.add(records if name == "a" else records[::-1], actor=name)
        await store.records.add([Record(owner=name, kind="fact", text=f"granite {i}")], actor=name)
    await store.aclose()

asyncio.run(main(sys.argv[3]))
"""


async def test_two_processes_write_at_once_and_each_change_is_one_audit_row(store: PostgresStore, url: str) -> None:
    writers = [python(ADDER, url, TESTS, name, stderr=subprocess.PIPE) for name in "ab"]
    faults = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], faults
    assert await store.records.owners() == {"a": {"fact": 40}, "b": {"fact": 40}, "both": {"fact": 120}}
    audit = await store.records.audit(limit=1000)
    assert sum(row.records for row in audit if row.owner == "both") == 120
    assert [row.records for row in audit if row.owner in "ab"] == [1] * 80
    found = await texts(store, Query(owners=("both",), text="steel 7", limit=3))
    assert len(found) == 3
    counted = await store._call(
        lambda db: db.execute("select name, documents, length from owners order by 1").fetchall()
    )
    assert [row[:2] for row in counted] == [("a", 40), ("b", 40), ("both", 120)]


async def test_the_same_records_added_at_once_are_kept_once(pair: list[Store]) -> None:
    made = [record(f"steel {number}") for number in range(5)]

    async def one(store: Store, order: int) -> None:
        twins = [Record(owner=r.owner, kind=r.kind, text=r.text) for r in made[::order]]
        results.append((order, await store.records.add(twins, actor="test")))

    results: list[tuple[int, Any]] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(one(pair[number % 2], 1 if number % 3 else -1))
    assert sum(len(added.new) for _, added in results) == 5
    assert len({added.ids[::order] for order, added in results}) == 1
    assert len(await pair[0].records.audit()) == 1


async def test_of_many_edits_at_once_one_wins_and_the_others_hold_both_versions(pair: list[Store]) -> None:
    (kept,) = await add(pair[0], "steel")
    won: list[Record] = []
    lost: list[ConflictError] = []

    async def edit(store: Store, text: str) -> None:
        try:
            won.append(await store.records.edit(kept.model_copy(update={"text": text}), actor="test"))
        except ConflictError as error:
            lost.append(error)

    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(edit(pair[number % 2], f"iron {number}"))
    assert len(won) == 1 and len(lost) == 7
    assert all(error.theirs == won[0] and error.yours.text != won[0].text for error in lost)  # type: ignore[attr-defined]
    assert [change.origin.action for change in await pair[1].records.history(kept.id)] == ["add", "edit"]


async def test_of_two_first_embedders_at_once_one_is_refused(pair: list[Store]) -> None:
    refused: list[EmbedderMismatchError] = []

    async def one(store: Store, name: str) -> None:
        try:
            await store.records.add([record("steel", name)], vectors(1, embedder=name), actor="test")
        except EmbedderMismatchError as error:
            refused.append(error)

    for store in pair:
        await store.runs()
    async with asyncio.TaskGroup() as tasks:
        for store, name in zip(pair, "ab", strict=True):
            tasks.create_task(one(store, name))
    assert len(refused) == 1 and len(await pair[0].records.owners()) == 1


async def test_a_job_that_another_is_taking_is_passed_over(store: PostgresStore, url: str) -> None:
    for key in ("first", "second"):
        await store.jobs.enqueue(Job(kind="k", owner="ada", key=key))
    with psycopg.connect(url, options="-c search_path=memeplex") as other:
        other.execute("select * from jobs where key = 'first' for update")
        taken = await store.jobs.claim(["k"], "w", seconds=1)
        assert taken is not None and taken.key == "second"
        assert await store.jobs.claim(["k"], "w", seconds=1) is None


async def test_writers_of_several_owners_do_not_wait_for_each_other(store: PostgresStore, url: str) -> None:
    await add(store, "steel", owner="ada")
    with psycopg.connect(url, options="-c search_path=memeplex") as other:
        other.execute("select * from owners where name = 'ada' for update")
        await add(store, "granite", owner="bob")
        assert set(await store.records.owners()) == {"ada", "bob"}


# ---- the same as in SQLite


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(str(tmp_path / "x.db"))
    yield opened
    await opened.aclose()


SAID = [
    "The running rivers ran over generalised analogies, possibly.",
    "Generalisation of an analogy: rivers run, and runners are running.",
    "It's 2 a.m. in Köln; the naïve café's owners' cats slept on 東京タワー.",
    "東京タワーに行きました。我们昨天讨论了数据管道的预算",
    "ฉันชอบอาหารไทยมาก or so they say, relational operators optimised and hopping.",
    "ponies caresses agreed feed plastered motoring sized troubled conflated happy sky",
    "Ontologies and biology, flexibly assembled: ably, horribly, an assembly of psychology.",
    "budgets of the budget, budgeting: 42 dollars",
    "。、",
]
ASKED = [
    "running rivers",
    "analogies",
    "possible",
    "flexible ontology",
    "assemble a psychological horror, able biologist",
    "東京",
    "数据管道",
    "อาหารไทย",
    "budget",
    "a pony caresses",
    "relating operation",
    "2 a.m.",
    "dogs",
    "runs run runner",
    "happiness in the sky",
]


async def test_words_score_as_in_the_embedded_store(store: PostgresStore, embedded: Store) -> None:
    for kind in (store, embedded):
        for owner in ("ada", "bob"):
            made = [record(text, owner, id=f"{owner}{n}") for n, text in enumerate(SAID[:: 1 if owner == "ada" else 2])]
            await kind.records.add(made, actor="test")
        await kind.records.edit(
            (await kind.records.get(["ada0"]))[0].model_copy(update={"text": "dogs run"}), actor="t"
        )
        await kind.records.forget("bob", ["bob1"], actor="test")
        await kind.records.add([record("more running dogs", "bob", id="bob9")], actor="test")
    for asked in ASKED:
        for owners in (("ada",), ("bob",), ("ada", "bob")):
            query = Query(owners=owners, text=asked)
            ours, theirs = [(await one.records.search(query)).hits for one in (store, embedded)]
            assert [hit.record.id for hit in ours] == [hit.record.id for hit in theirs], asked
            assert [hit.keyword for hit in ours] == pytest.approx([hit.keyword for hit in theirs]), asked


async def test_exports_are_the_same_bytes(store: PostgresStore, embedded: Store, url: str) -> None:
    payload = {"f": [1.0, 1e22, 0.1, -0.0, 10**30], "z": "\u0000é", "a": {"b": [], "": None}}
    made = [
        record("steel 橋", payload=payload, trust=0.1),
        record("granite"),
        record("oak", "Åsa"),
        record("ash", "Zoë"),
    ]
    for one in made:
        await embedded.records.add([one], actor="test", cause="because")
    await embedded.records.edit(made[0].model_copy(update={"text": "iron"}), actor="test")
    await embedded.records.forget("ada", [made[1].id], actor="test")
    lines = await exported(embedded)
    assert await store.records.load(lines, actor="test") == 4
    assert await exported(store) == lines
    edited = await store.records.edit((await store.records.get([made[2].id]))[0], actor="test")
    await store.records.add([record("birch", supersedes=made[0].id, payload=payload)], actor="test")
    lines = await exported(store)
    (home,) = [open_store(f"{embedded.url}2")]
    await home.records.load(lines, actor="test")
    assert await exported(home) == lines and await home.records.get([edited.id]) == [edited]
    await home.aclose()


@pytest.mark.parametrize(
    "text", ["\0a\0", "\ud800 \udfff", "\x7f\x1b[0m", "\U0010ffff", "a\u2028b", "'; drop table", "%s %"]
)
async def test_any_text_can_be_kept(store: PostgresStore, text: str) -> None:
    task = Task(text=text)
    await store.add_run(run(task=task))
    await store.add_turn("r", turn(0, "A", text))
    assert (await store.run("r")).task == task and (await store.turns("r"))[0].content == turn(0, "A", text).content
    kept = record(f"x{text}", payload={"k": text.replace("\ud800", "").replace("\udfff", "")})
    await store.records.add([kept], actor=text.strip() or "x")
    assert await store.records.get([kept.id]) == [kept]


# ---- purging


def files_with(folder: Path, needle: bytes) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "pg_wal" not in path.parts and path.name != "log" and needle in path.read_bytes()
    ]


@pytest.mark.parametrize("whole", [True, False])
async def test_what_is_purged_is_in_no_file_of_a_table(store: PostgresStore, postgres: Server, whole: bool) -> None:
    made = await add(store, *(f"xylograph{n} unspeakable" for n in range(50)), seeds=tuple(range(50)))
    await store.records.edit(made[0].model_copy(update={"text": "xylograph of an edit"}), actor="test")
    await add(store, "steel", owner="bob", seeds=(1,))
    await store._call(lambda db: db.execute("analyze"))
    postgres.execute("checkpoint")
    assert files_with(postgres.folder, b"xylograph")
    assert await store.records.purge("ada", None if whole else [one.id for one in made], actor="test") == 50
    await store.aclose()
    postgres.execute("checkpoint")
    assert files_with(postgres.folder, b"xylograph") == []
    assert files_with(postgres.folder, b"steel"), "it is the texts that are looked for where they would be"


async def test_a_purge_that_may_not_write_the_tables_anew_says_so(
    store: PostgresStore, url: str, postgres: Server
) -> None:
    await add(store, "steel")
    name = name_of(url)
    postgres.execute("create role clerk login")
    postgres.execute(
        "grant usage on schema memeplex to clerk",
        "grant select, insert, update, delete on all tables in schema memeplex to clerk",
        database=name,
    )
    clerk = open_store(postgres.url(name, "clerk"))
    try:
        with pytest.raises(StorageError, match="still in the server's files") as caught:
            await clerk.records.purge("ada", actor="test")
        assert "vacuum" in caught.value.remedy and await store.records.owners() == {}
    finally:
        await clerk.aclose()
        postgres.execute("drop owned by clerk", database=name)
        postgres.execute("drop role clerk")


async def test_a_purge_that_others_hold_up_says_so(store: PostgresStore, url: str) -> None:
    await add(store, "steel")
    hasty = open_store(f"{url}&options=-c%20lock_timeout%3D100ms")
    with psycopg.connect(url, options="-c search_path=memeplex") as other:
        other.execute("select * from records")
        with pytest.raises(StorageError, match="still in the server's files: canceling") as caught:
            await hasty.records.purge("ada", actor="test")
        assert "vacuum (full) records" in caught.value.remedy
    await hasty.aclose()
    assert await store.records.owners() == {}
