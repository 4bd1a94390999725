"""What a store's URL says about its file."""

from pathlib import Path

from memeplex.errors import UserError

__all__ = ["file_of"]

_SCHEME = "sqlite://"
_REMEDY = "write sqlite:///PATH, or just the path"


def file_of(url: str) -> Path | None:
    """The file of ``sqlite:///PATH`` or of a plain path; ``None`` for a store in memory or of another kind.

    Raises:
        UserError: there can be no such file.
    """
    if url == _SCHEME or ("://" in url and not url.startswith(_SCHEME)):
        return None
    location = url.removeprefix(_SCHEME) if url.startswith(_SCHEME) else f"/{url}"
    if not location.startswith("/") or location == "/":
        raise UserError(f"store {url!r} has no path", remedy=_REMEDY)
    path = location.removeprefix("/")
    if path == ":memory:":
        # SQLite's own word for it. Every connection would get a store of its own, and keep nothing.
        raise UserError(
            "a store in :memory: would keep nothing", remedy=f"{_REMEDY}; in Python, open_store('sqlite://') is one"
        )
    if "\0" in path:
        raise UserError(f"store {url!r}: a path holds no NUL character", remedy=_REMEDY)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"store {url!r}: the home folder is not known", remedy="write the whole path") from error
