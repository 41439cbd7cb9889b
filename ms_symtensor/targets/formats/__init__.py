"""The output formats, one file each: `EXPORTER`. A file that stands here is used; nothing else names it."""

import importlib
import pkgutil

from ms_symtensor.targets.exporter import Exporter


def exporters() -> tuple[Exporter, ...]:
    """All of them, by the names of their files here."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").EXPORTER for name in names)
