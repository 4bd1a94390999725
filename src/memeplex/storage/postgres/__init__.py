"""The store for many processes and machines: a PostgreSQL database with pgvector."""

from typing import TYPE_CHECKING

from memeplex.errors import MissingExtraError

if TYPE_CHECKING:
    from memeplex.storage.postgres.store import PostgresStore

__all__ = ["create"]


def create(url: str) -> "PostgresStore":
    """The store in the database at ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``; not connected to yet.

    Raises:
        MissingExtraError: the driver is not installed.
        UserError: the URL cannot be read.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("a store in PostgreSQL", "postgres") from error
    from memeplex.storage.postgres.store import PostgresStore

    return PostgresStore(url)
