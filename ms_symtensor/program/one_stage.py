"""Networks that MindSpore compiles wrongly in stages or micro-batches, or not at all, because of how weights are read."""

from collections.abc import Iterator, Mapping

from ms_symtensor.errors import InputError
from ms_symtensor.program.borders import why_not_sent
from ms_symtensor.program.pipeline import Pipeline, runs_of, runs_of_ops
from ms_symtensor.program.scratch import TRANSPOSING
from ms_symtensor.tensor.graph import (
    Constant,
    Graph,
    Op,
    OpOutput,
    ParameterRef,
    sources_of,
)
from ms_symtensor.tensor.names import short_name

_WITHOUT_BACKWARD = {
    "Add", "AddExt", "Adds", "Sub", "SubExt", "Subs", "InplaceAddExt", "InplaceAddsExt", "InplaceSubExt", "InplaceSubScalar",
}  # fmt: skip
"""Operators whose gradient is that of their result as it comes, so that nothing stands for them in the backward pass."""


def why_one_stage(graph: Graph) -> str:
    """Why `graph` must not be laid out over pipeline stages; empty if it may be.

    Measured with MindSpore 2.10.0: a weight that operators outside the blocks read, one of them before and one of them behind
    blocks, is sent from stage to stage if cells own all of these, on either side others; else it is not sent, or received and
    never sent, and its gradients are wrong. And the first stage looks for the backward pass of its first weight, which
    `1 + weight` has none of; it takes those of all Reshapes of one primitive for it (`_in_line`). A weight that blocks
    of several stages read, or what is made of weights alone for them, is rejected, or sent more than once, whether it trains or
    not. A scalar is not sent (`why_not_sent`), nor what a Reshape makes ("Reshape op can't be a border"): where one goes from any
    block to a later one, stages are not laid out around it. A copy of a weight that is transposed for the gradient of what it is
    multiplied with (`_transposing`) is in a cycle of the last stage ("Graph cycle exists"). So is the gradient of a functional
    RmsNorm that reads the first weight of a block, where what reads the first weight of all is functional, too. What a stage
    receives reads its first weight (`PipelineTransformer::InsertReceive`), so that a Reshape of that takes one for the other. On
    the first stage a weight has to train; whether one does hangs on how blocks are divided, too (`stage_graphs`).
    """
    if why_not := _why_not_sent_between(graph):
        return why_not
    first = next((op for op in graph.ops if _trains(graph, op)), None)
    if first is not None and first.name in _beyond(graph) and len(graph.blocks) > 1:
        return f"no weight before {graph.blocks[-1]} trains: MindSpore wants one on the first stage"
    idle = (op for op in graph.ops if op.type in _WITHOUT_BACKWARD and _is_of_weights_alone(op))
    bare = [op for op in idle if _trains(graph, op)]
    if bare and first is not None and not first.cell:
        return (
            f"{bare[0].name} ({bare[0].type}) computes with a weight alone, and {first.name} ({first.type}), which reads the"
            " first weight, has no primitive of its own: MindSpore finds no backward pass on the first stage; use a cell of"
            " mindspore.nn for the latter"
        )
    if first is not None and first.type == "Reshape" and (other := _in_line(graph, first)):
        return (
            f"{short_name(first)} (Reshape) reads the first weight, and has one primitive with {short_name(other)} behind it:"
            " MindSpore lets the backward pass of one wait for that of the other, in a circle; give the former a primitive of its"
            " cell"
        )
    if (product := _transposing(graph)) is not None:
        return (
            f"{product.name} ({product.type}) multiplies by a weight, whose transposed copy MindSpore shares among micro-batches,"
            " in a circle; write nn.Dense, mint.nn.Linear or ops.MatMul"
        )
    readers = _first_readers(graph)
    shaped = next((op for block, op in readers.items() if op.type == "Reshape" and block != graph.blocks[0]), None)
    if shaped is not None:
        return (
            f"{shaped.name} (Reshape) reads the first weight of {shaped.block}: MindSpore takes its shape for that of what a"
            " stage receives; store the weight in the shape that is used, or read another one before"
        )
    norm = next((op for op in readers.values() if op.type == "RmsNorm" and not op.cell), None)
    if first is not None and not first.cell and norm is not None:
        return (
            f"{norm.name} (RmsNorm), which reads the first weight of {norm.block}, and {first.name} ({first.type}), which reads"
            " the first one of all, have no primitive of their own, which MindSpore rejects: make one a primitive of its cell"
        )
    for source, blocks in _weights_inside(graph).items():
        if len(blocks) > 1:
            return (
                f"{_called(graph, source)} is read in {blocks[0]} and in {blocks[-1]}: MindSpore has no weight, nor what is made"
                " of weights alone, on several stages; give every block its own"
            )
    for source in _between_blocks(graph):
        kind = graph.type_of(source)
        if kind is not None and (why_not := why_not_sent(kind)):
            return f"{_called(graph, source)} goes from block to block: {why_not}"
        if isinstance(source, OpOutput) and graph.op_by_name[source.op].type == "Reshape":
            return (
                f"{_called(graph, source)} goes from block to block: MindSpore sends no result of a Reshape from stage to stage;"
                " reshape where the next block begins"
            )
    return ""


def why_no_accumulation(graph: Graph) -> str:
    """Why gradients of `graph` must not add up on one stage; empty if they may.

    MindSpore 2.10.0 takes the backward pass of what reads the first weight (`TagMicroBatchBpEndPrim`) for the end of a
    micro-batch. It rejects a network where there is none, the weight being frozen (adapters), or where it is of no micro-batch.
    """
    first = next((op for op in graph.ops if op.type != "Cast" and _weights_of(graph, op)), None)
    if first is not None and not any(graph.parameter_by_name[name].requires_grad for name in _weights_of(graph, first)):
        return f"{short_name(first)} ({first.type}), which reads the first weight, has no gradient, which MindSpore rejects"
    first = next((op for op in graph.ops if _trains(graph, op)), None)
    if first is None or first.type == "Cast" or not _is_of_weights_alone(first):
        return ""
    return f"{first.name} ({first.type}), which reads the first weight, is of no micro-batch, which MindSpore rejects"


def _transposing(graph: Graph) -> Op | None:
    """The first product of what trains and a weight that transposes the latter: of mint.matmul, mint.mm and ops.matmul."""
    trained: set[str] = set()  # activations that have a gradient
    for op in graph.ops:
        has_gradient = any(isinstance(source, OpOutput) and source.op in trained for source in sources_of(op))
        if op.type in TRANSPOSING and has_gradient and _weights_of(graph, op):
            return op
        if has_gradient or (op.type != "Cast" and _trains(graph, op)):
            trained.add(op.name)
    return None


def _first_readers(graph: Graph) -> Mapping[str, Op]:
    """Of every block the first operator that reads a weight that trains, maybe through Casts."""
    found: dict[str, Op] = {}
    for op in graph.ops:
        weights = () if op.type == "Cast" else _weights_of(graph, op)
        if op.block is not None and any(graph.parameter_by_name[name].requires_grad for name in weights):
            found.setdefault(op.block, op)
    return found


def _in_line(graph: Graph, first: Op) -> Op | None:
    """The first Reshape with the primitive of `first`, which reads the first weight, that needs the result of another such one.

    Those of the last block and behind it are never on the first stage. Functional Reshapes are one primitive. MindSpore 2.10.0
    marks that of `first` (`PipelineTransformer::LabelParameterStart`), takes every backward pass of it for the end of the first
    stage, and makes each one wait for the one that it found before, which may need it. Measured: two are rejected; of MatMul,
    Dense, Mul, Exp and Transpose any number is compiled.
    """
    trained: set[str] = set()  # what has a backward pass
    behind: set[str] = set()  # what needs one with the primitive
    beyond = _beyond(graph)
    for op in graph.ops:
        if op.name in beyond:
            continue
        makers = {source.op for source in sources_of(op) if isinstance(source, OpOutput)}
        alike = op.type == "Reshape" and (op.cell, op.primitive) == (first.cell, first.primitive)
        if alike and makers & behind:
            return op
        if makers & trained or _trains(graph, op):
            trained.add(op.name)
        if makers & behind or (alike and op.name in trained):
            behind.add(op.name)
    return None


def _beyond(graph: Graph) -> set[str]:
    """The operators of the last block, and what needs them: they are never on the first stage."""
    found: set[str] = set()
    for op in graph.ops:
        makers = (source.op for source in sources_of(op) if isinstance(source, OpOutput))
        if op.block in graph.blocks[-1:] or not found.isdisjoint(makers):
            found.add(op.name)
    return found


def _why_not_sent_between(graph: Graph) -> str:
    """Why a weight that operators outside the blocks read on several stages is not sent there; empty if all are.

    Every block is taken for a stage of its own.
    """
    several = {name: readers for name, readers in _readers_outside(graph).items() if len(readers) > 1}
    blocks = len(graph.blocks)
    if not several or blocks < 2:
        return ""
    try:
        stages = runs_of_ops(graph, Pipeline(runs_of((1,) * blocks), blocks))
    except InputError as error:  # blocks that need each other
        return str(error)
    of_cells: dict[tuple[str, ...], set[frozenset[int]]] = {}
    for op in graph.ops:
        of_cells.setdefault(op.cell, set()).update({stages[op.name]} if len(stages[op.name]) == 1 else ())
    for name, readers in several.items():
        if len({stages[op.name] for op in readers}) == 1:
            continue
        for op in readers:
            where = f"{name} is read before and behind blocks, and"
            if not op.cell:
                return (
                    f"{where} {op.name} ({op.type}), which reads it, has no cell of its own: MindSpore does not send it from"
                    " stage to stage so; make a cell for that operator"
                )
            if len(of_cells[op.cell]) > 1:
                return (
                    f"{where} one cell, {'.'.join(op.cell)}, is called on both sides: MindSpore does not send it from stage to"
                    " stage so; make a cell for either side, with the same weight"
                )
    return ""


def _between_blocks(graph: Graph) -> Iterator[OpOutput | ParameterRef]:
    """The tensors and weights that would be sent if every block were a stage of its own."""
    number = {block: i for i, block in enumerate(graph.blocks)}
    depth: dict[str, int] = {}  # the last block on the way to an operator
    everywhere: set[str] = set()  # what every stage makes by itself, of inputs and constants
    users: dict[OpOutput | ParameterRef, set[int]] = {}  # the blocks of those that read it
    for op in graph.ops:
        sources = [source for source in sources_of(op) if isinstance(source, OpOutput | ParameterRef)]
        makers = [source.op for source in sources if isinstance(source, OpOutput)]
        before = [depth[maker] for maker in makers if maker in depth]
        if op.block is not None or before:
            depth[op.name] = last = max(before, default=0) if op.block is None else number[op.block]
            for source in sources:
                users.setdefault(source, set()).add(last)
        elif len(makers) == len(sources) and everywhere.issuperset(makers):
            everywhere.add(op.name)
    for source, places in users.items():
        if isinstance(source, OpOutput):
            if source.op in everywhere:
                continue
            places |= {depth[source.op]} if source.op in depth else set()
        if len(places) > 1:
            yield source


def _weights_inside(graph: Graph) -> dict[OpOutput | ParameterRef, list[str]]:
    """Of every weight, and of all that is made of weights alone outside the blocks, the blocks that read it."""
    made: set[str] = set()
    found: dict[OpOutput | ParameterRef, dict[str, None]] = {}
    for op in graph.ops:
        sources = [source for source in sources_of(op) if not isinstance(source, Constant)]
        weights = [s for s in sources if isinstance(s, ParameterRef) or (isinstance(s, OpOutput) and s.op in made)]
        if op.block is not None:
            for source in weights:
                found.setdefault(source, {})[op.block] = None
        elif weights and len(weights) == len(sources):
            made.add(op.name)
    return {source: list(blocks) for source, blocks in found.items()}


def _called(graph: Graph, source: OpOutput | ParameterRef) -> str:
    return f"{source.op} ({graph.op_by_name[source.op].type})" if isinstance(source, OpOutput) else source.name


def _readers_outside(graph: Graph) -> dict[str, list[Op]]:
    """Of every weight that they read, maybe through Casts, the operators outside the blocks."""
    found: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.block is None and op.type != "Cast":
            for name in _weights_of(graph, op):
                found.setdefault(name, []).append(op)
    return found


def _weights_of(graph: Graph, op: Op) -> tuple[str, ...]:
    """The weights that `op` reads, maybe through Casts."""
    found: list[str] = []
    for source in sources_of(op):
        while isinstance(source, OpOutput) and (maker := graph.op_by_name[source.op]).type == "Cast":
            source = maker.inputs[0]
        if isinstance(source, ParameterRef):
            found.append(source.name)
    return tuple(found)


def _is_of_weights_alone(op: Op) -> bool:
    """Whether `op` needs weights and constants, and nothing else."""
    return all(isinstance(source, ParameterRef | Constant) for source in sources_of(op))


def _trains(graph: Graph, op: Op) -> bool:
    """Whether `op` reads a weight that trains."""
    weights = [source for source in sources_of(op) if isinstance(source, ParameterRef)]
    return any(graph.parameter_by_name[weight.name].requires_grad for weight in weights)
