"""The command line: the only floor that reads the environment and starts the event loop.

Exit codes: 0 done, with or without consensus; 1 internal error; 2 wrong use, or a team file that is not right;
3 the model; 4 the store; 5 a task too long; 6 the team turned in circles; 130 interrupted.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, say in one line what went wrong if anything did, and give its exit code."""
    try:
        from memeplex.cli.app import execute
    except KeyboardInterrupt:
        # Nothing has begun yet, and there is nothing yet to say it with.
        return 130

    return execute(list(sys.argv[1:] if arguments is None else arguments))
