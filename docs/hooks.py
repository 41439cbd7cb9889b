"""Pages of the site that are made from the code: options from the parsers, operators from the registry, names of the package."""

import argparse
import inspect
from collections import defaultdict
from typing import Any

from mkdocs.structure.files import File, Files

import ms_symtensor
from ms_symtensor.command_line import commands_of, parser
from ms_symtensor.ops.registry import rules

PYTHON = """# Python

Names of `ms_symtensor` are loaded when they are first used. Importing the package makes the search mode known to MindSpore.

"""


def on_files(files: Files, config: Any) -> Files:
    """The files of the site, and those that are made."""
    made = {
        "reference/cli.md": command_line(),
        "reference/operators.md": operators(),
        "reference/python.md": PYTHON + "\n\n".join(f"::: ms_symtensor.{name}" for name in ms_symtensor.__all__),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def command_line() -> str:
    """Every command with the text of its --help."""
    whole = parser()
    parts = ["# Command line", block(whole)]
    for name, one in commands_of(whole):
        parts += [f"## {name}", block(one)]
    return "\n\n".join(parts)


def block(one: argparse.ArgumentParser) -> str:
    return f"```text\n{one.format_help().rstrip()}\n```"


def operators() -> str:
    """Every operator that is known, by the module of its rule, with the first line of what the rule says."""
    families: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, rule in rules().items():
        said = inspect.getdoc(rule) or ""
        families[rule.__module__.rpartition(".")[2]].append((name, said.partition("\n")[0].replace("|", "\\|")))
    parts = [
        "# Operators",
        f"The {len(rules())} operators that are known, by MindSpore's primitive names. [Add an operator](../howto/operator.md)"
        " says how another one becomes known. Without a rule an operator stops the plan; it never costs nothing.",
    ]
    for family in sorted(families):
        rows = "\n".join(f"| `{name}` | {said} |" for name, said in sorted(families[family]))
        parts.append(f"## {family.replace('_', ' ')}\n\n| operator | rule |\n| --- | --- |\n{rows}")
    return "\n\n".join(parts)
