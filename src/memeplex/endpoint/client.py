"""JSON out, JSON back: a thin client over aiohttp.

It costs a tenth and less of the processor time of a vendor's SDK, which is what limits a large team on a fast server.
"""

import asyncio
from collections.abc import Mapping
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from pydantic import SecretStr

from memeplex.endpoint.address import split_address
from memeplex.endpoint.answer import Answer, failure, masked
from memeplex.endpoint.gate import check_allowed
from memeplex.errors import AuthenticationError, ModelError, ModelUnavailableError, UserError

__all__ = ["Endpoint", "close_connections"]

LONGEST_ANSWER = 32 * 2**20
"""Bytes of an answer, unpacked. No reply and no batch of vectors comes near it; a stream without an end does."""

_PIECE = 65536

_open: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[aiohttp.ClientSession]] = WeakKeyDictionary()


async def close_connections() -> None:
    """Close what has been opened in the running event loop; models and embedders can be used again afterwards."""
    for session in _open.pop(asyncio.get_running_loop(), ()):
        await session.close()


class Endpoint:
    """An OpenAI-compatible endpoint. Connects at the first request, once per event loop.

    Args:
        name: of the model or embedder behind it; used in errors.
        address: up to and with ``/v1``; its query, if any, goes with every request.
        api_key: sent as a bearer token; ``None`` sends none.
        key_name: the environment variable to name when a key is refused.
        timeout: seconds for a whole request.
        longest: bytes of an answer, unpacked, at most.

    Raises:
        UserError: the address is not an HTTP address, or holds a password.
        AuthenticationError: the key holds characters that cannot be sent.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        api_key: SecretStr | None = None,
        key_name: str | None = None,
        timeout: float = 120.0,
        longest: int = LONGEST_ANSWER,
    ) -> None:
        parts = split_address(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise UserError(
                f"the address of {name.partition(':')[0]} is not of the form http(s)://host/v1",
                remedy="give a key as api_key, not in the address",
            )
        self.name = name
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        self._query = f"?{parts.query}" if parts.query else ""
        self._key = api_key.get_secret_value().strip() if api_key else ""
        if not (self._key.isascii() and self._key.isprintable()):
            raise AuthenticationError(
                f"the key for {name} holds characters that cannot be sent",
                remedy=f"set the environment variable {key_name} anew"
                if key_name
                else "give the key as it was given out",
            )
        self._key_name = key_name
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._longest = longest
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()

    @property
    def where(self) -> str:
        """Who and where it is, for errors."""
        return f"{self.name} at {self.address}"

    def session(self) -> aiohttp.ClientSession:
        """The running loop's connections."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            # No limit of its own: how many calls run side by side is the caller's decision.
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=self._timeout,
                headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            )
            self._sessions[loop] = session
            _open.setdefault(loop, WeakSet()).add(session)
        return session

    async def post(self, path: str, body: Mapping[str, object]) -> Answer:
        """Send ``body`` as JSON to ``path`` below the address; whatever the status, it is an answer.

        Raises:
            RequestForbiddenError: requests are turned off.
            ModelUnavailableError: there is no answer, or not in time.
            ModelError: the answer is too long.
        """
        check_allowed(self.name)
        url = f"{self.address}{path}{self._query}"
        try:
            # Redirects are not followed: they would turn the POST into a GET, or carry the key elsewhere.
            async with self.session().post(url, json=body, allow_redirects=False) as response:
                raw = await self._read(response)
                return Answer(response.status, response.headers, raw.decode("utf-8", "replace"))
        except TimeoutError as error:
            raise ModelUnavailableError(
                f"{self.where} did not answer within {self._timeout.total:g} s", remedy="raise timeout"
            ) from error
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
            raise ModelUnavailableError(
                f"{self.where} sent an answer that cannot be read ({type(error).__name__})",
                remedy="is there an HTTP server of the OpenAI kind at that address, and a stable connection?",
            ) from error
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            # UnicodeError: a host name that cannot be written in DNS.
            cause = type(error).__name__ if not isinstance(error, OSError) else (error.strerror or "no route")
            raise ModelUnavailableError(
                f"{self.where} cannot be reached ({' '.join(cause.split())})",
                remedy="is the server running, and the address right?",
            ) from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        raw = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            raw += piece
            if len(raw) > self._longest:
                raise ModelError(
                    f"{self.where} sent more than {self._longest:,} bytes", remedy="is there a model at that address?"
                )
        return bytes(raw)

    def masked(self, text: str) -> str:
        """A text of the endpoint's without the key."""
        return masked(text, self._key)

    def failure(self, answer: Answer) -> ModelError:
        """The typed error for an answer that does not hold what was asked for; never holds the key."""
        return failure(answer, self.where, secret=self._key, key_name=self._key_name)

    async def aclose(self) -> None:
        """Close the running loop's connections. A later request opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()
