"""An embedder that needs no model: texts that share words, or pieces of words, lie close together."""

import asyncio
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memeplex.embeddings.base import EmbedderOptions, Kind, refuse_options
from memeplex.embeddings.cached import CachingEmbedder, Computed, VectorCache
from memeplex.errors import UnknownNameError, UserError
from memeplex.usage import Usage

__all__ = ["HashingEmbedder", "create_hashing"]

DIMENSION = 256
LONGEST = 10_000

_WORD = re.compile(r"\w+")
_SIZES = (2, 3, 4)
_PLACES = 4


class HashingEmbedder(CachingEmbedder):
    """Hashes words and pieces of words to places of a vector: the same in any process, and for queries and passages.

    It sees letters, not meaning: "bridge" and "bridges" are alike, "bridge" and "Brücke" are not.
    """

    def __init__(self, dimension: int = DIMENSION, *, cache: VectorCache | None = None) -> None:
        super().__init__(f"hashing:{dimension}", dimension=dimension, longest=LONGEST, cache=cache)

    async def compute(self, texts: Sequence[str], kind: Kind) -> Computed:
        """The vectors of a batch, off the event loop."""
        vectors = await asyncio.to_thread(lambda: np.stack([self._vector(text) for text in texts]))
        return Computed(vectors, Usage(input=sum(len(_WORD.findall(text)) for text in texts), calls=1))

    def _vector(self, text: str) -> NDArray[np.float64]:
        vector = np.zeros(self.dimension)
        for feature, weight in _features(text).items():
            digest = hashlib.blake2b(feature.encode(), digest_size=4 * _PLACES).digest()
            # Several places each, with either sign: what falls together by chance mostly cancels out.
            for number in np.frombuffer(digest, "<u4").tolist():
                vector[number // 2 % self.dimension] += weight if number % 2 else -weight
        if not vector.any():
            # No words, or their places cancel each other out.
            vector[0] = 1.0
        return vector


def _features(text: str) -> Counter[str]:
    """Words, and their pieces, by which words of one kin are alike."""
    features: Counter[str] = Counter()
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        # Short words are mostly those that every text has.
        features[word] += 3 if len(word) > 3 else 1
        features.update(_pieces(f" {word} "))
    return features


def _pieces(word: str) -> Iterator[str]:
    for size in _SIZES:
        for start in range(len(word) - size + 1):
            yield word[start : start + size]


def create_hashing(name: str, options: EmbedderOptions) -> HashingEmbedder:
    """``hashing``, or ``hashing:N`` with N dimensions.

    Raises:
        UnknownNameError: N is no number of dimensions.
        UserError: options that it does not take.
    """
    refuse_options(name, options)
    told = name.partition(":")[2]
    if not re.fullmatch(r"([1-9][0-9]{0,4})?", told):
        raise UnknownNameError("embedder", name, remedy="write hashing, or hashing:256")
    dimension = int(told) if told else options.dimension or DIMENSION
    if options.dimension not in (None, dimension):
        raise UserError(f"{name} has {dimension} dimensions, not {options.dimension}", remedy="leave out dimension")
    return HashingEmbedder(dimension)
