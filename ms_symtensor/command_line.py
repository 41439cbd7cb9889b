"""The command line of `symtensor`: its commands with their options, help and examples, put together.

It imports nothing that plans, so that --help and mistakes are told at once.
"""

import argparse
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn

from ms_symtensor.commands import COMMANDS
from ms_symtensor.commands.options import add_verbose
from ms_symtensor.errors import InputError
from ms_symtensor.streams import show
from ms_symtensor.version import VERSION

EXIT_CODES = """exit codes:
  0  done; of verify, prove and audit: everything agrees
  1  a check failed: something differs
  2  a mistake in the request, nothing that fits, or a file that cannot be read or written
  130, 141  interrupted; whoever read the output has gone"""

MODULES = {name: import_module(f"ms_symtensor.commands.{name}") for name in COMMANDS}
"""The module of every command."""


class _Parser(argparse.ArgumentParser):
    """Mistakes become InputError, so that they look like all others."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")

    def print_help(self, file: object = None) -> None:
        show(self.format_help().rstrip())


class _Version(argparse.Action):
    """--version: tell it and end."""

    def __call__(self, *_: object) -> NoReturn:
        show(f"symtensor {VERSION}")
        raise SystemExit(0)


class _Completion(argparse.Action):
    """--print-completion SHELL: tell the shell's own script and end. InputError without shtab."""

    def __call__(self, command_line: argparse.ArgumentParser, _: object, shell: object, __: object = None) -> NoReturn:
        if find_spec("shtab") is None:
            raise InputError("--print-completion needs shtab: pip install 'ms_symtensor[completion]'")
        import shtab

        show(shtab.complete(command_line, str(shell)).rstrip())
        raise SystemExit(0)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What a command line asks for; `command` is the command's name. InputError for what it does not take."""
    command_line = parser()
    chosen, unknown = command_line.parse_known_args(arguments)
    if unknown:
        command = dict(commands_of(command_line))[chosen.command]
        command.error(f"unrecognized arguments: {' '.join(unknown)}{_near(unknown, command)}")
    return chosen


def _near(unknown: Sequence[str], command: argparse.ArgumentParser) -> str:
    """Which options of `command` the first of the `unknown` ones may mean."""
    word = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
    options = [option for option in command._option_string_actions if option.startswith("--")]
    near = [option for option in options if word[2:] and word[2:] in option] or get_close_matches(
        word, options, cutoff=0.7
    )
    return f"; near: {', '.join(near[:3])}" if near else ""


def commands_of(command_line: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of `symtensor`, each with its parser."""
    for action in command_line._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def parser() -> argparse.ArgumentParser:
    """What `symtensor` takes."""
    command_line = _Parser(
        prog="symtensor",
        description="Plans the parallel training of large models with MindSpore, and has MindSpore's compiler check it.",
        epilog=f"examples:\n  {MODULES['plan'].EXAMPLES[0]}\n  symtensor verify plan/llama2_7b\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_argument("--version", nargs=0, action=_Version, help="show the version and end")
    command_line.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "tcsh"),
        action=_Completion,
        help="show a shell's script for completion and end (needs shtab)",
    )
    add_verbose(command_line, 0)
    choices = command_line.add_subparsers(required=True, metavar="command", dest="command", parser_class=_Parser)

    for name, module in MODULES.items():
        command = choices.add_parser(
            name,
            help=module.TEXT,
            description=f"{module.TEXT[0].upper()}{module.TEXT[1:]}.",
            epilog="\n  ".join(("examples:", *module.EXAMPLES)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_verbose(command, argparse.SUPPRESS)
        module.arguments(command)
    return command_line
