"""Errors of the server and of the way to it in our words, each with its remedy and none with the password."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from memeplex.errors import StorageError
from memeplex.storage.postgres.address import Address

__all__ = ["explained"]

# By the server's code where it gave one, else by what the driver says.
_REMEDIES = (
    ("28", "check user and password, in the URL, in PGPASSWORD or in ~/.pgpass"),
    ("authentication failed", "check user and password, in the URL, in PGPASSWORD or in ~/.pgpass"),
    ("no password supplied", "give the password in the URL, in PGPASSWORD or in ~/.pgpass"),
    ("3D000", "create the database first, with createdb"),
    ("does not exist", "create the database or the role first, with createdb or createuser"),
    ("too many", "let go of other connections, or raise max_connections of the server"),
    ("53300", "let go of other connections, or raise max_connections of the server"),
    ("53100", "free some space on the server's disk; nothing committed is lost"),
    ("25006", "this server only reads; use the URL of the primary"),
    ("42501", "have the role granted what it lacks: it needs CREATE on the database, or to own the schema memeplex"),
    (
        "42704",
        "PostgreSQL 14 or newer is needed, and the extension vector in a schema that is searched, such as public",
    ),
    ("42P01", "this database is not a memeplex store, or not a whole one; choose another with --store"),
    ("42703", "this database is not a memeplex store, or not a whole one; choose another with --store"),
    ("23505", "another process has written this already; look at the run before going on"),
    ("55P03", "another process holds the store for long; try again when it is done"),
    ("57014", "the server's time for a statement was over; raise statement_timeout, or try again"),
    ("40", "another process changed the same at the same time; try again"),
    ("57P", "the server is stopping or starting; try again when it runs; nothing committed is lost"),
    ("closed the connection", "try again when the server runs; nothing committed is lost"),
    ("surrogates not allowed", "write it in valid Unicode"),
    ("NUL", "write it without NUL characters"),
)


@contextmanager
def explained(address: Address) -> Iterator[None]:
    """Turn the driver's and the server's errors into ours, each with its remedy."""
    try:
        yield
    except (psycopg.Error, OSError, UnicodeEncodeError) as error:
        code = error.sqlstate or "" if isinstance(error, psycopg.Error) else ""
        raw = str(error)
        # The first line: the rest is the statement's context.
        text = " ".join(raw.split()) if not code else raw.partition("\n")[0]
        for secret in address.secrets:
            text = text.replace(secret, "***")
        remedy = next(
            (remedy for sign, remedy in _REMEDIES if (code.startswith(sign) if _is_code(sign) else sign in text)), ""
        )
        remedy = remedy or "check that the server runs and can be reached, or choose another store with --store"
        hidden = any(secret in raw for secret in address.secrets)
        raise StorageError(f"store {address.shown}: {text}", remedy=remedy) from (None if hidden else error)


def _is_code(sign: str) -> bool:
    return sign[0].isdigit()
