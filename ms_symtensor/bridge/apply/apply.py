"""A plan onto a network: `shard()` on its primitives, `recompute()` on its blocks, and the parallel settings."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import compress
from typing import Any

from ms_symtensor.bridge.apply.lazy_inline import tell_apart, unite
from ms_symtensor.bridge.apply.pipeline_network import HOW_TO_REPLACE, set_stages, unset_stages
from ms_symtensor.bridge.apply.recompute import (
    is_marked,
    primitive_in,
    recomputed_by_hand,
    set_recompute,
    unset_recompute,
)
from ms_symtensor.bridge.apply.whole_count import unset_factors
from ms_symtensor.bridge.capture.capture import primitives_of
from ms_symtensor.bridge.capture.morph import is_morph, layouts_of
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.errors import InputError, InvalidStrategyError
from ms_symtensor.ops.placement import LaidOut, OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.custom_backward import require_slices_as_they_come
from ms_symtensor.program.settings import Recompute
from ms_symtensor.strategy.file import check
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import context_settings, require_same, strategies_by_primitive
from ms_symtensor.tensor.extended_layout import ExtendedMap, cutting_axes
from ms_symtensor.tensor.graph import Graph, Op, is_tensor, sources_of

_STRATEGY_ATTRIBUTES = ("in_strategy", "out_strategy", "in_layout", "out_layout")
_LAID_OUT_BY_HAND = "self_define_shard"  # on a primitive that takes Layout objects alone, as they are
_OURS = "_symtensor_strategy"  # set on a primitive that was given its strategy here, not by the user's shard()


def apply(
    cell: Any,
    graph: Graph,
    plan: Plan,
    planned: Graph | None = None,
    rules: Mapping[str, Rule] | None = None,
    replace_shard: bool = False,
) -> None:
    """Give `cell`, from which `graph` was captured, the strategies, the recompute blocks and the pipeline stages of `plan`.

    With a pipeline, `graph` is that of one micro-batch (see `pipeline_network.micro_batch`).

    `planned`, the graph that the plan was made for, makes a mismatch easier to explain. All is checked before anything
    is changed. A plan that was applied before is replaced; with `replace_shard`, so is what is written by hand.

    InputError: the plan is for another graph, primitives carry strategies written by hand, or cells are recomputed by
    hand. InvalidStrategyError: a functional operator needs a strategy, one primitive serves operators with
    different strategies, slices are exchanged inside a cell with its own backward pass, or a recompute block is no cell.
    """
    check(plan, graph, planned)
    require_slices_as_they_come(graph, plan.whole, rules)
    if not replace_shard:
        require_unplanned(cell)
    wanted = _strategies(cell, graph, plan, rules)
    recompute = plan.settings.recompute
    blocks = {name: _block_cell(cell, name, replace_shard) for name in recompute}
    for name, block in blocks.items():
        _require_primitives(block, name, recompute[name])
    remove(cell, by_hand=replace_shard)
    if plan.pipeline is not None:
        set_stages(cell, graph, plan.pipeline)
    else:
        tell_apart(cell)
    for primitive, strategy in wanted:
        primitive.shard(strategy.inputs, strategy.outputs)
        setattr(primitive, _OURS, strategy)
    for name, block in blocks.items():
        set_recompute(block, recompute[name])


def remove(cell: Any, by_hand: bool = False) -> None:
    """Take off `cell` what `apply` set; with `by_hand`, what the user wrote too: pipeline stages, `shard()` and `recompute()`."""
    unset_recompute(cell, by_hand)
    unset_stages(cell, by_hand)
    unite(cell)
    unset_factors(cell)
    for _, primitive in _primitives(cell):
        if (by_hand and not is_morph(primitive)) or _OURS in primitive.__dict__:
            primitive.__dict__.pop(_OURS, None)
            for name in (*_STRATEGY_ATTRIBUTES, *((_LAID_OUT_BY_HAND,) if by_hand else ())):
                if name in primitive.attrs:
                    primitive.del_prim_attr(name)


def require_unplanned(cell: Any) -> None:
    """InputError if primitives of `cell` carry strategies written by hand, or cells are recomputed by hand."""
    by_hand = sorted({path for path, primitive in _primitives(cell) if _is_sharded_by_hand(primitive)})
    if by_hand:
        shown = ", ".join(by_hand[:5]) + (f" and {len(by_hand) - 5} more" if len(by_hand) > 5 else "")
        raise InputError(
            f"the network has strategies written by hand, on {shown}: remove these shard() calls to plan it, or have them"
            f" replaced ({HOW_TO_REPLACE}), or keep them and use audit"
        )
    if (name := recomputed_by_hand(cell)) is not None:
        raise InputError(_recomputed(name))


def parallel_config(plan: Plan, **others: Any) -> ParallelConfig:
    """The parallel settings that `plan` was made for; `others` are further fields of `ParallelConfig`."""
    settings = context_settings(plan.settings, plan.pipeline)
    if "pipeline_config" in settings:
        others = {**others, "others": {"pipeline_config": settings.pop("pipeline_config"), **others.get("others", {})}}
    return ParallelConfig(**settings.pop("parallel_optimizer_config", {}), **settings, speed_up=plan.overlap, **others)


def _strategies(cell: Any, graph: Graph, plan: Plan, rules: Mapping[str, Rule] | None) -> list[tuple[Any, OpStrategy]]:
    """What each primitive is to be given, in graph order."""
    wanted: dict[int, tuple[Any, Op, OpStrategy]] = {}
    found = primitives_of(cell, graph)
    for path, (op, strategy) in strategies_by_primitive(graph, plan.whole, rules).items():
        primitive = found[op.name]
        # One primitive object can stand under two attributes.
        _, first, its = wanted.setdefault(id(primitive), (primitive, op, strategy))
        require_same(first, its, op, strategy, path)
    return [(primitive, strategy) for primitive, _, strategy in wanted.values()]


def _block_cell(cell: Any, name: str, replace_shard: bool) -> Any:
    found = dict(cell.cells_and_names()).get(name)
    if found is None:
        raise InvalidStrategyError(
            f"the plan recomputes block {name!r}, but the network has no cell of that name: plan it again"
        )
    if is_marked(found) and not replace_shard:
        raise InputError(_recomputed(name))
    return found


def _recomputed(name: str) -> str:
    return (
        f"{name} already has recompute() written by hand, but the plan decides what is recomputed: remove it, or have it replaced"
        f" ({HOW_TO_REPLACE})"
    )


def _require_primitives(block: Any, name: str, chosen: Recompute) -> None:
    """InvalidStrategyError if something of which the plan says whether it is recomputed is no primitive of the block."""
    from mindspore.ops import Primitive

    for named in chosen.named:
        if not isinstance(primitive_in(block, named), Primitive):
            raise InvalidStrategyError(
                f"the plan says whether {named!r} in block {name!r} is recomputed, which has no primitive of that name: plan"
                " it again"
            )


def strategies_of(cell: Any, graph: Graph) -> dict[str, OpStrategy]:
    """The strategies that the primitives of `cell` carry, by the full names of `graph`, which was captured from it.

    Operators that are laid out by themselves (Morph) have none. InputError for Layout objects that say what ours cannot.
    """
    found = {}
    for name, primitive in primitives_of(cell, graph).items():
        if is_morph(primitive):
            continue
        if "in_layout" in primitive.attrs or "out_layout" in primitive.attrs:
            found[name] = _laid_out(primitive, f"{name} ({primitive.name})")
        elif (given := primitive.attrs.get("in_strategy")) is not None:
            out_strategy = primitive.attrs.get("out_strategy")
            found[name] = OpStrategy(_opened(given), None if out_strategy is None else _opened(out_strategy))
    return {name: _of_tensors(graph.op_by_name[name], strategy) for name, strategy in found.items()}


def _of_tensors(op: Op, strategy: OpStrategy) -> OpStrategy:
    """`strategy` without entries for inputs that are no tensors, which may be written, too."""
    inputs = list(sources_of(op))
    if len(strategy.inputs) != len(inputs) or all(map(is_tensor, inputs)):
        return strategy
    entries = tuple(compress(strategy.inputs, map(is_tensor, inputs)))
    if strategy.laid_out is None:
        return replace(strategy, inputs=entries)
    maps = tuple(compress(strategy.laid_out.inputs, map(is_tensor, inputs)))
    return replace(strategy, inputs=entries, laid_out=replace(strategy.laid_out, inputs=maps))


def _opened(strategy: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    """`strategy` with the strategies of the tensors in a tuple (Concat's, Stack's) one after the other."""
    found: list[tuple[int, ...]] = []
    for given in strategy:
        found += [given] if all(isinstance(cut, int) for cut in given) else _opened(given)
    return tuple(found)


def _laid_out(primitive: Any, where: str) -> OpStrategy:
    """The strategy of a primitive that was sharded with Layout objects."""
    layouts = layouts_of(primitive, where)
    inputs, outputs = layouts.get("in_layout"), layouts.get("out_layout")
    if inputs is None or len({matrix for matrix, _ in (*inputs, *(outputs or ()))}) != 1:
        raise InputError(f"{where}: give shard() a Layout for every input, all on one device matrix")
    matrix = inputs[0][0]

    def cuts(tensor_map: ExtendedMap) -> tuple[int, ...]:
        return tuple(math.prod(matrix[-1 - a] for a in cutting_axes(entry, matrix)) for entry in tensor_map)

    maps, out_maps = tuple(m for _, m in inputs), None if outputs is None else tuple(m for _, m in outputs)
    return OpStrategy(
        tuple(map(cuts, maps)),
        None if out_maps is None else tuple(map(cuts, out_maps)),
        LaidOut(matrix, maps, out_maps),
    )


def _is_sharded_by_hand(primitive: Any) -> bool:
    return (
        not is_morph(primitive)
        and _OURS not in primitive.__dict__
        and any(name in primitive.attrs for name in _STRATEGY_ATTRIBUTES)
    )


def _primitives(cell: Any) -> Iterator[tuple[str, Any]]:
    """The primitives that `cell` and its children own, with their paths; one that has two owners comes twice."""
    from mindspore.ops import Primitive

    for path, owner in cell.cells_and_names():
        for name, value in {**owner.__dict__.get("_primitives", {}), **owner.__dict__}.items():
            if isinstance(value, Primitive):
                yield f"{path}.{name}" if path else name, value
