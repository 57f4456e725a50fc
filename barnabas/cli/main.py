"""The `barnabas` command: becomes a node, or runs one of the command groups. Errors are one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from barnabas.runtime.visible import visible_lines

NODES = {"broker": "broker", "controller": "kraft"}
"""Commands that become a node, and the module to run."""
ANY_NODE = "node"
"""The command that becomes the node of a file: its process.roles choose the module."""

WRONG_ARGUMENT = 2


def main() -> None:
    """The entry point; exits the process."""
    words = sys.argv[1:]
    if words and words[0] in (*NODES, ANY_NODE) and "--help" not in words:
        _become_node(NODES.get(words[0]) or module_for(words[1:]), words[1:])
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Runs one command. Returns its exit code: 0 done, 1 refused or failed, 2 a wrong argument, 3 no answer in time,
    130 Ctrl-C, 143 SIGTERM.
    """
    from barnabas.cluster.errors import ClusterError

    try:
        code = _run_command(words)
    except ClusterError as error:
        from barnabas.cli.session import exit_code

        return _fail(str(error), exit_code(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output is gone; without this Python would report the failed flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except Exception as error:
        # Typer does not export the parser's error classes; they are recognised by this method.
        if not hasattr(error, "format_message"):
            raise
        return _fail(usage_in_one_line(error), WRONG_ARGUMENT)
    return code if isinstance(code, int) else 0


def _run_command(words: Sequence[str]) -> object:
    """Returns the exit code, or None."""
    if words[:1] == ["dev"]:
        from barnabas.cli.dev_words import plain_options

        options = plain_options(words[1:])
        if options is not None:
            from barnabas.cli.dev_run import run_in_foreground

            run_in_foreground(options)
            return 0
    from barnabas.cli.app import command
    from barnabas.cli.session import Terminated

    try:
        return command(words).main(list(words) or ["--help"], prog_name="barnabas", standalone_mode=False)
    except Terminated:
        return 143


def usage_in_one_line(error: Any) -> str:
    """The parser's message with the command it concerns, and the allowed commands or a pointer to --help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "barnabas"
    message = " ".join(error.format_message().split()).rstrip(".")
    names = getattr(context.command, "commands", {}) if context else {}
    if "Did you mean" in message:
        return f"{path}: {message}"
    return f"{path}: {message}; " + (f"commands are {', '.join(names)}" if names else f"see {path} --help")


def _fail(text: str, code: int) -> int:
    print(visible_lines(text), file=sys.stderr)
    return code


def module_for(words: Sequence[str]) -> str:
    """The module that runs the node of `CONFIG [--set KEY=VALUE]…`; it also reports what is wrong with these words."""
    from barnabas.runtime.process import ArgumentError, Arguments, read_config
    from barnabas.settings.combined import roles_in
    from barnabas.settings.errors import SettingsError

    try:
        arguments = Arguments.parse("broker", words)
        roles = roles_in(read_config(arguments.config), arguments.config, arguments.overrides)
    except (ArgumentError, SettingsError):
        return NODES["broker"]
    return NODES["controller" if roles == ["controller"] else "broker"]


def _become_node(module: str, words: Sequence[str]) -> None:
    """Replaces this process by a node, so that the modules of the command line do not stay in its memory."""
    from barnabas.cluster.local import code_environment

    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *words], code_environment())


if __name__ == "__main__":
    main()
