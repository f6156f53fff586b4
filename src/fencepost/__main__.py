"""`python -m fencepost`: the console script."""

import sys

from fencepost.apps.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
