"""``python -m memeplex`` is ``memeplex``."""

import sys

from memeplex.cli import main

if __name__ == "__main__":
    sys.exit(main())
