"""Notes: what code alone does to them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memeplex.memory.notes import condense, key_terms, merge, novelty, supported, words
from memeplex.models.tokens import estimate

vocabulary = "pier deck of the steel 12 m 400,000 USD S3 Kinesis is 橋を架ける 다리를 мост".split()
notes = st.lists(
    st.one_of(
        st.lists(st.sampled_from(vocabulary), min_size=1, max_size=8).map(" ".join),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40),
    ),
    max_size=8,
)


def all_words(texts: list[str]) -> set[str]:
    return set().union(*map(words, texts))


@given(notes, notes)
def test_merging_never_loses_a_fact_word(held: list[str], new: list[str]) -> None:
    assert all_words(merge(held, new)) == all_words([*held, *new])


@given(notes, notes)
def test_merging_the_same_again_changes_nothing(held: list[str], new: list[str]) -> None:
    once = merge(held, new)
    assert merge(once, new) == once


@given(notes)
def test_merged_notes_hold_nothing_twice(new: list[str]) -> None:
    merged = merge([], new)
    for i, one in enumerate(merged):
        assert words(one), "and nothing empty"
        assert not any(words(one) <= words(other) for j, other in enumerate(merged) if j != i)


@pytest.mark.parametrize(
    ("held", "new", "merged"),
    [
        (["pier: steel"], ["pier: steel, 12 m"], ["pier: steel, 12 m"]),
        (["pier: steel, 12 m"], ["pier: steel"], ["pier: steel, 12 m"]),
        (["a1", "b2"], ["b2 and a1"], ["b2 and a1"]),
        (["pier: 12 m"], ["pier: 13 m"], ["pier: 12 m", "pier: 13 m"]),
        ([], ["- steel\n pier ", "• quay"], ["steel pier", "quay"]),
        (["桥墩是钢"], ["桥墩是钢"], ["桥墩是钢"]),
        (["桥墩是钢"], ["桥墩是石"], ["桥墩是钢", "桥墩是石"]),
    ],
)
def test_what_merging_makes_of_notes(held: list[str], new: list[str], merged: list[str]) -> None:
    assert merge(held, new) == merged


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


@given(notes, st.integers(0, 120))
def test_condensed_notes_fit_and_say_nothing_else(held: list[str], budget: int) -> None:
    short = condense(held, budget)
    assert not short or estimate("\n".join(short)) <= budget
    assert len(short) <= len(held)
    assert short == held or estimate("\n".join(held)) > budget, "what fits is left as it is"


@given(
    st.lists(st.sampled_from([*vocabulary, "12.5", "1,000,000", "a1b2"]), min_size=1, max_size=30), st.integers(0, 60)
)
def test_numbers_in_condensed_notes_are_whole(text: list[str], budget: int) -> None:
    held = [" ".join(text[:8]), " ".join(text)]
    for short in condense(held, budget):
        assert set(numbers(short)) <= set(numbers(" ".join(held)))


def test_a_number_in_a_text_without_spaces_is_not_cut_either() -> None:
    for budget in range(2, 40):
        for note in condense(["桥墩的长度是123456789米以及987654321吨钢"], budget):
            assert set(numbers(note)) <= {"123456789", "987654321"}


def test_the_newest_note_goes_last_and_the_most_redundant_first() -> None:
    held = ["quay granite 40", "pier steel 12", "pier steel 12 welded", "deck oak 7"]
    three = condense(held, estimate("\n".join(held)) - 1)
    assert three == ["quay granite 40", "pier steel 12 welded", "deck oak 7"]
    assert condense(held, estimate(held[-1]) + 1) == ["deck oak 7"]


def test_fillers_go_before_any_note_goes() -> None:
    held = ["the pier of the bridge is of steel", "the deck is of oak"]
    assert condense(held, 10) == ["pier bridge steel", "deck oak"]


@pytest.mark.parametrize(
    ("note", "source", "wanted"),
    [
        ("pier: steel, 12 m", "We take steel for the pier, 12 m long.", True),
        ("You build bridges", "We take steel for the pier.", False),
        ("Zeppelins over Uppsala", "We take steel for the pier.", False),
        ("the of and", "the of and", False),
        ("", "anything", False),
        ("桥墩是钢", "我们说桥墩是钢的。", True),
        ("天气很好", "我们说桥墩是钢的。", False),
        ("الجسر من فولاذ", "قلنا إن الجسر من فولاذ", True),
    ],
)
def test_a_note_needs_support(note: str, source: str, wanted: bool) -> None:
    assert supported(note, source) is wanted


def test_novelty_is_the_share_of_new_key_terms() -> None:
    assert novelty("Steel pier, 12 m", ["steel pier 12 m"]) == 0
    assert novelty("Granite quay, 40 m", ["steel pier 12 m"]) == 1
    assert 0 < novelty("Steel Quay", ["steel pier"]) < 1
    assert novelty("so it is", []) == 0
    assert novelty("橋は鋼である", ["橋は鋼である"]) == 0 < novelty("岸壁は石である", ["橋は鋼である"])


@given(st.text(max_size=80))
def test_key_terms_are_words_and_known_to_their_own_text(text: str) -> None:
    assert key_terms(text) <= words(text)
    assert novelty(text, [text]) == 0
