"""Jobs, on every store: held by one, back when their worker dies, tried again, cancelled in any state."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memeplex.errors import UnknownNameError
from memeplex.storage import Job, JobState, Store
from memeplex.storage.jobs import ATTEMPTS


def job(key: str = "k", **more: Any) -> Job:
    return Job(**{"kind": "consolidate", "owner": "ada", "key": key, "payload": {"n": [1]}, **more})


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2027, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock(store: Store, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(store.jobs, "_now", made)
    return made


async def claim(store: Store, worker: str = "w", seconds: float = 60, **more: Any) -> Job | None:
    return await store.jobs.claim(["consolidate"], worker, seconds=seconds, **more)


async def state(store: Store) -> list[str]:
    return [one.state.value for one in await store.jobs.jobs()]


async def test_a_job_asked_for_twice_is_one(store: Store) -> None:
    first = await store.jobs.enqueue(job())
    assert await store.jobs.enqueue(job(payload={"other": 1})) == first
    assert first.payload == {"n": [1]} and await store.jobs.jobs() == [first]


async def test_a_job_is_held_by_one_worker(store: Store, clock: Clock) -> None:
    for i in range(4):
        await store.jobs.enqueue(job(str(i)))
    held: list[Job] = []

    async def work(worker: str) -> None:
        while (mine := await claim(store, worker)) is not None:
            held.append(mine)

    async with asyncio.TaskGroup() as tasks:
        for worker in "abc":
            tasks.create_task(work(worker))
    assert sorted(one.key for one in held) == ["0", "1", "2", "3"]
    assert all(one.state is JobState.RUNNING and one.attempts == 1 for one in held)
    assert await store.jobs.claim(["other"], "w", seconds=1) is None


async def test_the_oldest_due_job_comes_first_and_only_for_its_owner(store: Store, clock: Clock) -> None:
    await store.jobs.enqueue(job("later", due=clock.now + timedelta(seconds=5)))
    await store.jobs.enqueue(job("second", due=clock.now - timedelta(seconds=1)))
    await store.jobs.enqueue(job("first", due=clock.now - timedelta(seconds=2), owner="bob"))
    assert (await claim(store, owner="ada")).key == "second"  # type: ignore[union-attr]
    assert (await claim(store)).key == "first"  # type: ignore[union-attr]
    assert await claim(store) is None
    clock.tick(5)
    assert (await claim(store)).key == "later"  # type: ignore[union-attr]


async def test_a_job_whose_worker_died_is_due_again_when_its_lease_is_over(store: Store, clock: Clock) -> None:
    await store.jobs.enqueue(job())
    lost = await claim(store, "dead", 60)
    clock.tick(59)
    assert lost is not None and await claim(store, "w") is None
    assert await store.jobs.renew(lost, seconds=60)
    clock.tick(59)
    assert await claim(store, "w") is None, "renewed"
    clock.tick(1)
    taken = await claim(store, "w")
    assert taken is not None and (taken.worker, taken.attempts) == ("w", 2)
    assert not await store.jobs.renew(lost, seconds=60) and not await store.jobs.finish(lost), "no longer its own"
    assert await store.jobs.finish(taken) and await state(store) == ["done"]
    assert await claim(store) is None


async def test_a_job_that_fails_waits_longer_each_time_and_is_never_given_up(store: Store, clock: Clock) -> None:
    await store.jobs.enqueue(job())
    waits: list[float] = []
    for _ in range(ATTEMPTS + 1):
        taken = await claim(store)
        assert taken is not None and await store.jobs.fail(taken, "no model")
        (now,) = await store.jobs.jobs()
        waits.append((now.due - clock.now).total_seconds())
        assert now.error == "no model" and await claim(store) is None
        clock.tick(waits[-1])
    assert waits[:ATTEMPTS] == [2.0, 8.0, 600.0]
    assert await state(store) == ["queued"], "a failed job was tried again by itself"


async def test_failed_jobs_are_visible_and_can_be_made_due_at_once(store: Store, clock: Clock) -> None:
    await store.jobs.enqueue(job())
    for _ in range(ATTEMPTS):
        taken = await claim(store)
        assert taken is not None
        await store.jobs.fail(taken, "no model")
        clock.tick(10)
    assert [one.error for one in await store.jobs.jobs(states=[JobState.FAILED], owner="ada")] == ["no model"]
    assert await claim(store) is None
    assert await store.jobs.retry(owner="bob") == 0 and await store.jobs.retry(["consolidate"], "ada") == 1
    assert await claim(store) is not None


@pytest.mark.parametrize("reach", ["queued", "running", "failed", "done", "cancelled"])
async def test_a_job_is_cancelled_in_whatever_state(store: Store, clock: Clock, reach: str) -> None:
    made = await store.jobs.enqueue(job())
    held = await claim(store) if reach in ("running", "failed", "done") else None
    if held is not None and reach == "done":
        await store.jobs.finish(held)
    for _ in range(ATTEMPTS if reach == "failed" else 0):
        assert held is not None
        await store.jobs.fail(held, "no")
        clock.tick(10)
        held = await claim(store) or held
    if reach == "cancelled":
        await store.jobs.cancel(made.id, actor="eve")
    assert await state(store) == [reach]
    ended = await store.jobs.cancel(made.id, actor="eve", cause="too long")
    assert ended.state is (JobState.DONE if reach == "done" else JobState.CANCELLED)
    clock.tick(10_000)
    assert await claim(store) is None
    if reach == "running":
        assert held is not None and not await store.jobs.finish(held) and not await store.jobs.fail(held, "x")
    assert [row.actor for row in await store.records.audit("ada")] == ([] if reach == "done" else ["eve"])


async def test_what_is_not_there_cannot_be_cancelled(store: Store) -> None:
    with pytest.raises(UnknownNameError):
        await store.jobs.cancel("none", actor="eve")
