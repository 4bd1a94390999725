import pytest

from memeplex.errors import AuthenticationError, ModelError, ModelUnavailableError
from memeplex.models.base import ChatMessage
from memeplex.models.retry import RetryModel
from memeplex.models.testing import ScriptedModel
from memeplex.telemetry import Event, ReplyRetried, subscribe

PROMPT = [ChatMessage(role="user", content="hello")]


class Naps:
    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def busy(retry_after: float | None = None) -> ModelUnavailableError:
    return ModelUnavailableError("HTTP 429", retry_after=retry_after)


async def test_backs_off_exponentially_and_goes_on() -> None:
    naps = Naps()
    inner = ScriptedModel([busy(), busy(), busy(), "there"])
    model = RetryModel(inner, attempts=4, base=0.5, sleep=naps, jitter=lambda longest: longest)
    assert (await model.generate(PROMPT)).text == "there"
    assert naps.taken == [0.5, 1.0, 2.0]


async def test_jitter_spreads_from_zero_and_the_wait_is_bounded() -> None:
    drawn: list[float] = []
    naps = Naps()

    def jitter(longest: float) -> float:
        drawn.append(longest)
        return 0.0

    model = RetryModel(
        ScriptedModel([busy()] * 9 + ["x"]), attempts=10, base=1.0, longest=30.0, sleep=naps, jitter=jitter
    )
    await model.generate(PROMPT)
    assert naps.taken == [0.0] * 9
    assert drawn == [1, 2, 4, 8, 16, 30, 30, 30, 30]


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (3600.0, 60.0), (0.1, 1.0)])
async def test_retry_after_is_honoured_within_bounds(asked: float, waited: float) -> None:
    naps = Naps()
    model = RetryModel(
        ScriptedModel([busy(asked), "x"]), base=1.0, patience=60.0, sleep=naps, jitter=lambda longest: longest
    )
    await model.generate(PROMPT)
    assert naps.taken == [waited]


async def test_gives_up_with_the_last_error_after_the_declared_number_of_calls() -> None:
    inner = ScriptedModel([busy()] * 10)
    with pytest.raises(ModelUnavailableError):
        await RetryModel(inner, attempts=4, sleep=Naps()).generate(PROMPT)
    assert len(inner.calls) == 4


async def test_other_errors_pass_at_once() -> None:
    inner = ScriptedModel([AuthenticationError("no"), "x"])
    naps = Naps()
    with pytest.raises(AuthenticationError):
        await RetryModel(inner, sleep=naps).generate(PROMPT)
    assert (len(inner.calls), naps.taken) == (1, [])


async def test_each_retry_is_an_event() -> None:
    seen: list[Event] = []
    with subscribe(seen.append):
        await RetryModel(ScriptedModel([busy(2.0), "x"]), sleep=Naps()).generate(PROMPT)
    assert [event.model for event in seen if isinstance(event, ReplyRetried)] == ["scripted"]


async def test_attributes_and_counting_are_the_inner_models() -> None:
    inner = ScriptedModel([], name="s", window=99, billions=0.5)
    model = RetryModel(inner)
    assert (model.name, model.window, model.billions) == ("s", 99, 0.5)
    assert await model.count("some words") == await inner.count("some words")
    with pytest.raises(ModelError):
        await model.generate(PROMPT)
