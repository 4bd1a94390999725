"""The protocol of an embedder."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from pydantic import Field

from memeplex.endpoint.address import EndpointOptions
from memeplex.errors import UserError

if TYPE_CHECKING:
    # Only for types: the protocol and the registry load without numpy.
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Embedder", "EmbedderOptions", "Kind", "Vectors", "refuse_options", "relatedness"]

Kind: TypeAlias = Literal["query", "passage"]
"""What a text is: a question, or something that may answer one. Models are trained to tell them apart."""

Vectors: TypeAlias = "NDArray[np.float32]"
"""One row for each text, float32, each of length 1, so that a product of two rows is their cosine."""


class Embedder(Protocol):
    """Texts in, vectors out.

    ``id`` names all that makes vectors incomparable: only those of one id may be mixed. ``dimension`` is the length of
    a vector; 0 as long as an endpoint has not told. ``longest`` is how many characters of a text are read; the rest
    does not change its vector (``None``: all of them, or an error). ``unrelated`` is the cosine that a query and a
    passage with nothing in common have on average: some models squeeze all cosines into a narrow band far from 0, so a
    threshold holds only once ``relatedness`` has stretched it.
    """

    id: str
    dimension: int
    longest: int | None
    unrelated: float

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """The vectors of ``texts``, in their order: shape ``(len(texts), dimension)``.

        Any Unicode will do, the empty text too. Texts that occur twice are computed once.

        Raises:
            UserError: ``texts`` is not a list of texts, or there is no such kind.
            ModelError: a subclass that says what happened.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections and threads; the embedder can be used again afterwards."""
        ...


def relatedness(cosine: float, unrelated: float) -> float:
    """How far two texts are related, from 0 (nothing in common) to 1 (the same), whatever the model.

    ``unrelated`` is the embedder's. What lies below it is 0.
    """
    return min(1.0, max(0.0, (cosine - unrelated) / (1.0 - unrelated)))


class EmbedderOptions(EndpointOptions):
    """What one embedder's name stands for, from a configuration file or the caller. Everything is optional.

    ``dimension`` is what the vectors have to have: an answer with another is an error. ``query_prefix`` and
    ``passage_prefix`` go before the texts, for models that were trained with them (E5: ``"query: "`` and
    ``"passage: "``). ``longest`` and ``unrelated`` are those of ``Embedder``. ``body`` is sent along with every
    request, such as ``{"dimensions": 256}``. All but ``dimension`` are for endpoints.
    """

    dimension: int | None = Field(default=None, gt=0, le=65536)
    query_prefix: str = ""
    passage_prefix: str = ""
    longest: int | None = Field(default=None, gt=0)
    unrelated: float = Field(default=0.0, ge=-1, lt=1)
    body: dict[str, Any] = Field(default_factory=dict)


def refuse_options(name: str, options: EmbedderOptions) -> None:
    """For an embedder that is its own: all but ``dimension`` would have no effect.

    Raises:
        UserError: another option is set.
    """
    if given := sorted(options.model_dump(exclude_defaults=True).keys() - {"dimension"}):
        raise UserError(f"{name} does not take {', '.join(given)}", remedy="these options are for endpoints")
