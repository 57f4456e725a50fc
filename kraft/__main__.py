"""`python -m barnabas.kraft CONFIG` runs a controller."""

import sys

from barnabas.kraft.process import main

if __name__ == "__main__":
    sys.exit(main())
