"""A rule as data: a line of the grammar, what a line cannot say, and what MindSpore makes of it otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ms_symtensor.ops.binding import bound
from ms_symtensor.ops.grammar import Line, read
from ms_symtensor.ops.quirks import NO_QUIRKS, Quirks, adjusted, fields_of
from ms_symtensor.ops.signature import OpView, Signature
from ms_symtensor.tensor.graph import Attribute, TensorType

Function = Callable[[OpView], Signature]


@dataclass(frozen=True)
class LineRule:
    """How an operator may be cut: called with an operator, it gives the signature.

    - `line`: in the grammar of docs/reference/rule_grammar.md.
    - `properties`: fields of `Signature` that the line does not say, such as `unit`.
    - `work`: further properties, where they depend on shapes.
    - `by_position`: the line's tensors stand for the operator's inputs by number, for operators with optional tensors.
    - `quirks`: what MindSpore does otherwise.
    """

    line: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    work: Callable[[OpView], Mapping[str, Any]] | None = None
    by_position: bool = False
    quirks: Quirks = NO_QUIRKS

    @cached_property
    def read(self) -> Line:
        """The line, read. Errors: InputError where it is none."""
        return read(self.line)

    def __call__(self, op: OpView) -> Signature:
        fields, dims_of = bound(self.read, op, self.by_position)
        said = {**self.properties, **(self.work(op) if self.work is not None else {})}
        if "sizes" in said:
            said["sizes"] = fields["sizes"] | said["sizes"]
        if "mesh" in said:
            order = dims_of(said["mesh"]) if isinstance(said["mesh"], str) else said["mesh"]
            said["mesh"] = tuple(d for d in order if d in said.get("sizes", fields["sizes"]))
        if "scatter" in said:
            said["scatter"] = next(iter(dims_of(said["scatter"])), None)
        fields |= said | fields_of(self.quirks, fields["inputs"], fields["outputs"], dims_of)
        return adjusted(Signature(**fields), self.quirks, op, dims_of)


@dataclass(frozen=True)
class Choice:
    """One of several rules, as an attribute of the operator says (compile-time argument `number`)."""

    attribute: str
    number: int
    rules: Mapping[Attribute, Function]
    otherwise: Function

    def __call__(self, op: OpView) -> Signature:
        return self.rules.get(op.argument(self.number, self.attribute), self.otherwise)(op)


@dataclass(frozen=True)
class Computed:
    """A rule that shapes decide and no line can say: a function, and what MindSpore does otherwise."""

    function: Function
    quirks: Quirks

    def __call__(self, op: OpView) -> Signature:
        return adjusted(self.function(op), self.quirks, op, str.split)


def rule(line: str, quirks: Quirks = NO_QUIRKS, **properties: Any) -> LineRule:
    """The rule of `line`; `properties` are fields of `Signature`, `work` and `by_position`."""
    work, by_position = properties.pop("work", None), properties.pop("by_position", False)
    return LineRule(line, properties, work, by_position, quirks)


def bind(
    line: str, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...], name: str, **more: Any
) -> Signature:
    """The signature `line` at the shapes of the operator called `name`, for rules that are functions.

    Errors: InputError where ranks or sizes do not fit the line, naming the operator, the tensor and both readings.
    """
    return rule(line, **more)(OpView("function", name, inputs, outputs, (), {}))


def alike(names: str, one: Function) -> dict[str, Function]:
    """The same rule for several operators, whose `names` blanks divide."""
    return dict.fromkeys(names.split(), one)
