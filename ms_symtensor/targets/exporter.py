"""What writes a plan in the form that one software reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InputError
from ms_symtensor.files.writing import Content
from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.layout import UniformLayout


class CannotSayError(InputError):
    """The form cannot say the plan; the message is a reason without a subject."""


@dataclass(frozen=True)
class Uniform:
    """What a plan in uniform layouts was made of; the batch of `config` is that of a step."""

    config: TransformerConfig
    layout: UniformLayout


@dataclass(frozen=True)
class Planned:
    """A plan, the graph it is for, its programs, and its layout where that is a uniform one."""

    plan: Plan
    graph: Graph
    programs: Sequence[Program | StageProgram]
    uniform: Uniform | None = None


@dataclass(frozen=True)
class Exporter:
    """One output format.

    Attributes:
        name: of the file, in words for people.
        files: the contents by file name. Raises CannotSayError where the form cannot say the plan.
    """

    name: str
    files: Callable[[Planned], Mapping[str, Content]]
