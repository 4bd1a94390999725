"""What a PostgreSQL URL says, and how it is shown: without what is secret in it."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from memeplex.errors import UserError

__all__ = ["Address"]

_SECRET = ("password", "sslpassword", "oauth_client_secret")
_REMEDY = (
    "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with what is special in the password percent-encoded:"
    " %40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %25 for %"
)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a database is. ``shown`` is its URL without secrets; opened with those from elsewhere, it is the same."""

    shown: str
    parameters: dict[str, Any] = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        return tuple(str(self.parameters[name]) for name in _SECRET if self.parameters.get(name))

    @classmethod
    def of(cls, url: str) -> "Address":
        """The address that a URL gives.

        Raises:
            UserError: it cannot be read; the message does not repeat it, since nobody knows what is the password in it.
        """
        try:
            parameters = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise UserError("the URL of the PostgreSQL store cannot be read", remedy=_REMEDY) from None
        host, port, database = (str(parameters.get(name) or "") for name in ("host", "port", "dbname"))
        # A password with an @ or a slash in it makes a host, a port or a database of its rest.
        if "@" in host[1:] or "@" in database or not (port or "0").replace(",", "").isdecimal():
            raise UserError("the URL of the PostgreSQL store cannot be read", remedy=_REMEDY)
        return cls(shown=_shown(parameters), parameters=parameters)


def _shown(parameters: dict[str, Any]) -> str:
    rest = {name: str(value) for name, value in parameters.items() if name not in _SECRET and value is not None}
    user, database = rest.pop("user", ""), rest.pop("dbname", "")
    where = ""
    if (host := rest.get("host", "")) and not set(host) & set("/,:@"):
        where = rest.pop("host") + (f":{rest.pop('port')}" if "port" in rest else "")
    who = f"{quote(user, safe='')}@" if user else ""
    query = f"?{urlencode(rest, safe='/', quote_via=quote)}" if rest else ""
    return f"postgresql://{who}{where}/{quote(database, safe='')}{query}"
