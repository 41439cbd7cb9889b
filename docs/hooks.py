"""Pages of the site that are made from the code: options from the parsers, operators from the registry, names of the package."""

import argparse
import inspect
from typing import Any

from mkdocs.structure.files import File, Files

import ms_symtensor
from ms_symtensor.command_line import commands_of, parser
from ms_symtensor.ops.quirks import NO_QUIRKS
from ms_symtensor.ops.registry import families, rules
from ms_symtensor.ops.rule import Choice, Computed, LineRule

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
    """Every operator that is known, by the table that it stands in: its rule, and what MindSpore does otherwise."""
    parts = [
        "# Operators",
        f"The {len(rules())} operators that are known, by MindSpore's primitive names. [The rule grammar](rule_grammar.md) has"
        " the marks of their lines, [Add an operator](../howto/operator.md) says how another one becomes known. Without a rule an"
        " operator stops the plan; it never costs nothing.",
    ]
    for family, table in sorted(families().items()):
        rows = "\n".join(
            f"| `{name}` | {rule_text(rule)} | {quirks_text(rule)} |" for name, rule in sorted(table.items())
        )
        parts.append(
            f"## {family.replace('_', ' ')}\n\n| operator | rule | what MindSpore does otherwise |\n| --- | --- | --- |\n{rows}"
        )
    return "\n\n".join(parts)


def rule_text(rule: Any) -> str:
    """The line of a rule, its lines, or what a function says."""
    if isinstance(rule, LineRule):
        return f"`{' '.join(rule.line.split())}`".replace("|", "\\|")
    if isinstance(rule, Choice):
        return "<br>".join(dict.fromkeys(rule_text(one) for one in (*rule.rules.values(), rule.otherwise)))
    return first_line(rule.function if isinstance(rule, Computed) else rule)


def quirks_text(rule: Any) -> str:
    """What MindSpore does otherwise, in words."""
    if isinstance(rule, Choice):
        return quirks_text(rule.otherwise)
    quirks = getattr(rule, "quirks", NO_QUIRKS)
    said = [
        f"no distributed form: {quirks.instead}" if quirks.instead else "",
        f"refused: {quirks.refused}" if quirks.refused else "",
        f"cuts {quirks.only} alone" if quirks.only else "",
        "a cut along the axis is compiled wrongly" if quirks.miscompiled else "",
        "so is its gradient" if quirks.miscompiled and quirks.gradient_miscompiled else "",
        "the gradient of a cut along the axis is compiled wrongly"
        if quirks.gradient_miscompiled and not quirks.miscompiled
        else "",
        first_line(quirks.adjust) if quirks.adjust else "",
    ]
    return "; ".join(filter(None, said)).replace("|", "\\|")


def first_line(function: Any) -> str:
    said = inspect.getdoc(function) or ""
    return " ".join(said.partition("\n\n")[0].split()).replace("|", "\\|")
