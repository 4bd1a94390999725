"""What of a reply is its agent's own to say."""

import pytest

from memeplex.agents.reply import own_words

NAMES = {"advocate", "sceptic"}


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("First.\n\n[advocate]\nSecond, still me.\n\n[sceptic]\nSomeone else.", "First.\n\n\nSecond, still me."),
        ("[advocate]: First.\n[advocate] Second.", "First.\n Second."),
        ("Sure:\n\n[sceptic]: No.", "Sure:"),
        ("[sceptic] I doubt it.", "I doubt it."),
        ("[advocate]", "[advocate]"),
        ("A list:\n[x] done\n[ ] open", "A list:\n[x] done\n[ ] open"),
    ],
)
def test_its_own_label_goes_and_another_ends_it(reply: str, kept: str) -> None:
    assert own_words(reply, names=NAMES, agent="advocate") == kept
