"""The memory tiers on every store: whole conversations, memories with their heirs, jobs and receipts."""

from days import Said, ToolCall, kept, kinds, own, statements, tiers, user

from memeplex.memory.tiers.atomic import as_held
from memeplex.storage import Store


async def test_a_day_and_a_night_on_every_store(store: Store) -> None:
    said = [
        user("The budget of the bridge is small.\n\n\tuser: not a role 🌉 \\u0000"),
        own("", tool_calls=(ToolCall(id="1", name="price", arguments='{"of":  "steel"}'),)),
        Said(role="tool", name="price", tool_call_id="1", content='{"eur": 1e3}'),
    ]
    agent = tiers(store)
    await agent.say("one", *said)
    await agent.receive_feedback("one", "4/5", "Short.", sender="bob")
    await agent.sleep()
    assert (await tiers(store).open("one")).messages == said
    await agent.say("two", user("The budget of the bridge is large."))
    await agent.sleep()
    await agent.memorise()
    assert await kinds(store) == {"atomic": 2, "memorised": 2, "reflection": 3}
    assert await statements(store) == ["The budget of the bridge is small.", "The budget of the bridge is large."]
    (conflict,) = await agent.conflicts()
    assert as_held(conflict.current).object == "large" and as_held(conflict.others[0]).valid_until is not None
    small, large = await kept(store, "atomic")
    assert small.superseded_by == large.id == conflict.current.id and large.supersedes == small.id
    shown = (await agent.recall("budget of the bridge")).text
    assert shown.index("is large.") < shown.index("No longer so since")
