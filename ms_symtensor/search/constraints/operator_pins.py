"""Pins of operators: a pattern of names, and how their dims are cut.

"*.query.matmul=(8,1)(1,1)"    a strategy, as `shard()` takes it; `-> (8,1)` its output's
"*.query.matmul=m/4,n/2"       slices by dim, as the report prints them; `whole`: none; `m/4,*`: the other dims are free
"*.attention.*=dp,tp"          slices of the first dim of the output (batch or tokens), and of all other dims together;
                               dp is data_parallel, tp model_parallel; also `dp*tp`, `dp*tp,1`, `8,tp`
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Op
from ms_symtensor.tensor.names import is_called

SYMBOLS = {"dp": "data_parallel", "tp": "model_parallel"}

_TUPLE = re.compile(r"\(\s*\d+(?:\s*,\s*\d+)*\s*,?\s*\)|\(\s*\)")
_DIM = re.compile(r"([a-z]+\d*)/(\d+)")
_SLICES = re.compile(r"(?:dp|tp|\d+)(?:\*(?:dp|tp|\d+))*")

Strategy = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class OperatorPin:
    """The operators called `pattern` are cut as the user wrote, `text`: by one of

    - `inputs` and `outputs` (None: any), a strategy;
    - `dims`, slices by dim, of those not named 1, or any if `rest_free`;
    - `slices` of the first dim of the output and of all others together, each a product of numbers and of SYMBOLS.
    """

    pattern: str
    text: str
    inputs: Strategy | None = None
    outputs: Strategy | None = None
    dims: Mapping[str, int] | None = None
    rest_free: bool = False
    slices: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def is_for(self, op: Op) -> bool:
        """Whether `op` is one of them."""
        return is_called(op, self.pattern)

    @property
    def symbols(self) -> frozenset[str]:
        """The degrees that it speaks of."""
        return frozenset(SYMBOLS[f] for factors in self.slices or () for f in factors if f in SYMBOLS)

    def at(self, degrees: Mapping[str, int]) -> "OperatorPin":
        """The pin where the degrees that it speaks of have these numbers."""
        if self.slices is None:
            return self
        first, rest = (tuple(str(degrees[SYMBOLS[f]]) if f in SYMBOLS else f for f in one) for one in self.slices)
        return replace(self, slices=(first, rest))

    def __str__(self) -> str:
        return f"{self.pattern} = {self.text}"


def operator_pin(pattern: str, text: str) -> OperatorPin:
    """The pin `pattern=text`; InputError for what is none of the three forms."""
    plain = text.replace(" ", "")
    if plain.startswith("("):
        inputs, arrow, outputs = plain.partition("->")
        return OperatorPin(
            pattern, text, _tuples(pattern, text, inputs), _tuples(pattern, text, outputs) if arrow else None
        )
    if plain == "whole":
        return OperatorPin(pattern, text, dims={})
    parts = plain.split(",")
    free = "*" in parts
    named = [_DIM.fullmatch(part) for part in parts if part != "*"]
    if all(named) and (named or free):
        found = {m[1]: int(m[2]) for m in named if m is not None}
        if min(found.values(), default=1) < 1:
            raise _unreadable(pattern, text)
        if len(found) < len(named):
            twice = next(dim for dim, number in Counter(m[1] for m in named if m is not None).items() if number > 1)
            raise InputError(f"{pattern}={text} says {twice} more than once: give one number of slices for every dim")
        return OperatorPin(pattern, text, dims=found, rest_free=free)
    if len(parts) <= 2 and all(map(_SLICES.fullmatch, parts)):
        first, rest = (*parts, "1")[:2]
        return OperatorPin(pattern, text, slices=(tuple(first.split("*")), tuple(rest.split("*"))))
    raise _unreadable(pattern, text)


def _tuples(pattern: str, text: str, plain: str) -> Strategy:
    if plain.startswith("(("):  # a tuple of tuples
        plain = plain[1:-1] if plain.endswith("))") else plain[1:].removesuffix(",)")
    found = _TUPLE.findall(plain)
    if not found or _TUPLE.sub("", plain).strip(","):
        raise _unreadable(pattern, text)
    return tuple(tuple(int(n) for n in re.findall(r"\d+", one)) for one in found)


def _unreadable(pattern: str, text: str) -> InputError:
    return InputError(
        f"{pattern}={text}: give a strategy such as (8,1)(1,1), slices by dim such as m/8 (m/8,* leaves the others free), whole,"
        " or dp,tp: the first dim of the output cut data_parallel ways, the others model_parallel ways"
    )
