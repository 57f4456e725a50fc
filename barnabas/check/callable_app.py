"""An instance whose application is a function: `python callable_app.py FILE NAME` calls it.

It imports nothing of this package, whose folder is taken off the path: FILE is loaded as the script of this process
would be.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    path, name = Path(sys.argv[1]), sys.argv[2]
    sys.path[0] = str(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    getattr(module, name)()


if __name__ == "__main__":
    main()
