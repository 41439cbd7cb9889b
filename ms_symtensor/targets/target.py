"""A target: the software that a plan is for, which says how layouts are restricted and what is written."""

from dataclasses import dataclass

from ms_symtensor.uniform.rules import Rules


@dataclass(frozen=True)
class Target:
    """The software that runs a plan.

    Attributes:
        name: as `--target` takes it.
        text: what it runs, in words.
        rules: those of its uniform layouts; None: every operator has a layout of its own (`shard()`).
        runtime: whose habits the price assumes, unless the user says; "": the default.
        needs: names of the exporters that must be able to say the plan.
    """

    name: str
    text: str
    rules: Rules | None = None
    needs: tuple[str, ...] = ()
    runtime: str = ""
