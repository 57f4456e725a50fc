"""`python -m barnabas.broker CONFIG` runs a broker."""

import sys

from barnabas.broker.process import main

if __name__ == "__main__":
    sys.exit(main())
