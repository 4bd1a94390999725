"""Where an endpoint is, from the name of what runs there and its options."""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from memeplex.errors import AuthenticationError, UserError

__all__ = ["EndpointOptions", "Place", "at_address", "at_ollama", "at_openai", "split_address"]

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434/v1"


class EndpointOptions(BaseModel):
    """How to reach an endpoint, from a configuration file or the caller. Everything is optional.

    ``key_name`` is only named in errors: the key itself is handed in, never looked up here. ``timeout`` is in
    seconds, for a whole request.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str | None = None
    api_key: SecretStr | None = None
    key_name: str | None = None
    timeout: float = Field(default=120.0, gt=0)


@dataclass(frozen=True, slots=True)
class Place:
    """A model's name on the wire, and the endpoint's address up to and with ``/v1``."""

    model: str
    address: str


def split_address(address: str) -> SplitResult:
    """The parts of an address; empty ones if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        # Brackets of which no IPv6 address comes: as good as no address.
        return SplitResult("", "", "", "", "")


def at_openai(name: str, options: EndpointOptions) -> Place:
    """``openai:NAME`` at OpenAI, or at ``base_url``, where no key is demanded.

    Raises:
        AuthenticationError: OpenAI itself is meant, and there is no key.
    """
    key = options.api_key.get_secret_value().strip() if options.api_key else ""
    if not options.base_url and not key:
        raise AuthenticationError(
            f"{name} at {OPENAI_URL} needs a key",
            remedy=f"set the environment variable {options.key_name or 'OPENAI_API_KEY'}",
        )
    return Place(name.partition(":")[2], options.base_url or OPENAI_URL)


def at_ollama(name: str, options: EndpointOptions) -> Place:
    """``ollama:NAME`` at the Ollama of this machine, or at ``base_url``. No key is needed."""
    return Place(name.partition(":")[2], options.base_url or OLLAMA_URL)


def at_address(name: str, options: EndpointOptions) -> Place:
    """``http(s)://host/v1#NAME``: any OpenAI-compatible endpoint.

    Raises:
        UserError: the name is not of that form.
    """
    address, _, model = name.partition("#")
    if not model or not split_address(address).hostname:
        raise UserError(
            "a model at an endpoint is named by its address and its name",
            remedy="write http(s)://host/v1#NAME, such as http://127.0.0.1:8000/v1#qwen3",
        )
    return Place(model, options.base_url or address)
