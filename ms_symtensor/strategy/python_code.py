"""A plan as Python that people can read, keep and edit: a function that calls `shard()` on a network's primitives.

Names come from files that others may have written: attributes stand in the code where they are identifiers, and everything else
as text, quoted by `repr`.
"""

import keyword
from collections.abc import Iterator
from itertools import groupby

from ms_symtensor.strategy.folder import SPEED_UP_FILE
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.strategy.primitives import context_settings, strategies_by_primitive
from ms_symtensor.strategy.stage_cells import parameters_of_several_stages, stage_cells
from ms_symtensor.tensor.graph import Graph

_INDENT = "    "
_DIGITS = 9  # of the number of a cell in a list
_Path = tuple[str, ...]
"""Names of attributes, and numbers of cells in a list."""
_Line = tuple[_Path, str]
"""What is done with the object at a path from a block."""


def python_code(graph: Graph, plan: Plan) -> str:
    """The text of a module with `shard(net)` and `SETTINGS`, the settings to compile with; repeated blocks become a
    loop.

    InvalidStrategyError where a strategy cannot be written on a primitive (see `strategies_by_primitive`).
    """
    body: list[str] = []
    for blocks, lines in _sections(graph, plan):
        if len(blocks) == 1:
            body += [_line(_expression("net", blocks[0]), line) for line in lines]
        else:
            parent = _expression("net", blocks[0][:-1])
            body += [f"for index in {_indices([int(b[-1]) for b in blocks])}:", f"{_INDENT}block = {parent}[index]"]
            body += [f"{_INDENT}{_line('block', line)}" for line in lines]
    settings = {"device_num": plan.device_num} | context_settings(plan.settings, plan.pipeline)
    step: tuple[str, ...] = ()
    if plan.pipeline is not None:
        step = (
            *_loss_of_micro_batches(plan),
            f"# then: net = mindspore.nn.{plan.pipeline.wrapper}(net, {plan.micro_batch_num})",
        )
    if plan.settings.swap_optimizer:
        step += (
            "# Optimizer states stay in host memory: MindFormers' AdamW(…, swap=True), or every state of the optimizer as",
            '# mindspore.Parameter(…, device="CPU"); MS_DEV_RUNTIME_CONF="switch_inline:False" in the environment.',
        )
    if plan.overlap:
        step += (f'# mindspore.set_context(ascend_config={{"parallel_speed_up_json_path": "{SPEED_UP_FILE}"}})',)
    body += _whole_parameters(graph, plan)
    body += _lazy_inline(graph, plan)
    contents = "what is recomputed" + (", and its pipeline stages" if plan.pipeline_stages > 1 else "")
    return "\n".join(
        [
            _docstring(f"The plan of ms_symtensor for {plan.model} on {plan.device_num} devices of {plan.cluster}."),
            "",
            "# mindspore.set_auto_parallel_context(**SETTINGS)",
            "SETTINGS = {",
            *(f"{_INDENT}{name!r}: {value!r},".replace("'", '"') for name, value in settings.items()),  # all our own
            "}",
            *step,
            "",
            "",
            "def shard(net):",
            _INDENT + _docstring(f"Set the strategies of the primitives of `net` ({graph.name}), and {contents}."),
            *(f"{_INDENT}{line}" for line in body),
            "",
        ]
    )


def _lazy_inline(graph: Graph, plan: Plan) -> list[str]:
    """Lines that make the whole network one of `@lazy_inline`, where MindSpore takes micro-batches of no other one; or that tell
    cells of it apart of which other weights train.
    """
    whole = 'net.cell_init_args = "lazy_inline_net"  # as @mindspore.lazy_inline does'
    if not graph.is_lazy_inline:
        needed = plan.pipeline is not None and plan.pipeline.needs_config
        return [f"{whole}: interleaving needs it"] if needed else []
    marked = f'{_INDENT}if str(cell.__dict__.get("_cell_init_args", "")).startswith("lazy_inline_"):'
    if plan.pipeline is not None:
        return [
            "for _, cell in net.cells_and_names():  # MindSpore takes micro-batches of @lazy_inline on the whole network alone",
            marked,
            f"{2 * _INDENT}del cell._cell_init_args",
            whole,
        ]
    if all(parameter.requires_grad for parameter in graph.parameters):
        return []
    return [
        "for _, cell in net.cells_and_names():  # MindSpore compiles cells of @lazy_inline as one, whatever trains in them",
        marked,
        f'{2 * _INDENT}cell.cell_init_args += "".join(str(int(one.requires_grad)) for one in cell.get_parameters())',
    ]


def _loss_of_micro_batches(plan: Plan) -> Iterator[str]:
    """Comments on what makes the loss of micro-batches that of the whole batch."""
    if plan.loss is MicroBatchLoss.COUNTED:
        yield f"# after shard(net): ms_symtensor.count_over_batch(net, *inputs, micro_batch_num={plan.micro_batch_num}),"
        yield f"# so that the loss is {plan.loss.value}; without it, it is the {MicroBatchLoss.MEAN_OF_MEANS.value}"
    elif plan.loss is MicroBatchLoss.MEAN_OF_MEANS:
        yield f"# the loss is the {plan.loss.value}"


def _sections(graph: Graph, plan: Plan) -> list[tuple[list[_Path], list[_Line]]]:
    """Blocks (paths; the empty path is the network itself) with the lines that all of them get, in graph order."""
    lines: dict[_Path, list[_Line]] = {}
    for path, (op, strategy) in strategies_by_primitive(graph, plan.whole).items():
        block = tuple(op.block.split(".")) if op.block else ()
        block = block if path[: len(block)] == block else ()
        arguments = f"{strategy.inputs}" + (f", {strategy.outputs}" if strategy.outputs is not None else "")
        lines.setdefault(block, []).append((path[len(block) :], f"shard({arguments})"))
    blocks = {tuple(op.block.split(".")) for op in graph.ops if op.block is not None}
    for path, place in stage_cells(graph, plan.pipeline).items() if plan.pipeline is not None else ():
        of, owner = (path, ()) if path in blocks else ((), path)
        lines.setdefault(of, []).append((owner, f"pipeline_stage = {place.stage}"))
        if plan.pipeline is not None and plan.pipeline.needs_config:
            lines[of].append((owner, f"pipeline_segment = {place.segment}"))
    for name, recompute in plan.settings.recompute.items():
        block_lines = lines.setdefault(tuple(name.split(".")), [])
        if not recompute.only:
            block_lines.append(((), f"recompute(mp_comm_recompute={recompute.communication})"))
        for names, call in (
            (recompute.only, "recompute()"),
            (recompute.kept, "recompute(False)"),
            (recompute.kept_communication, 'add_prim_attr("recompute_comm_op", False)'),
        ):
            block_lines += [(tuple(name.split(".")), call) for name in names]
    alike: dict[tuple, list[_Path]] = {}
    for block, text in lines.items():
        key = (block[:-1] if block and _is_index(block[-1]) else block, tuple(text))
        alike.setdefault(key, []).append(block)
    return [(blocks, list(text)) for (_, text), blocks in alike.items()]


def _whole_parameters(graph: Graph, plan: Plan) -> list[str]:
    """Lines for the parameters that the optimizer must not shard because several stages read them."""
    several = () if plan.pipeline is None else parameters_of_several_stages(graph, plan.pipeline)
    if not several:
        return []
    names = ", ".join(map(repr, several))
    return [
        "for parameter in net.get_parameters():",
        f"{_INDENT}if parameter.name in ({names},):  # several stages read it",
        f"{_INDENT * 2}parameter.parallel_optimizer = False",
    ]


def _docstring(text: str) -> str:
    """`text` as people write it, or as `repr` does where it holds more than plain characters."""
    shown = repr(text)
    return f'"""{text}"""' if shown == f"'{text}'" and '"' not in text else shown


def _line(root: str, line: _Line) -> str:
    path, call = line
    return f"{_expression(root, path)}.{call}"


def _expression(root: str, path: _Path) -> str:
    """The object at `path` from `root`."""
    for part in path:
        if _is_index(part):
            root = f"{root}[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            root = f"{root}.{part}"
        else:
            root = f"getattr({root}, {part!r})"
    return root


def _is_index(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) <= _DIGITS and str(int(part)) == part


def _indices(numbers: list[int]) -> str:
    """`range(32)`, `range(4, 8)`, or the numbers themselves where they have gaps."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    if len(runs) > 1:
        return str(tuple(numbers))
    return f"range({numbers[-1] + 1})" if numbers[0] == 0 else f"range({numbers[0]}, {numbers[-1] + 1})"
