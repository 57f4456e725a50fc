"""The `barnabas` command: hands over to nodes, or to one of the command groups. Mistakes are told in one
line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from runtime.visible import visible_lines

NODES = {"broker": "broker", "controller": "kraft"}
"""Commands that are a node, and the module that is its process."""

WRONG_ARGUMENT = 2


def main() -> None:
    """The entry point; ends the process."""
    words = sys.argv[1:]
    if words and words[0] in NODES and "--help" not in words:
        _become_node(NODES[words[0]], words[1:])
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Runs one command; gives its exit code: 0 done, 1 refused or failed, 2 a wrong argument, 3 no answer in time, 130
    Ctrl-C, 143 SIGTERM.
    """
    from barnabas.cli.app import command
    from barnabas.cli.session import Terminated, exit_code
    from barnabas.cluster.errors import ClusterError

    try:
        code = command().main(list(words) or ["--help"], prog_name="barnabas", standalone_mode=False)
    except ClusterError as error:
        return _tell(str(error), exit_code(error))
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143
    except BrokenPipeError:
        # Whoever read our output has gone; say nothing when Python flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        return _tell(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except Exception as error:
        # The parser's own errors have no name that typer shows: they are those that can put themselves into words.
        if not hasattr(error, "format_message"):
            raise
        return _tell(usage_in_one_line(error), WRONG_ARGUMENT)
    return code if isinstance(code, int) else 0


def usage_in_one_line(error: Any) -> str:
    """What the parser of arguments says, where it was, and what there is instead."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "barnabas"
    told = " ".join(error.format_message().split()).rstrip(".")
    names = getattr(context.command, "commands", {}) if context else {}
    if "Did you mean" in told:
        return f"{path}: {told}"
    return f"{path}: {told}; " + (f"there are {', '.join(names)}" if names else f"{path} --help tells more")


def _tell(text: str, code: int) -> int:
    print(visible_lines(text), file=sys.stderr)
    return code


def _become_node(module: str, words: Sequence[str]) -> None:
    """Turns this process into a node; what the command line has imported so far does not stay in its
    memory.
    """
    from barnabas.cluster.local import code_environment

    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *words], code_environment())


if __name__ == "__main__":
    main()
