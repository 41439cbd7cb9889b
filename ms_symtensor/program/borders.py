"""What a part of a network and its neighbours on other pipeline stages give to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ms_symtensor.tensor.graph import OpOutput, TensorType
from ms_symtensor.tensor.layout import Layout


@dataclass(frozen=True)
class Received:
    """What comes from pipeline stage `sender`: how it lies there, and whether its gradient goes back."""

    sender: int
    layout: Layout
    needs_gradient: bool = True


@dataclass(frozen=True)
class Borders:
    """What a part of a network gets from other pipeline stages and gives to them.

    `received`: inputs of the part, by name. `sent`: sources and the stages that want them. Parameters that several stages
    read belong to the first of them: `parameters_received` and `parameters_sent` by name. `results`: operators whose output
    leaves their block, in the whole network. `gathered`: parameters of `@lazy_inline`, of which a rank's
    share is sent: every stage gathers for itself. `is_interleaved`: the stage holds several model chunks.
    """

    received: Mapping[str, Received] = field(default_factory=dict)
    sent: tuple[tuple[OpOutput, int], ...] = ()
    parameters_received: Mapping[str, int] = field(default_factory=dict)
    parameters_sent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    results: frozenset[str] = frozenset()
    gathered: frozenset[str] = frozenset()
    is_interleaved: bool = False


NO_BORDERS = Borders()


def why_not_sent(kind: TensorType) -> str:
    """Why a tensor of `kind` cannot go from one stage to another; empty if it can.

    MindSpore 2.10.0 infers a number for a Receive without dims, forward and backward, which no operator on tensors takes. Its
    Send takes floats, int32 and int8 alone; of an int8 it waits for a gradient that no stage sends.
    """
    if kind.shape and kind.dtype == "bool":
        return "MindSpore sends no bool from stage to stage"
    if kind.shape:
        return ""
    return (
        "MindSpore receives a scalar as a number, which is no tensor; keep one dim (keepdims=True, expand_dims(0)) until"
        " behind the blocks"
    )
