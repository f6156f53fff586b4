"""`python -m fencepost`: the same as the console script."""

import sys

from fencepost.apps.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
