import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from memeplex.errors import (
    EmptyReplyError,
    ModelError,
    ModelUnavailableError,
    RequestForbiddenError,
    StructuredOutputError,
    UserError,
)
from memeplex.models.base import ChatMessage, ModelOptions, Settings
from memeplex.models.testing import FunctionModel, RecordedModel, ScriptedModel, create_recorded
from memeplex.usage import Purpose


class Fact(BaseModel):
    fact: str


def say(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text)]


async def test_a_script_is_followed_in_order_and_recorded() -> None:
    model = ScriptedModel(["one", ModelUnavailableError("busy"), {"fact": "three"}, Fact(fact="four")])
    assert (await model.generate(say("a"))).text == "one"
    with pytest.raises(ModelUnavailableError):
        await model.generate(say("b"))
    assert (await model.generate(say("c"), Fact)).output.fact == "three"
    assert (await model.generate(say("d"), Fact)).output.fact == "four"
    assert [call.messages[0]["content"] for call in model.calls] == ["a", "b", "c", "d"]
    assert [call.schema is not None for call in model.calls] == [False, False, True, True]


async def test_a_used_up_script_says_so() -> None:
    model = ScriptedModel(["one"], name="moderator")
    await model.generate(say("a"))
    with pytest.raises(ModelError, match="moderator has no reply left for 'vote', after 1"):
        await model.generate(say("b"), settings=Settings(purpose=Purpose.VOTE))


async def test_a_script_by_purpose_does_not_mix() -> None:
    model = ScriptedModel({Purpose.ANSWER: ["a1", "a2"], Purpose.MEMORY_UPDATE: ["m1"]})
    answers = [
        await model.generate(say("x"), settings=Settings(purpose=p))
        for p in (Purpose.ANSWER, Purpose.MEMORY_UPDATE, Purpose.ANSWER)
    ]
    assert [answer.text for answer in answers] == ["a1", "m1", "a2"]


async def test_scripted_replies_take_the_path_of_real_ones() -> None:
    model = ScriptedModel(["", "prose", '```json\n{"fact": "ok"}\n```'])
    done = await model.generate(say("x"), Fact)
    assert (done.output.fact, done.usage.calls, done.usage.seconds) == ("ok", 3, 0.0)
    with pytest.raises(StructuredOutputError):
        await ScriptedModel(["a", "b", "c"]).generate(say("x"), Fact)
    with pytest.raises(EmptyReplyError):
        await ScriptedModel(["", ""]).generate(say("x"))


async def test_scripted_text_is_cleaned() -> None:
    assert (await ScriptedModel(["a\0\ud800"]).generate(say("x"))).text == "a\ufffd"


async def test_usage_is_the_same_in_every_run() -> None:
    usages = [(await ScriptedModel(["some words"]).generate(say("a question"))).usage for _ in range(2)]
    assert usages[0] == usages[1]
    assert usages[0].input > 0 and usages[0].output > 0 and usages[0].calls == 1


async def test_a_function_sees_messages_class_and_settings() -> None:
    def answer(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        return {"fact": messages[-1]["content"]} if output is Fact else settings.purpose.value

    model = FunctionModel(answer)
    assert (await model.generate(say("hi"), Fact)).output.fact == "hi"
    assert (await model.generate(say("hi"), settings=Settings(purpose=Purpose.VOTE))).text == "vote"


async def test_a_function_may_be_async_and_may_mend_its_reply() -> None:
    async def answer(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        return Fact(fact="second") if "not valid" in messages[-1]["content"] else "prose"

    done = await FunctionModel(answer).generate(say("x"), Fact)
    assert (done.output.fact, done.usage.calls) == ("second", 2)


async def test_a_function_model_keeps_no_state_from_call_to_call() -> None:
    seen: list[str] = []

    def answer(messages: Sequence[ChatMessage], output: type[BaseModel] | None, settings: Settings) -> Any:
        seen.append(messages[-1]["content"])
        return '{"fact": "x"}' if "not valid" in messages[-1]["content"] else "prose"

    model = FunctionModel(answer)
    await model.generate(say("q"), Fact)
    await model.generate(say("q"), Fact)
    assert seen[:2] == seen[2:]


async def test_a_recording_replays_in_another_process_without_the_model(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    recording = RecordedModel(path, ScriptedModel(["text", "prose", '{"fact": "x"}']))
    text = await recording.generate(say("a"))
    fact = await recording.generate(say("b"), Fact, Settings(purpose=Purpose.VOTE))
    replayed = create_recorded(f"recorded:{path}", ModelOptions())
    assert replayed.name == f"recorded:{path}"
    again = await replayed.generate(say("a"))
    assert (again.text, again.usage) == (text.text, text.usage)
    # The purpose does not count; order does not either.
    assert (await replayed.generate(say("b"), Fact)).output == fact.output
    assert (await replayed.generate(say("b"), Fact)).usage == fact.usage
    assert len(path.read_text().splitlines()) == 2


async def test_what_is_recorded_is_not_asked_for_again(tmp_path: Path) -> None:
    inner = ScriptedModel(["one", "two"])
    model = RecordedModel(tmp_path / "r.jsonl", inner)
    assert [(await model.generate(say(q))).text for q in "aab"] == ["one", "one", "two"]
    assert len(inner.calls) == 2


@pytest.mark.parametrize(
    ("messages", "output", "settings"),
    [
        (say("b"), None, Settings()),
        (say("a"), Fact, Settings()),
        (say("a"), None, Settings(max_tokens=3)),
        (say("a"), None, Settings(temperature=0.5)),
        (say("a"), None, Settings(seed=1)),
    ],
)
async def test_a_missing_request_says_how_to_record(
    tmp_path: Path, messages: list[ChatMessage], output: Any, settings: Settings
) -> None:
    path = tmp_path / "r.jsonl"
    await RecordedModel(path, ScriptedModel(["x"])).generate(say("a"))
    with pytest.raises(RequestForbiddenError) as caught:
        await RecordedModel(path).generate(messages, output, settings)
    assert "record it" in caught.value.remedy


async def test_a_line_cut_by_a_crash_is_dropped_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    await RecordedModel(path, ScriptedModel(["x"])).generate(say("a"))
    with path.open("ab") as file:
        file.write(b'{"key": "half')
    await RecordedModel(path, ScriptedModel(["y"])).generate(say("b"))
    replayed = RecordedModel(path)
    assert [(await replayed.generate(say(q))).text for q in "ab"] == ["x", "y"]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_file_that_is_no_recording_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("hello\n")
    with pytest.raises(UserError, match=r"r\.jsonl:1"):
        RecordedModel(path)
    with pytest.raises(UserError, match="no recording"):
        create_recorded(f"recorded:{tmp_path}/none.jsonl", ModelOptions())


async def test_failures_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    model = RecordedModel(path, ScriptedModel([ModelUnavailableError("busy"), "x"]))
    with pytest.raises(ModelUnavailableError):
        await model.generate(say("a"))
    assert (await model.generate(say("a"))).text == "x"
    assert len(path.read_text().splitlines()) == 1
