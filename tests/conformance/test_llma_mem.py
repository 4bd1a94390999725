"""Rows L01-L18 and L26 of the claims of LLMA-Mem ("Scaling Teams or Scaling Time?"): what the paper says it does.

Sections and appendices are the paper's. Where its text leaves a choice open, the reading taken is in the docstring.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lives import (
    STRATEGY,
    archive,
    episodes,
    injected,
    invoices,
    kept,
    lifelong,
    live,
    opened,
    procedures,
    task,
    team,
    work,
)
from pydantic import BaseModel, ValidationError
from support import block, listening, only

from memeplex import subscribe
from memeplex.agents import Agent
from memeplex.autonoms.draw_lessons import Lessons
from memeplex.embeddings.testing import HashingEmbedder
from memeplex.errors import ModelUnavailableError
from memeplex.memory import transactive
from memeplex.memory.consolidation import CONSOLIDATION, LESSONS
from memeplex.memory.lifelong import LifelongSettings
from memeplex.models import ChatMessage, Settings
from memeplex.storage.sqlite import SQLiteStore
from memeplex.telemetry import EmbeddingFailed, Event, MemoryConsolidated, RunFinished, TurnStarted
from memeplex.usage import Purpose


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "life.db") as made:
        yield made


async def test_l01_an_episode_keeps_the_whole_trajectory_of_a_task(store: SQLiteStore) -> None:
    """Section 3: "Episodic memory preserves full task trajectories … Stored records include task context, team
    composition, actions, outcomes, environmental context, and extracted lessons."

    Reading: a trajectory is the agent's own turns, whole and in order; what the others said is in theirs.
    """
    model, _ = listening(work)
    told = task("Pay invoice 7.", type="finance", deadline="Friday")
    (result,) = await live(team(model, turns=4), store, told)
    (record,), (episode,) = await kept(store, "duo/A", "episode"), await episodes(store)
    assert record.text == "Pay invoice 7." and episode.type == "finance"
    assert episode.team == ("A", "B")
    assert episode.actions == tuple(t.content for t in result.conversation.by("A")) and len(episode.actions) == 2
    assert (episode.success, episode.status, episode.reward, episode.error) == (True, "completed", 1.0, "")
    assert episode.context == {"deadline": "Friday"}, "and not what it is judged by"
    assert episode.lessons == ("Ask zed before the next step of: Pay invoice 7.",)
    assert record.provenance.run == result.run and record.provenance.turns == (0, 2)


async def test_l02_a_procedure_is_distilled_from_several_trajectories_and_no_raw_log(store: SQLiteStore) -> None:
    """Appendix A: "Procedural memory is a compact, structured, reusable strategy distilled from multiple task
    trajectories rather than raw interaction logs." """
    model, asked = listening(work)
    await live(team(model), store, *invoices(5))
    (procedure,) = await procedures(store)
    assert len(procedure.sources) == 5
    (prompt, *_) = [one.text for one in only(asked, Purpose.CONSOLIDATION)]
    actions = [action for episode in await episodes(store) for action in episode.actions]
    assert actions and not any(action in prompt or action in procedure.strategy for action in actions)
    assert len(procedure.title) <= 80 and len(procedure.strategy) <= 600


async def test_l03_a_procedure_tracks_applications_times_sources_tools_and_failures(store: SQLiteStore) -> None:
    """Section 3: "Procedures track successful and failed applications, update times, and supporting source
    episodes"; appendix A: "… tool-use guidance, and failure categories to preempt."

    Reading: a task counts once for a procedure, whether it was made of it, applied in it, or both.
    """
    model, _ = listening(work)
    made = team(model, lifelong(every=2, grouped_from=0.3))
    await live(made, store, *invoices(2))
    (record,) = await kept(store, "duo/A", "procedure")
    await live(made, store, *invoices(1, 3), *invoices(1, 4, success=False))
    (procedure,), (later,) = await procedures(store), await kept(store, "duo/A", "procedure")
    assert (procedure.won, procedure.lost) == (3, 1)
    assert [trial.success for trial in procedure.applications] == [True, False]
    assert procedure.sources == {one.id for one in await kept(store, "duo/A", "episode")}
    assert later.id == record.id and later.created == record.created and later.updated > record.updated
    assert procedure.tools == tuple(STRATEGY["tools"])
    assert procedure.failures_to_prevent == tuple(STRATEGY["failures"])
    assert [episode.procedures for episode in await episodes(store)] == [(), (), (record.id,), (record.id,)]


async def test_l04_repeated_success_becomes_an_explicit_template_and_a_single_one_does_not(store: SQLiteStore) -> None:
    """Section 3: "repeated successful patterns become explicit action templates."

    Reading: repeated is in two tasks at least, of which one succeeded (the code's rule); several agents' episodes of
    one task are one task.
    """
    model, asked = listening(work)
    shared = {"topology": "shared", "every": 1}
    await live(team(model, lifelong(**shared), name="once"), store, *invoices(1))
    await live(team(model, lifelong(every=2), name="never"), store, *invoices(2, success=False))
    assert not only(asked, Purpose.CONSOLIDATION)
    await live(team(model, lifelong(**shared), name="twice"), store, *invoices(2))
    (procedure,) = await procedures(store, "twice")
    assert procedure.strategy.startswith("1. Ask zed")


async def test_l05_who_knows_what_and_which_teams_suit_come_from_what_was_done(store: SQLiteStore) -> None:
    """Section 3: "Transactive memory represents who knows what and which team configurations work for which tasks …
    It models agent profiles and team patterns using accumulated competence and collaboration information." """
    model, _ = listening(work)
    hybrid = lifelong(topology="hybrid")
    await live(team(model, hybrid), store, *(task("Fix the parser.", n < 3, type="coding") for n in range(4)))
    await live(team(model, hybrid, agents="AC"), store, task("Read the paper.", type="research"))
    shown = await transactive.profiles(archive(store), ["duo"])
    assert str(shown["A"].types["coding"]) == "3 of 4" and str(shown["A"].types["research"]) == "1 of 1"
    assert set(shown["B"].types) == {"coding"} and str(shown["A"].partners["C"]) == "1 of 1"
    assert shown["A"].types["coding"].reliability > 0.5
    seen = await transactive.patterns(archive(store), ["duo"])
    assert set(seen) == {("A", "B"), ("A", "C")}
    assert seen["A", "B"].count == 4 and seen["A", "B"].performance == 0.75 and seen["A", "B"].overhead == 2
    assert str(seen["A", "B"].tally("coding")) == "3 of 4"


async def test_l06_it_serves_team_formation_role_assignment_and_decomposition(store: SQLiteStore) -> None:
    """Section 3: "supporting decomposition, role assignment, and team formation."

    Reading: decomposition is the planner's own work; what memory gives to it is text in the planner's prompt.
    """
    model, asked = listening(work)
    hybrid = lifelong(topology="hybrid", team=True)
    await live(team(model, hybrid, agents="AB"), store, *(task("Fix the parser.", type="coding") for _ in range(3)))
    await live(team(model, hybrid, agents="CD"), store, *(task("Fix the parser.", False, type="coding") for _ in "12"))
    found, owners = archive(store), ["duo"]
    assert [one.agent for one in await transactive.experts(found, owners, "Fix the parser again.")] == list("ABCD")
    best = (await transactive.suggest_team(found, owners, "Fix the parser.", size=2, kind="coding"))[0]
    assert best.agents == ("A", "B") and "A: 3 of 3 tasks like this one" in best.reasons
    assert best.reasons[-1] == "together: 3 of 3 coding, performance 1.00, 2 turns a task"
    parts = await transactive.assign_roles(found, owners, {"parser": "Fix the parser."}, agents="AC")
    assert parts["parser"].agent == "A" and parts["parser"].successes == 3
    asked.clear()
    await live(team(model, hybrid, agents="AC"), store, task("Fix the parser.", type="coding"))
    told = injected(asked)[0]
    assert "- A: Role of A. 3 of 3 tasks like this one. By type: coding 3 of 3." in told
    assert "- C: Role of C. 0 of 2 tasks like this one." in told


@pytest.mark.parametrize(
    ("topology", "owners"),
    [
        pytest.param(
            "local",
            {"duo/A": {"episode", "procedure", "experience", "retrieval"}},
            id="test_l07",
        ),
        pytest.param("shared", {"duo": {"episode", "procedure", "experience", "retrieval"}}, id="test_l08"),
        pytest.param(
            "hybrid",
            {"duo/A": {"episode", "retrieval"}, "duo": {"procedure", "experience"}},
            id="test_l09",
        ),
    ],
)
async def test_l07_l08_l09_each_topology_keeps_things_where_it_says(
    store: SQLiteStore, topology: str, owners: dict[str, set[str]]
) -> None:
    """Appendix A: "Local topology gives each agent private episodic, procedural, and transactive stores, whereas shared
    topology uses one common store and hybrid topology shares procedural memory and coordination statistics." """
    model, _ = listening(work)
    await live(team(model, lifelong(topology=topology, every=2)), store, *invoices(2))
    both = {**owners, **{name.replace("/A", "/B"): kinds for name, kinds in owners.items()}}
    assert {name: set(kinds) for name, kinds in (await store.records.owners()).items()} == both


async def seen_by_b(store: SQLiteStore, topology: str, every: int) -> str:
    """What B is given, after two tasks that A alone has worked on."""
    model, asked = listening(work)
    memory = lifelong(topology=topology, every=every)
    await live(team(model, memory, agents="AB", turns=1), store, *invoices(2))
    asked.clear()
    await live(team(model, memory, agents="BA", turns=1), store, *invoices(1, 3))
    return injected(asked)[0]


async def test_l07_local_memories_are_private(store: SQLiteStore) -> None:
    """Section 3: "Local stores preserve role-specific memories"."""
    assert await seen_by_b(store, "local", 2) == ""


async def test_l08_a_shared_memory_is_everybodys(store: SQLiteStore) -> None:
    """Section 3: "shared stores enable collective access"."""
    assert "invoice number 1" in await seen_by_b(store, "shared", 5)


async def test_l09_hybrid_shares_procedures_and_keeps_episodes(tmp_path: Path) -> None:
    """Section 3: "hybrid stores keep episodic histories local while sharing procedures and team statistics"."""
    async with opened(tmp_path / "one.db") as one, opened(tmp_path / "two.db") as two:
        assert await seen_by_b(one, "hybrid", 5) == ""
        assert "Procedure: Paying an invoice" in await seen_by_b(two, "hybrid", 2)


async def test_l10_the_lifecycle_is_retrieval_update_consolidation(store: SQLiteStore) -> None:
    """Section 3: "The memory lifecycle comprises retrieval, update, and consolidation phases." """
    model, asked = listening(work)
    made, seen = team(model, lifelong(every=2)), list[Event]()
    await live(made, store, *invoices(1))
    asked.clear()
    with subscribe(seen.append):
        await live(made, store, *invoices(1, 2))
    assert all("Pay invoice number 1" in text for text in injected(asked)), "retrieved before the first word"
    steps = [event.job if isinstance(event, MemoryConsolidated) else type(event) for event in seen]
    turns = [step for step in steps if step in (TurnStarted, LESSONS, CONSOLIDATION, RunFinished)]
    assert turns == [TurnStarted] * 2 + [LESSONS, CONSOLIDATION] * 2 + [RunFinished]
    causes = [row.cause for row in reversed(await store.records.audit("duo/A"))]
    assert causes[-5:] == ["retrieved for a task", "task done", "task done", "lessons", "consolidation"]


async def test_l11_procedures_are_asked_first_and_episodes_where_none_passes_three_at_most(store: SQLiteStore) -> None:
    """Section 3: "Retrieval queries procedural memory first and falls back to episodic memory"; appendix A: "retrieves
    the top-3 memory items by default".

    Reading: a procedure passes when it has to do with the task and has succeeded often enough (the code's gates).
    """
    model, asked = listening(work)
    assert LifelongSettings().top == 3
    made = team(model, lifelong(grouped_from=0.3))
    await live(made, store, *invoices(5))
    assert injected(asked)[0] == "" and injected(asked)[-1].count("Task: ") == 3
    for told, gives in (("Pay invoice number 6.", "Procedure: "), ("Zwiebeln hacken", "Task: ")):
        asked.clear()
        await live(made, store, told)
        assert all(f"\n\n{gives}" in text for text in injected(asked)), told
        assert not ("Procedure: " in injected(asked)[0] and "Task: " in injected(asked)[0])


async def test_l12_after_each_task_experience_and_statistics_are_updated(store: SQLiteStore) -> None:
    """Section 3: the lifecycle "updates experience and coordination statistics"."""
    model, _ = listening(work)
    made = team(model)
    for done in (1, 2, 3):
        await live(made, store, *invoices(1, done, success=done < 3))
        counts = (await store.records.owners())["duo/A"]
        assert counts["episode"] == counts["experience"] == done
    pattern = (await transactive.patterns(archive(store), ["duo/A", "duo/B"]))["A", "B"]
    assert pattern.count == 3 and pattern.performance == pytest.approx(2 / 3)


async def test_l13_every_five_tasks_like_ones_are_grouped_and_success_is_abstracted(store: SQLiteStore) -> None:
    """Section 3: "consolidation groups similar episodes, identifies recurring successful patterns, and abstracts
    candidate procedures"; appendix A: "consolidation interval N=5"."""
    model, asked = listening(work)
    assert LifelongSettings().every == 5
    made = team(model, lifelong(grouped_from=0.4), agents="A", turns=1)
    fences = [task(f"Paint fence {colour} in the old garden.", False) for colour in ("green", "blue")]
    for number, told in enumerate([*invoices(3), *fences], 1):
        await live(made, store, told)
        assert len(only(asked, Purpose.CONSOLIDATION)) == (number == 5)
    (procedure,) = await procedures(store)
    ids = {record.id for record in await kept(store, "duo/A", "episode") if "invoice" in record.text}
    assert procedure.sources == ids, "the fences have no success among them"


@pytest.mark.parametrize(
    ("success", "focus"), [(True, "what has to be done again?"), (False, "what has to be done instead?")]
)
async def test_l14_one_to_three_lessons_with_a_focus_and_concrete_actions(
    store: SQLiteStore, success: bool, focus: str
) -> None:
    """Appendix D.4: "After each task, LLMA-Mem extracts one to three actionable lessons from the task experience and
    returns them as a JSON array. The extraction prompt uses task context, actions, outcome, and a success-or-failure
    focus, emphasizing concrete tool calls and strategies"; "prioritize concrete actions and specific next steps over
    vague advice".

    Reading: the array stands in an object, which is what endpoints take as a schema.
    """
    model, asked = listening(work)
    (result,) = await live(team(model, agents="A", turns=1), store, *invoices(1, success=success))
    (lesson,) = only(asked, Purpose.LESSON)
    assert block(lesson.text, "task") == "Pay invoice number 1 of the paper supplier."
    assert result.conversation.turns[0].content in block(lesson.text, "turns")
    assert block(lesson.text, "message").startswith("success" if success else "failure")
    assert focus in lesson.text and lesson.text.count("what has to be done") == 1
    assert "Concrete actions and next steps, no general advice." in " ".join(lesson.text.split())
    assert lesson.output is Lessons and Lessons.model_json_schema()["properties"]["lessons"]["type"] == "array"
    for count in (0, 4):
        with pytest.raises(ValidationError):
            Lessons(lessons=["Ask zed."] * count)


async def test_l15_tasks_lessons_and_outcomes_in_and_a_titled_strategy_out(store: SQLiteStore) -> None:
    """Appendix D.5: "The consolidation prompt supplies task descriptions, lessons, and outcomes, then requests a titled
    strategy in JSON format … instructed to produce actionable strategies for similar future situations while avoiding
    vague advice." """
    model, asked = listening(work)
    await live(team(model, lifelong(every=3), agents="A", turns=1), store, *invoices(2), *invoices(1, 3, success=False))
    (one,) = only(asked, Purpose.CONSOLIDATION)
    for number in (1, 2, 3):
        assert f"Pay invoice number {number} of" in one.text
        assert f"- Ask zed before the next step of: Pay invoice number {number}" in one.text
    assert one.text.count("\nsuccess (completed") == 2 and one.text.count("\nfailure (completed") == 1
    assert "one procedure for tasks of this kind" in one.text and "No general advice" in one.text
    assert one.output is not None
    assert {"title", "strategy", "tools", "failures"} == set(one.output.model_json_schema()["properties"])


async def test_l16_the_action_prompt_has_identity_instruction_memory_task_and_the_others(store: SQLiteStore) -> None:
    """Appendix D.2: "LLMA-Mem combines agent information, optional reasoning instructions, retrieved memory, the
    current task, and other-agent descriptions in one user prompt."

    Reading: who the others are is told with ``team=True``. By default the transcript names them, so that a memory is
    compared with another that differs in nothing but memory.
    """
    model, asked = listening(work)
    agents = [
        Agent(name, role=f"You know {what}.", model=model, memory=lifelong(team=True), layout="paper")
        for name, what in (("A", "ledgers"), ("B", "banks"))
    ]
    made = team(model)
    made.agents = agents
    await live(made, store, *invoices(2))
    text = only(asked, Purpose.ANSWER)[-1].text
    parts = ["You are B", "You know banks.", "Task: Pay invoice number 1", "- A: You know ledgers.", "invoice number 2"]
    places = [text.index(part) for part in [*parts, "Say what you have to say next."]]
    assert places == sorted(places)


async def test_l17_memory_comes_in_blocks_by_type_with_title_success_rate_and_strategy(store: SQLiteStore) -> None:
    """Appendix D.3: "Retrieved memory is inserted in type-specific blocks for episodic experiences and procedural
    strategies. Procedural memory entries include a procedure title, success rate, and strategy content." """
    model, asked = listening(work)
    made = team(model, lifelong(every=3, grouped_from=0.3), agents="A", turns=1)
    await live(made, store, *invoices(2), *invoices(1, 3, success=False), *invoices(1, 4))
    _, second, _, fourth = injected(asked)
    shown = second.split("\n\n")[1].splitlines()
    shown[1] = shown[1].partition(". ")[0]
    assert shown == [
        "Task: Pay invoice number 1 of the paper supplier.",
        "Result: success (completed, reward 1)",
        "Lesson: Ask zed before the next step of: Pay invoice number 1 of the paper supplier.",
    ]
    assert fourth.split("\n\n")[1:] == [
        "Procedure: Paying an invoice (success rate 67%: 2 of 3)\n"
        f"Strategy: {STRATEGY['strategy']}\n"
        "Tool: zed: give it the invoice's number\n"
        "Prevent: a sum that nobody compared"
    ]


@pytest.mark.parametrize("layout", ["paper", "cached"])
async def test_l18_memory_stands_before_the_task_which_stays_as_it_is(store: SQLiteStore, layout: Any) -> None:
    """Appendix D.1: "LLMA-Mem prepends memory context while preserving the benchmark's downstream task
    description." """
    said = "Exactly this:\n  1. {pay} <b>&\n\n2. 橋"

    def reply(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        return work(messages, output, settings) if settings.purpose is not Purpose.ANSWER else f"{layout} said"

    model, asked = listening(reply)
    with_memory, without = team(model, agents="A", turns=1), team(model, agents="A", turns=1)
    with_memory.agents = [Agent("A", role="R.", model=model, memory=lifelong(), layout=layout)]
    without.agents = [Agent("A", role="R.", model=model, memory=lifelong(inject=False), layout=layout)]
    await live(with_memory, store, said)
    asked.clear()
    await live(with_memory, store, said)
    await live(without, store, said)
    told, bare = (one.text for one in only(asked, Purpose.ANSWER))
    inserted = f"<experience>\n{block(told, 'experience')}\n</experience>\n\n"
    assert told.replace(inserted, "") == bare and told.index(inserted) < told.index("The task:")
    assert block(told, "task") == said


async def test_l26_redundancy_what_is_said_twice_is_kept_and_shown_once(store: SQLiteStore) -> None:
    """Section 6: "The study measures overall task and communication performance without explicitly assessing memory
    redundancy, staleness, or retrieval-error robustness."

    Reading: future work that is ours to build. Redundancy: two procedures with the same title and nearly the same
    words become one with the counts of both; a lesson is shown once, however many episodes hold it.
    """

    def reply(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        if settings.purpose is Purpose.LESSON:
            return {"lessons": ["Compare the sums before you pay."]}
        return work(messages, output, settings)

    model, asked = listening(reply)
    made = team(model, lifelong(topology="hybrid", every=3))
    await live(made, store, *invoices(3))
    (procedure,) = await procedures(store, "duo")
    assert procedure.won == 6, "three tasks of each of two agents"
    assert injected(asked)[-1].count("Compare the sums before you pay.") == 1


async def test_l26_staleness_what_keeps_failing_is_retired_and_what_is_old_counts_less(store: SQLiteStore) -> None:
    """Section 6, as above. Staleness: a procedure that keeps failing is shown no longer, and an agent's old successes
    weigh less than its new failures."""
    model, asked = listening(work)
    made = team(model, lifelong(every=2, prune_after=2, prune_below=0.6, least_success=0.1), agents="A", turns=1)
    await live(made, store, *invoices(2), *invoices(2, 3, success=False))
    (procedure,) = await procedures(store)
    assert procedure.retired and (procedure.won, procedure.lost) == (2, 2)
    asked.clear()
    await live(made, store, *invoices(1, 5))
    assert "Procedure: " not in injected(asked)[0] and "Task: " in injected(asked)[0]
    await live(team(model, name="new", agents="A", turns=1), store, *invoices(2), *invoices(2, 3, success=False))
    short, long = [
        (await transactive.profiles(archive(store), ["new/A"], half_life=half_life))["A"].types[""].reliability
        for half_life in (1, 1000)
    ]
    assert short < 0.4 < long == pytest.approx(0.5, abs=0.01)


async def test_l26_retrieval_errors_leave_the_task_as_it_is(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 6, as above. Robustness: with an embedder that fails, words are searched and an event says so; what does
    not pass the gates is not shown."""
    model, asked = listening(work)
    made = team(model, agents="A", turns=1)
    await live(made, store, *invoices(1))

    async def fail(self: Any, texts: Any, *, kind: Any) -> Any:
        raise ModelUnavailableError("the embedder is down")

    monkeypatch.setattr(HashingEmbedder, "embed", fail)
    asked.clear()
    seen: list[Event] = []
    with subscribe(seen.append):
        (result,) = await live(made, store, *invoices(1, 2))
    assert result.outcome and result.outcome.success
    assert "invoice number 1" in injected(asked)[0]
    assert {event.cause for event in seen if isinstance(event, EmbeddingFailed)} == {"the embedder is down"}
    assert len(await episodes(store)) == 2
