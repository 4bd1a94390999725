"""Settings: what the environment and ``config.toml`` say, in that order.

The file lies in the user's configuration folder::

    model = "openai:gpt-4.1-mini"
    store = "/data/memeplex.db"

    [models."http://127.0.0.1:8000/v1#qwen3"]
    key_env = "QWEN_KEY"
    window = 32768
    temperature = 0.5
    body = {top_p = 0.9}

A key is never written there: ``key_env`` names the environment variable that holds it.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_config_path, user_data_path
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from memeplex.errors import MemeplexError, UserError
from memeplex.models import Model, ModelOptions, create_model
from memeplex.storage import shown_url

__all__ = ["Config", "Models", "Settings", "config_file", "default_store", "load_settings", "store_option"]

KEYS = {"openai": "OPENAI_API_KEY"}
"""The variable that holds a provider's key, where the file names no other."""
ADDRESSES = {"openai": "OPENAI_BASE_URL"}
"""The variable that holds a provider's address, where the file gives none."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelTable(_Part):
    """``[models."NAME"]``: what the file says about one model."""

    base_url: str | None = None
    key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
    window: int | None = Field(default=None, ge=256)
    billions: float | None = Field(default=None, gt=0)
    timeout: float = Field(default=120.0, gt=0, le=10**7)
    temperature: float | None = Field(default=None, ge=0, le=2)
    body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("body")
    @classmethod
    def _json(cls, body: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError("holds what JSON does not, such as a date") from error
        return body


class Config(_Part):
    """The file."""

    model: str | None = None
    store: str | None = None
    models: dict[str, ModelTable] = Field(default_factory=dict)


class Settings(_Part):
    """The file with the environment over it."""

    config: Config
    environ: Mapping[str, str] = Field(repr=False)

    @property
    def model(self) -> str | None:
        """The model for teams that name none."""
        return self.environ.get("MEMEPLEX_MODEL") or self.config.model

    def store(self, given: str | None = None) -> str:
        """The URL or path of the store: as given, or from the environment, the file, the default."""
        if given is not None:
            return given
        return self.environ.get("MEMEPLEX_STORE") or self.config.store or str(default_store())

    def options(self, name: str) -> ModelOptions:
        """What a model's name stands for."""
        table = self.config.models.get(name, ModelTable())
        provider = name.partition(":")[0]
        key_name = table.key_env or KEYS.get(provider)
        key = self.environ.get(key_name) if key_name else None
        if table.key_env and not key:
            raise UserError(
                f"the key for {name} should be in {_variable(table.key_env)}, which is not set",
                remedy=f"set the environment variable, or mend key_env in {config_file()}",
            )
        address = table.base_url or self.environ.get(ADDRESSES.get(provider, "")) or None
        return ModelOptions(
            base_url=address,
            api_key=SecretStr(key) if key else None,
            key_name=key_name,
            **table.model_dump(include={"window", "billions", "timeout", "temperature", "body"}),
        )


class Models:
    """The models of one command, each made once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, Model] = {}

    def get(self, name: str) -> Model:
        """The model of that name."""
        if name not in self._made:
            self._made[name] = create_model(name, self._settings.options(name))
        return self._made[name]

    async def aclose(self) -> None:
        """Close all of them; one that fails to close does not keep the others open."""
        faults: list[Exception] = []
        while self._made:
            _, model = self._made.popitem()
            try:
                await model.aclose()
            except (MemeplexError, OSError) as error:
                faults.append(error)
        if faults:
            raise faults[0]


def _variable(name: str) -> str:
    """The name of a variable; not what may be a key that was pasted in its place."""
    return name if name.isupper() else "the variable that key_env names"


def store_option(url: str | None) -> str:
    """What a command that is told to the user says of the store: nothing of the default, and no password."""
    return "" if url is None else f" --store {shlex.quote(shown_url(url))}"


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
        known = f'known: model, store, and under [models."NAME"] {", ".join(ModelTable.model_fields)}'
        raise UserError(f"{path}: {_fault(error)}", remedy=known) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else f"not valid TOML: {error}"
        raise UserError(f"{path}: {what}", remedy="mend the file, or move it away") from error


def _fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    return f"unknown key {where!r}" if fault["type"] == "extra_forbidden" else f"{where}: {fault['msg']}"
