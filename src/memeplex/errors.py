"""Every exception, on one page.

MemeplexError                    what to tell the user, and what to do about it
├── UserError                    something asked for cannot be done as asked            exit 2
│   ├── TeamFileError            a team file is missing, malformed or has unknown keys
│   ├── UnknownNameError         no such model, memory, policy, run, agent …
│   ├── ImportLineError          a line of an import is truncated, or no record
│   ├── FeedbackScoreError       a score is no number, or out of range on no stated scale
│   ├── PromptError              a prompt cannot be changed so
│   ├── StateError               an agent cannot go from its state to that one, or not do that in it
│   └── MissingExtraError        an optional dependency is not installed
├── ModelError                   the language model or its endpoint misbehaves          exit 3
│   ├── ModelUnavailableError    unreachable, overloaded or rate-limited (worth another try)
│   ├── AuthenticationError      the endpoint refuses the key
│   ├── ModelNotFoundError       the endpoint, or the cache folder, has no such model
│   ├── WeightsError             the weights could not be fetched, or are not the official ones
│   ├── ContextWindowError       the endpoint says the prompt is longer than its window
│   ├── EmptyReplyError          nothing came back, even after an adapted retry
│   ├── EmbeddingError           an embedder answered with something other than one vector for each text
│   ├── RefusalError             the model, or a filter in front of it, refused
│   ├── StructuredOutputError    no reply satisfied the schema
│   └── RequestForbiddenError    a test reached for a real model
├── StorageError                 the store cannot be read or written                    exit 4
│   ├── StoreVersionError        written by a newer version of memeplex
│   ├── DamagedError             what is stored is not what was written
│   ├── RunLockedError           another process is working on this run
│   ├── ConflictError            somebody else has changed the record meanwhile
│   └── EmbedderMismatchError    the store's vectors are of another embedder
└── BudgetError                  a limit set by the caller was reached                  exit 5
    └── ContextBudgetError       the task alone is longer than the context budget
"""

from collections.abc import Sequence

from memeplex.usage import Usage

__all__ = [
    "AuthenticationError",
    "BudgetError",
    "ConflictError",
    "ContextBudgetError",
    "ContextWindowError",
    "DamagedError",
    "EmbedderMismatchError",
    "EmbeddingError",
    "EmptyReplyError",
    "FeedbackScoreError",
    "ImportLineError",
    "MemeplexError",
    "MissingExtraError",
    "ModelError",
    "ModelNotFoundError",
    "ModelUnavailableError",
    "PromptError",
    "RefusalError",
    "RequestForbiddenError",
    "RunLockedError",
    "StateError",
    "StorageError",
    "StoreVersionError",
    "StructuredOutputError",
    "TeamFileError",
    "UnknownNameError",
    "UserError",
    "WeightsError",
]


class MemeplexError(Exception):
    """Base of all errors. ``str(error)`` is one line; ``remedy`` says what to do; neither holds a secret.

    ``run`` is the run that it has ended, where there is one to go on with.
    """

    exit_code = 1
    run = ""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        if remedy:
            # So that a traceback tells it too.
            self.add_note(f"remedy: {remedy}")


class UserError(MemeplexError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class TeamFileError(UserError):
    """A team file is missing, malformed or has unknown keys. ``line`` is 1-based, 0 when unknown."""

    def __init__(self, message: str, *, path: str = "", line: int = 0, remedy: str = "") -> None:
        where = f"{path}:{line}: " if line else f"{path}: " if path else ""
        super().__init__(where + message, remedy=remedy)
        self.path = path
        self.line = line


class UnknownNameError(UserError):
    """No such model, memory, policy, run or agent."""

    def __init__(self, kind: str, name: str, known: Sequence[str] = (), *, remedy: str = "") -> None:
        remedy = remedy or (f"known: {', '.join(known)}" if known else "")
        super().__init__(f"no {kind} named {name!r}", remedy=remedy)
        self.kind = kind
        self.name = name
        self.known = tuple(known)


class MissingExtraError(UserError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra {extra!r}", remedy=f"pip install 'memeplex[{extra}]'")
        self.extra = extra


class ImportLineError(UserError):
    """A line of an import is truncated, no record, or of a newer version. ``line`` is 1-based."""

    def __init__(self, message: str, *, line: int, remedy: str = "") -> None:
        super().__init__(
            f"line {line}: {message}", remedy=remedy or "nothing was imported; mend the file and try again"
        )
        self.line = line


class FeedbackScoreError(UserError):
    """A score is no number, or not between ``lowest`` and ``highest``. ``value`` is what was given."""

    def __init__(self, value: object, lowest: float, highest: float) -> None:
        super().__init__(
            f"feedback: {value!r:.60} is no score from {lowest:g} to {highest:g}",
            remedy="give a number in that range, or say what the scale is, as in 85/100",
        )
        self.value = value
        self.lowest = lowest
        self.highest = highest


class PromptError(UserError):
    """A prompt cannot be changed so: what may not change would, or the new text cannot stand where it is to stand."""


class StateError(UserError):
    """An agent cannot go from its state to another, or cannot do something in it. ``possible`` are the next states."""

    def __init__(self, message: str, *, state: str, possible: Sequence[str] = (), remedy: str = "") -> None:
        told = f"possible from {state}: {', '.join(possible) or 'nothing'}"
        super().__init__(message, remedy=remedy or told)
        self.state = state
        self.possible = tuple(possible)


class ModelError(MemeplexError):
    """The language model or its endpoint misbehaves. ``usage`` is what the replies in vain have cost."""

    exit_code = 3
    usage = Usage()


class ModelUnavailableError(ModelError):
    """Unreachable, overloaded or rate-limited. ``retry_after`` is in seconds, as the endpoint asked."""

    def __init__(self, message: str, *, remedy: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after


class AuthenticationError(ModelError):
    """The endpoint refuses the key."""


class ModelNotFoundError(ModelError):
    """The endpoint, or the cache folder, has no such model."""


class WeightsError(ModelError):
    """The weights could not be fetched from any source, or are not the official ones."""


class ContextWindowError(ModelError):
    """The endpoint says that the prompt is longer than its window."""


class EmptyReplyError(ModelError):
    """Nothing came back, even after an adapted retry."""


class EmbeddingError(ModelError):
    """An embedder answered with vectors of the wrong number, dimension or order, or with something that is none."""


class RefusalError(ModelError):
    """The model, or a filter in front of it, refused to answer."""


class StructuredOutputError(ModelError):
    """No reply satisfied the schema. ``replies`` are the raw texts, oldest first."""

    def __init__(self, message: str, *, replies: Sequence[str] = (), remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.replies = tuple(replies)


class RequestForbiddenError(ModelError):
    """A test reached for a real model without asking for one."""


class StorageError(MemeplexError):
    """The store cannot be read or written."""

    exit_code = 4


class StoreVersionError(StorageError):
    """The store was written by a newer version of memeplex."""


class DamagedError(StorageError):
    """What is stored is not what was written. ``what`` says so without naming the store."""

    def __init__(self, message: str, *, what: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.what = what


class RunLockedError(StorageError):
    """Another process is working on this run."""


class ConflictError(StorageError):
    """A record was changed by somebody else meanwhile. ``yours`` and ``theirs`` are both versions of it.

    ``theirs`` is ``None`` when it was forgotten.
    """

    def __init__(self, message: str, *, yours: object, theirs: object) -> None:
        super().__init__(message, remedy="look at the record as it is now, and make the change again")
        self.yours = yours
        self.theirs = theirs


class EmbedderMismatchError(StorageError):
    """The store's vectors are of another embedder, or of another length."""


class BudgetError(MemeplexError):
    """A limit set by the caller was reached."""

    exit_code = 5


class ContextBudgetError(BudgetError):
    """The task alone is longer than the context budget (tokens)."""

    def __init__(self, message: str, *, needed: int, budget: int, remedy: str = "") -> None:
        remedy = remedy or "raise context_tokens in the team file, or shorten the task"
        super().__init__(message, remedy=remedy)
        self.needed = needed
        self.budget = budget
