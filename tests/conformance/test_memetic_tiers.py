"""Rows M05-M07, M16, M20-M25, M30 and M35 of the claims of Memetic Agents: what the paper says of memory and feedback.

Sections are the paper's. Where its text leaves a choice open, the reading taken is in the docstring.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from days import (
    Said,
    ToolCall,
    kept,
    kinds,
    listening,
    live,
    memory,
    opened,
    own,
    reflection,
    says,
    statements,
    think,
    tiers,
    user,
)
from support import block, only

from memeplex.autonoms import give_feedback
from memeplex.embeddings import create_embedder
from memeplex.memory.archive import embedded_text
from memeplex.memory.tiers.atomic import as_held
from memeplex.memory.tiers.feedback import as_feedback
from memeplex.memory.tiers.reflections import as_reflection
from memeplex.models import Settings
from memeplex.models.testing import FunctionModel
from memeplex.storage.sqlite import SQLiteStore
from memeplex.usage import Purpose

BUDGET = "The budget of the bridge is small."


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


async def test_m05_an_autonom_gives_feedback_to_another_agent_after_an_interaction(store: SQLiteStore) -> None:
    """Autonoms: "Give Feedback: Provides feedback to another agent after an interaction."

    Reading: it is given by the one who got the answer, from what it had asked and what it was answered.
    """
    model, asked = listening(think)
    done = await give_feedback(
        model,
        Settings(purpose=Purpose.FEEDBACK),
        name="bob",
        role="You buy bridges.",
        asked="What is the budget?",
        answer=BUDGET,
        by="A",
    )
    (prompt,) = [one.text for one in only(asked, Purpose.FEEDBACK)]
    assert "You are bob." in prompt and "What is the budget?" in prompt and "A answered" in prompt and BUDGET in prompt
    answered = tiers(store)
    await answered.say("talk", user("What is the budget?"), own(BUDGET))
    await answered.receive_feedback("talk", done.output.score, done.output.comment, sender="bob")
    (record,) = await kept(store, "feedback")
    assert (as_feedback(record).score, as_feedback(record).comment) == (7, "It names the sum.")


async def test_m06_an_autonom_reflects_on_conversations_and_feedback(store: SQLiteStore) -> None:
    """Autonoms: "Reflect on Memories: Reflects on the agent's conversations and feedback looking for learning
    opportunities." """
    model, asked = listening(think)
    agent = tiers(store, model)
    await agent.say("talk", user(BUDGET), own("Noted."))
    await agent.receive_feedback("talk", 4, "You did not say by when.", sender="bob")
    await agent.sleep()
    await agent.memorise()
    on_memories, on_feedback = (one.text for one in only(asked, Purpose.REFLECTION))
    assert BUDGET in block(on_memories, "turns") and BUDGET in block(on_memories, "memory")
    assert block(on_feedback, "message") == "[bob] score 4 of 10: You did not say by when."
    lessons = [as_reflection(record) for record in await kept(store, "reflection")]
    assert "You did not say by when." in lessons[1].lesson and all(one.conversation == "talk" for one in lessons)


async def test_m07_short_term_memories_are_extracted_categorised_and_tagged(store: SQLiteStore) -> None:
    """Autonoms: "Transfer to Long Term Memory: Extracts, categories and tags short term memories for storage in long
    term memory." """
    wish = memory("Bob wants a bridge of steel.", "Bob", "wants", "steel", category="preference", tags=["material"])
    model = FunctionModel(says(extraction={"memories": [wish]}))
    await live(tiers(store, model), ("talk", [user("I, Bob, want a bridge. Of steel!")]))
    (record,) = await kept(store, "atomic")
    assert (as_held(record).category, as_held(record).tags) == ("preference", ["material"])
    assert await kinds(store) == {"atomic": 1, "memorised": 1, "reflection": 1}


async def test_m16_feedback_is_kept_apart_with_score_text_and_the_conversations_id(store: SQLiteStore) -> None:
    """Message Types: "Contains both numerical scoring and qualitative feedback … Stored separately from standard
    messages for targeted retrieval … Links to original conversations through conversation IDs." """
    agent = tiers(store)
    await agent.say("talk", user("What is the budget?"), own(BUDGET))
    await agent.receive_feedback("talk", 6, "Which currency?", sender="bob")
    await agent.sleep()
    (record,), (chunk,) = await kept(store, "feedback"), await kept(store, "short_term")
    given = as_feedback(record)
    assert (given.score, given.comment, given.conversation, given.sender) == (6, "Which currency?", "talk", "bob")
    assert "currency" not in chunk.text
    hits = (await agent.archive.find("which currency", [agent.owner], kinds=["feedback"])).hits
    assert [hit.record.id for hit in hits] == [record.id] and record.provenance.author == "bob"


async def test_m20_working_memory_holds_conversations_by_id_in_the_process_alone(store: SQLiteStore) -> None:
    """Types of Memory: "conversations the agent is having in the current session and is non-persistent … new messages
    are simply added to the end of the conversation. Each conversation has its own unique conversation id." """
    agent = tiers(store)
    for text in ("One.", "Two."):
        for name in ("first", "second"):
            await agent.say(name, user(f"{name}: {text}"))
    assert [[one.content for one in talk.messages] for talk in agent.working.values()] == [
        ["first: One.", "first: Two."],
        ["second: One.", "second: Two."],
    ]
    assert await store.records.owners() == {} and tiers(store).working == {}


async def test_m21_short_term_memory_is_lossless_searchable_and_goes_on_in_further_chunks(store: SQLiteStore) -> None:
    """Types of Memory: "converted to vector embeddings and stored in a vector database. The conversations are stored as
    is with no loss of information … converted back into the LLM's native message format … the new messages are stored
    as a new short term memory (related to the previous short term memory via the conversation id)." """
    said = (
        Said(role="system", content="You are A."),
        user("Line one\nuser: not a role\n\n\tline four 🌉"),
        own("", tool_calls=(ToolCall(id="7", name="price", arguments='{"of":  "steel"}'),)),
        Said(role="tool", name="price", tool_call_id="7", content='{"eur": 1e3}'),
    )
    agent = tiers(store)
    await agent.say("talk", *said)
    await agent.sleep()
    assert await store.records.without_vectors("hashing:256") == []
    later = tiers(store)
    assert (await later.open("talk")).messages == list(said)
    await later.say("talk", user("And?"))
    await later.sleep()
    first, second = await kept(store, "short_term")
    assert first.payload["conversation"] == second.payload["conversation"] == "talk"
    assert [len(one.payload["messages"]) for one in (first, second)] == [4, 1] and second.payload["start"] == 4
    assert (await tiers(store).open("talk")).messages == [*said, *later_said(second)]


def later_said(record: Any) -> list[Said]:
    return [Said.model_validate(one) for one in record.payload["messages"]]


async def test_m22_feedback_has_a_store_of_its_own_with_the_conversations_id(store: SQLiteStore) -> None:
    """Types of Memory: "feedback from other agents that gets stored in its own vector database … The conversation id is
    stored as metadata so that the feedback can be associated with the correct conversation."

    Reading: a store of its own is a kind of its own in the one store, with vectors.
    """
    agent = tiers(store)
    for name in ("first", "second"):
        await agent.receive_feedback(name, 5, f"On the {name}.", sender="bob")
    assert await kinds(store) == {"feedback": 2} and await store.records.without_vectors("hashing:256") == []
    assert [as_feedback(one).conversation for one in await kept(store, "feedback")] == ["first", "second"]


async def test_m23_long_term_memories_are_atomic_with_embedded_tags_and_the_whole_is_gone(store: SQLiteStore) -> None:
    """Types of Memory: "Once a conversation is converted to long term memories it is no longer retrievable in full";
    Memory Consolidation: "Each atomic memory has a subject, object and predicate along with a series of semantic
    metatags that are included as part of the vector embedding." """
    fact = memory(BUDGET, "the bridge", "has budget", "small", tags=["money", "limits"])
    agent = tiers(store, FunctionModel(says(extraction={"memories": [fact]}, reflection={"reflections": []})))
    await live(agent, ("talk", [user(f"Hello. {BUDGET}"), own("I see.")]))
    (record,) = await kept(store, "atomic")
    held = as_held(record)
    assert (held.subject, held.predicate, held.object) == ("the bridge", "has budget", "small")
    assert embedded_text(record) == f"bob: {BUDGET}\n#money #limits"
    embedder = create_embedder("hashing")
    tagged, bare, query = await embedder.embed([embedded_text(record), f"bob: {BUDGET}", "limits"], kind="passage")
    (hit,) = (await agent.archive.find("limits", [agent.owner], kinds=["atomic"])).hits
    assert hit.similarity == pytest.approx(float(query @ tagged), abs=1e-5) and query @ tagged > query @ bare
    talk = await tiers(store).open("talk")
    assert (talk.messages, talk.start) == ([], 2) and (await agent.recall("Hello. I see.")).text == ""


async def test_m24_chunks_are_put_together_in_the_order_of_time_and_feedback_is_added(store: SQLiteStore) -> None:
    """Memory Consolidation: "retrieving all short term memories and feedback associated with a conversation. The chunks
    of conversation are then reassembled in chronological order to which the feedback is added … uses structured output
    to return the atomic memories as a list of json objects." """
    nights = tiers(store)
    for n in range(3):
        await nights.say("talk", user(f"Message {n}."))
        await nights.sleep()
    chunks = await kept(store, "short_term")
    await store.records.forget("duo/A", actor="test")
    # Taken in anew, the newest first, as an import may.
    for chunk in reversed(chunks):
        await store.records.add([chunk.model_copy(update={"id": f"x{2 - chunk.payload['start']}"})], actor="test")
    model, asked = listening(think)
    agent = tiers(store, model)
    await agent.receive_feedback("talk", 2, "No.", sender="bob")
    await agent.receive_feedback("other", 2, "Of something else.", sender="bob")
    await agent.memorise()
    (extraction,) = only(asked, Purpose.EXTRACTION)
    assert block(extraction.text, "turns").splitlines() == [f"[bob] Message {n}." for n in range(3)]
    assert block(extraction.text, "message") == "[bob] score 2 of 10: No."
    assert extraction.output is not None and "memories" in extraction.output.model_fields


async def test_m25_reflections_have_lesson_importance_category_and_thoughts(store: SQLiteStore) -> None:
    """Types of Memory: "Reflections are created at the same time as long term memories. Each reflection consists of a
    lesson, importance, category and the autonom's thoughts." """
    drawn = reflection("Ask by when.", thoughts="Nobody asked.", importance=0.7, category="reasoning")
    model = FunctionModel(says(reflection={"reflections": [drawn]}))
    await live(tiers(store, model), ("talk", [user(BUDGET)]))
    (record,), (fact,) = await kept(store, "reflection"), await kept(store, "atomic")
    made = as_reflection(record)
    assert (made.lesson, made.importance, made.category, made.thoughts, made.used) == (
        "Ask by when.",
        0.7,
        "reasoning",
        "Nobody asked.",
        False,
    )
    rows = [row for row in await store.records.audit("duo/A") if row.action == "add" and "memorised" in row.cause]
    assert len(rows) == 1 and rows[0].records == 3, "memories, reflections and the receipt in one transaction"
    assert fact.provenance.run == record.provenance.run == "talk"


async def test_m30_social_exchanges_are_treated_apart(store: SQLiteStore) -> None:
    """Message Persistence: "Social interactions receive special treatment during memory consolidation to capture
    learning opportunities."

    Reading: the prompts that were exchanged are read for what can be learnt from them, and never for facts; what an
    agent says of itself in an exchange is trusted less than what it says at work.
    """
    prompt = user("The secret of good answers is a list of steps.", name="B", source="prompt")
    model, asked = listening(think)
    agent = tiers(store, model)
    await live(agent, ("work", [user("The language of B is Welsh.", name="B")]))
    asked.clear()
    await agent.say("meeting", prompt, user("The language of B is French.", name="B"), social=True)
    await agent.sleep()
    await agent.memorise()
    (extraction,), (reflecting,) = only(asked, Purpose.EXTRACTION), only(asked, Purpose.REFLECTION)
    assert prompt.content not in extraction.text and "able to do, prefers, believes" in extraction.text
    assert prompt.content in block(reflecting.text, "turns") and "compared their prompts" in reflecting.text
    assert "The secret of good answers is a list of steps." not in await statements(store)
    at_work, social = await kept(store, "atomic")
    assert social.payload["social"] and "social" in social.payload["tags"] and social.trust < at_work.trust
    assert social.superseded_by == at_work.id, "it does not outweigh what was said at work"
    assert [as_reflection(one).social for one in await kept(store, "reflection")] == [False, True]


async def test_m35_conflicting_memories_are_resolved_and_both_can_be_looked_at(store: SQLiteStore) -> None:
    """Future Research: "Conflicting Memory Resolution & Agent Bias: This will allow the observence of how a population
    of agents behave when subsets of agents have conflicting memories, ideas or goals."

    Reading: of two memories with one subject and predicate and different objects, the newer one holds, unless it is
    trusted much less; both are kept with the times when they held. The agents of a population each have their own, so
    that what they differ in can be listed.
    """
    agents = {name: tiers(store, name=name) for name in "ABC"}
    for name, size in zip("ABC", ("small", "large", "small"), strict=True):
        await live(agents[name], ("one", [user(f"The budget of the bridge is {size}.")]))
    await live(agents["A"], ("two", [user("The budget of the bridge is vast.")]))
    (conflict,) = await agents["A"].conflicts()
    now, (before,) = as_held(conflict.current), [as_held(one) for one in conflict.others]
    assert (conflict.subject, conflict.predicate) == ("the bridge", "has budget")
    assert (now.object, before.object) == ("vast", "small")
    assert now.valid_until is None and before.valid_until == now.valid_from > before.valid_from
    shown = [
        line for line in (await agents["A"].recall("budget of the bridge")).text.splitlines() if "Lesson" not in line
    ]
    assert "vast" in shown[1] and shown[2].startswith("No longer so since") and "small" in shown[2]
    holds = {name: as_held((await kept(store, "atomic", f"duo/{name}"))[-1]).object for name in agents}
    assert holds == {"A": "vast", "B": "large", "C": "small"} and not await agents["B"].conflicts()
