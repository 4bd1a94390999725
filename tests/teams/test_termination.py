"""When a conversation ends: conditions, and their algebra."""

from hypothesis import given
from hypothesis import strategies as st
from support import talk, turn

from memeplex.messages import Conversation, Task, TurnKind
from memeplex.teams import Flagged, MaxTokens, MaxTurns, Stalled, Termination
from memeplex.usage import Ledger, Purpose, Usage


class Says(Termination):
    def __init__(self, word: str) -> None:
        self.word = word

    def reached(self, conversation: Conversation) -> str:
        return self.word


words = st.sampled_from(["", "a", "b", "c"])


@given(words, words, words)
def test_or_and_and_are_boolean_and_associative(a: str, b: str, c: str) -> None:
    x, y, z = Says(a), Says(b), Says(c)

    def reached(condition: Termination) -> str:
        return condition.reached(talk())

    assert bool(reached(x | y)) == (bool(a) or bool(b))
    assert bool(reached(x & y)) == (bool(a) and bool(b))
    assert reached((x | y) | z) == reached(x | (y | z)) == (a or b or c)
    assert reached((x & y) & z) == reached(x & (y & z))
    assert reached((x | y) & z) == reached((x & z) | (y & z))
    assert reached(x | x) == reached(x & x) == a


def test_max_turns_counts_what_is_heard() -> None:
    votes = talk(("A", "x"), ("B", "ACCEPT", TurnKind.VOTE), ("C", "ACCEPT", TurnKind.VOTE))
    assert MaxTurns(2).reached(votes) == ""
    votes.append(turn(3, "A", "y"))
    assert MaxTurns(2).reached(votes) == "max_turns"


def test_max_tokens_adds_up_turns_of_every_kind() -> None:
    def spent(kind: TurnKind, index: int) -> object:
        usage = Ledger({Purpose.ANSWER: Usage(input=4, output=1), Purpose.SELECTION: Usage(input=5)})
        return turn(index, "A", "x", kind=kind, usage=usage)

    conversation = Conversation(Task(text="x"), [spent(TurnKind.MESSAGE, 0), spent(TurnKind.VOTE, 1)])  # type: ignore[list-item]
    assert MaxTokens(21).reached(conversation) == ""
    assert MaxTokens(20).reached(conversation) == "max_tokens"


def test_a_flag_is_a_field_not_a_word() -> None:
    said = talk(("A", "FINALIZE"))
    assert Flagged("FINALIZE").reached(said) == ""
    said.append(turn(1, "A", "so be it", flag="FINALIZE"))
    assert Flagged("FINALIZE").reached(said) == "finalize"


def test_stalled_means_repeating_oneself_word_for_word_and_without_a_break() -> None:
    def stalled(*said: str) -> str:
        return Stalled(3).reached(talk(*((text[0], text) for text in said)))

    assert stalled("A1", "B1", "A1", "B1") == ""
    assert stalled("A1", "B1", "A1", "B1", "A1") == "stalled"
    assert stalled("A1", "B1", "A1", "B2", "A1", "B1") == "", "something new breaks the series"
    assert Stalled(1).reached(talk(("A", "x"), ("B", "x"))) == "", "to agree is not to repeat oneself"
    votes = [("A", "ACCEPT", TurnKind.VOTE)] * 9
    assert Stalled(1).reached(talk(*votes)) == ""  # type: ignore[arg-type]
