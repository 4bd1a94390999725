"""Settings: what the environment and ``config.toml`` say, in that order.

The file lies in the user's configuration folder::

    model = "openai:gpt-4.1-mini"
    embedder = "ollama:nomic-embed-text"
    store = "/data/memeplex.db"

    [models."http://127.0.0.1:8000/v1#qwen3"]
    key_env = "QWEN_KEY"
    window = 32768
    temperature = 0.5
    body = {top_p = 0.9}

    [embedders."ollama:nomic-embed-text"]
    query_prefix = "search_query: "
    passage_prefix = "search_document: "

A key is never written there: ``key_env`` names the environment variable that holds it.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from platformdirs import user_config_path, user_data_path
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from memeplex.embeddings import Embedder, EmbedderOptions, chosen, create_embedder
from memeplex.errors import AuthenticationError, MemeplexError, UserError
from memeplex.models import Model, ModelOptions, create_model
from memeplex.storage import shown_url

__all__ = [
    "Config",
    "EmbedderTable",
    "Embedders",
    "ModelTable",
    "Models",
    "Settings",
    "config_file",
    "default_store",
    "key_remedy",
    "load_settings",
    "store_option",
]

KEYS = {"openai": "OPENAI_API_KEY"}
"""The variable that holds a provider's key, where the file names no other."""
ADDRESSES = {"openai": "OPENAI_BASE_URL"}
"""The variable that holds a provider's address, where the file gives none."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Table(_Part):
    """What the file says about one name, whatever it is the name of."""

    base_url: str | None = None
    key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
    timeout: float = Field(default=120.0, gt=0, le=10**7)
    body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("body")
    @classmethod
    def _json(cls, body: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError("holds what JSON does not, such as a date") from error
        return body


class ModelTable(_Table):
    """``[models."NAME"]``: what the file says about one model."""

    window: int | None = Field(default=None, ge=256)
    billions: float | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0, le=2)


class EmbedderTable(_Table):
    """``[embedders."NAME"]``: what the file says about one embedder."""

    dimension: int | None = Field(default=None, gt=0, le=65536)
    query_prefix: str = ""
    passage_prefix: str = ""
    longest: int | None = Field(default=None, gt=0)
    unrelated: float = Field(default=0.0, ge=-1, lt=1)


class Config(_Part):
    """The file."""

    model: str | None = None
    embedder: str | None = None
    store: str | None = None
    models: dict[str, ModelTable] = Field(default_factory=dict)
    embedders: dict[str, EmbedderTable] = Field(default_factory=dict)


class Settings(_Part):
    """The file with the environment over it."""

    config: Config
    environ: Mapping[str, str] = Field(repr=False)

    @property
    def model(self) -> str | None:
        """The model for teams that name none."""
        return self.environ.get("MEMEPLEX_MODEL") or self.config.model

    @property
    def embedder(self) -> str | None:
        """The embedder where none is named."""
        return self.environ.get("MEMEPLEX_EMBEDDER") or self.config.embedder

    def store(self, given: str | None = None) -> str:
        """The URL or path of the store: as given, or from the environment, the file, the default."""
        if given is not None:
            return given
        return self.environ.get("MEMEPLEX_STORE") or self.config.store or str(default_store())

    def model_options(self, name: str) -> ModelOptions:
        """What a model's name stands for."""
        return ModelOptions(**self._options(name, self.config.models.get(name, ModelTable())))

    def embedder_options(self, name: str) -> EmbedderOptions:
        """What an embedder's name stands for."""
        return EmbedderOptions(**self._options(name, self.config.embedders.get(name, EmbedderTable())))

    def _options(self, name: str, table: _Table) -> dict[str, Any]:
        """The table of a name, with the key itself; a provider's own variables where it says nothing."""
        provider = name.partition(":")[0]
        key_name = table.key_env or KEYS.get(provider)
        key = self.environ.get(key_name) if key_name else None
        if table.key_env and not key:
            raise UserError(
                f"the key for {name} should be in {_variable(table.key_env)}, which is not set",
                remedy=f"set the environment variable, or mend key_env in {config_file()}",
            )
        address = table.base_url or self.environ.get(ADDRESSES.get(provider, "")) or None
        return {
            **table.model_dump(exclude={"key_env"}),
            "base_url": address,
            "api_key": SecretStr(key) if key else None,
            "key_name": key_name,
        }


class _Closable(Protocol):
    async def aclose(self) -> None: ...


_T = TypeVar("_T", bound=_Closable | None)


class _Made(Generic[_T]):
    """What one command uses by its name: each made once, all closed together."""

    def __init__(self, create: Callable[[str], _T]) -> None:
        self._create = create
        self._made: dict[str, _T] = {}

    def get(self, name: str) -> _T:
        """The one of that name."""
        if name not in self._made:
            self._made[name] = self._create(name)
        return self._made[name]

    async def aclose(self) -> None:
        """Close all of them; one that fails to close does not keep the others open."""
        faults: list[Exception] = []
        while self._made:
            _, made = self._made.popitem()
            try:
                if made is not None:
                    await made.aclose()
            except (MemeplexError, OSError) as error:
                faults.append(error)
        if faults:
            raise faults[0]


class Models(_Made[Model]):
    """The models of one command."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(lambda name: create_model(name, settings.model_options(name)))


class Embedders(_Made[Embedder | None]):
    """The embedders of one command; ``None`` where words alone are to be searched."""

    def __init__(self, settings: Settings) -> None:
        def create(name: str) -> Embedder | None:
            wanted = chosen(name)
            return None if wanted is None else create_embedder(wanted, settings.embedder_options(wanted))

        super().__init__(create)


def _variable(name: str) -> str:
    """The name of a variable; not what may be a key that was pasted in its place."""
    return name if name.isupper() else "the variable that key_env names"


def store_option(url: str | None) -> str:
    """What a command that is told to the user says of the store: nothing of the default, and no password."""
    return "" if url is None else f" --store {shlex.quote(shown_url(url))}"


def key_remedy(error: MemeplexError) -> str:
    """What to do about an error, where a key is an argument in Python and a line in the file here."""
    if not isinstance(error, AuthenticationError):
        return error.remedy
    said = 'name the variable that holds the key as key_env under [models."NAME"] or [embedders."NAME"]'
    return error.remedy.replace("check the api_key", f"{said} in {config_file()}")


def config_file() -> Path:
    """Where the file is looked for."""
    return user_config_path("memeplex") / "config.toml"


def default_store() -> Path:
    """Where runs are kept when nothing else is said."""
    return user_data_path("memeplex") / "memeplex.db"


def load_settings() -> Settings:
    """The settings of this process.

    Raises:
        UserError: the file cannot be read, or holds something else than settings.
    """
    return Settings(config=_read(config_file()), environ=dict(os.environ))


def _read(path: Path) -> Config:
    try:
        return Config.model_validate(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return Config()
    except ValidationError as error:
        known = (
            f'known: model, embedder, store; under [models."NAME"] {", ".join(ModelTable.model_fields)};'
            f' under [embedders."NAME"] {", ".join(EmbedderTable.model_fields)}'
        )
        raise UserError(f"{path}: {_fault(error)}", remedy=known) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else f"not valid TOML: {error}"
        raise UserError(f"{path}: {what}", remedy="mend the file, or move it away") from error


def _fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    return f"unknown key {where!r}" if fault["type"] == "extra_forbidden" else f"{where}: {fault['msg']}"
