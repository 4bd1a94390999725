"""The thread of a store: what it is asked is done, in that order, whoever goes away."""

import asyncio
import gc
import subprocess
import sys
import threading

import pytest

from memeplex.storage.sqlite.thread import Thread


async def test_what_is_asked_is_done_in_that_order_though_nobody_waits() -> None:
    thread, going, done = Thread("test"), threading.Event(), list[int]()
    waiting = [asyncio.create_task(thread.call(going.wait))]
    waiting += [asyncio.create_task(thread.call(lambda i=i: done.append(i) or True)) for i in range(9)]  # type: ignore[misc,func-returns-value]
    await asyncio.sleep(0)
    for task in waiting[:5]:
        task.cancel()
    going.set()
    assert [await task for task in waiting[5:]] == [True] * 5
    assert done == list(range(9))
    assert all(task.cancelled() for task in waiting[:5])
    thread.close()


async def test_a_fault_is_raised_where_it_is_waited_for_and_told_nowhere_else() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    thread, going = Thread("test"), threading.Event()

    def fails() -> None:
        going.wait()
        raise OSError("disk I/O error")

    waiter = asyncio.create_task(thread.call(fails))
    await asyncio.sleep(0)
    waiter.cancel()
    going.set()
    with pytest.raises(OSError, match="disk"):
        await thread.call(fails)
    del waiter
    gc.collect()
    assert told == []
    thread.close()


async def test_it_ends_when_it_is_closed_or_forgotten() -> None:
    before = set(threading.enumerate())
    closed, forgotten = Thread("closed"), Thread("forgotten")
    (ending, other) = sorted(set(threading.enumerate()) - before, key=lambda thread: thread.name)
    closed.close()
    assert not ending.is_alive() and other.is_alive()
    with pytest.raises(RuntimeError, match="ended"):
        await closed.call(int)
    del forgotten
    gc.collect()
    assert not other.is_alive()


def test_a_process_ends_though_it_closes_nothing_and_ends_what_is_under_way() -> None:
    script = """if True:
    import asyncio, threading
    from memeplex.storage.sqlite.thread import Thread
    begun, thread = threading.Event(), Thread("test")
    def work():
        begun.set()
        for _ in range(10**6): pass
        print("done")
    async def ask():
        waiter = asyncio.create_task(thread.call(work))
        await asyncio.to_thread(begun.wait)
        waiter.cancel()
    asyncio.run(ask())
    """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("done\n", "")
