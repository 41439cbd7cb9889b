"""The one place for operators that MindSpore's CPU lacks: each is replaced by its definition, and named in the output."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ms_symtensor.bridge.compiler.executor import front_end
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.compiler.mindir_values import ValueReader
from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.proof.collective_substitutes import COLLECTIVES
from ms_symtensor.bridge.proof.definition import Definition, Function, GroupOf, Substitute
from ms_symtensor.bridge.proof.mint_substitutes import MINT
from ms_symtensor.bridge.proof.splice import SUM, Call, Replacement, Step, replace_calls
from ms_symtensor.errors import ExecutionError
from ms_symtensor.tensor.graph import TensorType

_POSITION = TensorType((), "int32")
_ATTENTION_LAYOUTS = {0: "BSH", 1: "BNSD", 2: "SBH", 3: "BSND"}  # MindSpore's numbers; TND (4) has no fixed shapes


def _rms_norm(call: Call, _: GroupOf) -> Definition:
    return Definition((0, 1), (Function("RmsNorm", (call.constant(2),)),))


def _flash_attention(call: Call, _: GroupOf) -> Definition:
    # query, key, value, real_shift, drop_mask, padding_mask, attn_mask, prefix, actual_seq_qlen, actual_seq_kvlen, ...
    return _attention(call, unread=(3, 4, 5, 7, 8, 9), mask=6)


def _flash_attention_gradient(call: Call, _: GroupOf) -> Definition:
    # query, key, value, dy, pse_shift, drop_mask, padding_mask, attn_mask, four results, prefix, two lengths, ...
    forward = _attention(call, unread=(4, 5, 6, 12, 13, 14), mask=7)
    operands, (function,) = forward.operands, forward.steps
    assert isinstance(function, Function)
    return Definition((0, 1, 2, 3, *operands[3:]), (Function("FlashAttentionGradient", inner=function),))


def _attention(call: Call, unread: tuple[int, ...], mask: int) -> Definition:
    heads, keep, scale, before, after, _, layout, sparse_mode = (call.constant(i) for i in range(-8, 0))
    from ms_symtensor.bridge.proof.attention_definition import SPARSE_MODES

    if layout not in _ATTENTION_LAYOUTS or sparse_mode not in SPARSE_MODES or keep != 1.0:
        raise ExecutionError(
            f"{call.name} ({call.type}) with input layout {layout}, sparse mode {sparse_mode}, keep_prob {keep} has no definition"
        )
    if any(call.is_tensor(i) for i in unread):
        raise ExecutionError(f"{call.name} ({call.type}) with shifts, prefixes or lengths has no definition")
    reads_mask = call.is_tensor(mask) and sparse_mode == 0
    arguments = _ATTENTION_LAYOUTS[int(layout)], heads, scale, sparse_mode, before, after, reads_mask
    return Definition((0, 1, 2, *((mask,) if reads_mask else ())), (Function("FlashAttention", arguments),))


_SCALE, _VALUE_SIZE = 11, 15  # operands of PagedAttention


def _cache_update(call: Call, _: GroupOf) -> Definition:
    # key, value, key_cache, value_cache, slot_mapping
    shape = call.tensor(2).shape
    return Definition((0, 1, 2, 3, 4), (Function("CacheUpdate", (shape,), written=(2, 3)),))


def _paged_attention(call: Call, _: GroupOf) -> Definition:
    # query, key_cache, value_cache, block_tables, context_lens, five that are optional, head_num, scale, kv_head_num, ...
    cache = call.tensor(1).shape
    if any(call.is_tensor(i) for i in range(5, 10)):
        raise ExecutionError(
            f"{call.name} ({call.type}) with quantized keys, masks or several tokens has no definition"
        )
    heads = call.tensor(0).shape[-1] // cache[3]  # of this rank
    arguments = heads, cache[2], call.constant(_SCALE), call.constant(_VALUE_SIZE)
    return Definition((0, 1, 2, 3, 4), (Function("PagedAttention", arguments),))


def _sum(call: Call, _: GroupOf) -> Definition:
    return Definition((0,), (Function("Sum", (_numbers(call, 1), call.constant(2))),))


def _gelu(cell: str, operands: int) -> Callable[[Call, GroupOf], Definition]:
    by_tanh = 1  # the number of "tanh"
    return lambda call, _: Definition(tuple(range(operands)), (Function(cell, (call.constant(operands) == by_tanh,)),))


def _rotary(call: Call, _: GroupOf) -> Definition:
    return Definition((0, 1, 2), (Function("Rotary", (_takes_neighbours(call, 3),)),))


def _rotary_gradient(call: Call, _: GroupOf) -> Definition:
    # dy, cos, sin, x if cos or sin have a gradient, mode
    operands = (0, 1, 2, 3) if call.is_tensor(3) else (0, 1, 2)
    return Definition(operands, (Function("RotaryGradient", (_takes_neighbours(call, 4),)),))


def _takes_neighbours(call: Call, position: int) -> bool:
    mode = call.constant(position)
    if mode not in (0, 1):
        raise ExecutionError(f"{call.name} ({call.type}) of mode {mode} has no definition")
    return mode == 1


def _embedding_gradient(call: Call, _: GroupOf) -> Definition:
    rows, padding, by_frequency = (call.constant(i) for i in (2, 3, 4))
    if padding is not None or by_frequency:
        raise ExecutionError(f"{call.name} ({call.type}) with padding, or scaled by frequency, has no definition")
    return Definition((0, 1), (Function("EmbeddingGradient", (rows,)),))


def _repeated(call: Call, _: GroupOf) -> Definition:
    return Definition((0,), (Function("Repeated", (call.constant(1), call.constant(2))),))


def _broadcast_product(call: Call, _: GroupOf) -> Definition | None:
    if call.tensor(0).shape[:-2] == call.tensor(1).shape[:-2]:
        return None
    return Definition((0, 1), (Function("Product", (call.constant(2), call.constant(3))),))


def _top_k_router(call: Call, _: GroupOf) -> Definition:
    capacity, experts, drop_type = (call.constant(i) for i in (1, 2, 3))
    return Definition((0,), (Function("TopKRouter", (capacity, experts, drop_type == 0)),))


def _log_sum_exp(call: Call, _: GroupOf) -> Definition:
    return Definition((0,), (Function("LogSumExp", (_numbers(call, 1), bool(call.constant(2)))),))


def _rolled(call: Call, _: GroupOf) -> Definition:
    return Definition((0,), (Function("Rolled", (_numbers(call, 1), _numbers(call, 2))),))


def _top_k(call: Call, _: GroupOf) -> Definition:
    k, dim, largest = (call.constant(i) for i in (1, 2, 3))
    return Definition((0,), (Function("TopK", (k, dim, bool(largest))),))


def _sorted(places_alone: bool) -> Callable[[Call, GroupOf], Definition]:
    return lambda call, _: Definition(
        (0,), (Function("Sorted", (call.constant(1), bool(call.constant(2)), places_alone)),)
    )


def _running_sum(call: Call, _: GroupOf) -> Definition:
    return Definition((0,), (Function("RunningSum", (call.constant(1),)),))


def _filled(call: Call, _: GroupOf) -> Definition:
    return Definition((0,), (Function("Filled", (call.constant(1), call.outputs[0].dtype)),))


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def _slice_gradient(call: Call, _: GroupOf) -> Definition | None:
    """Of a slice with steps in positive direction that keeps all dims; MindSpore's kernel writes beside its memory there."""
    shape, begin, end, steps = (_numbers(call, i) for i in (1, 2, 3, 4))
    masks: list[Any] = [call.attributes.get(f"{name}_mask", 0) for name in _MASKS]
    if any(masks[2:]) or all(step == 1 for step in steps) or min(steps) < 1:
        return None
    found = {}
    for dim, (*ends, step) in enumerate(zip(begin, end, steps, strict=True)):
        first, last = (None if mask >> dim & 1 else i for mask, i in zip(masks, ends, strict=False))
        places = tuple(range(shape[dim])[first:last:step])
        if len(places) < shape[dim]:
            found[dim] = shape[dim], places
    return Definition((0,), (Function("Spread", (tuple(found), tuple(found.values()))),))


def _numbers(call: Call, position: int) -> tuple[Any, ...]:
    """One number, several, or none, as a tuple."""
    value = call.constant(position)
    return () if value is None else value if isinstance(value, tuple) else (value,)


def _plain(cell: str, *operands: int) -> Callable[[Call, GroupOf], Definition]:
    return lambda call, _: Definition(operands, (Function(cell),))


SUBSTITUTES: Mapping[str, Substitute] = {
    **COLLECTIVES,
    **MINT,
    "FlashAttentionScore": Substitute("softmax(q k^T) v from plain operators", _flash_attention),
    "FlashAttentionScoreGrad": Substitute("the derivative of that", _flash_attention_gradient),
    "ReshapeAndCache": Substitute("ScatterNdUpdate of both caches", _cache_update),
    "PagedAttention": Substitute("softmax(q k^T) v of the blocks in the table", _paged_attention),
    "RmsNorm": Substitute("x / sqrt(mean(x^2) + epsilon) gamma", _rms_norm),
    "SumExt": Substitute("ReduceSum", _sum),
    "LogSumExp": Substitute("log of a sum of exponentials", _log_sum_exp),
    "TopkExt": Substitute("TopK", _top_k),
    "SortExt": Substitute("Sort", _sorted(places_alone=False)),
    "ArgSort": Substitute("Sort", _sorted(places_alone=True)),
    "CumsumExt": Substitute("CumSum", _running_sum),
    "FullLike": Substitute("zeros plus the number", _filled),
    "Roll": Substitute("Gather", _rolled),
    "StridedSliceGrad": Substitute("Gather from zeros and it, where a step is not 1", _slice_gradient),
    "GeluExt": Substitute("x Φ(x) from plain operators", _gelu("Gelu", 1)),
    "GeluGradExt": Substitute("its derivative", _gelu("GeluGradient", 2)),
    "RotaryPositionEmbedding": Substitute("x cos + turned(x) sin", _rotary),
    "RotaryPositionEmbeddingGrad": Substitute("the derivative of that", _rotary_gradient),
    "EmbeddingDenseBackward": Substitute("UnsortedSegmentSum", _embedding_gradient),
    "RepeatInterleaveInt": Substitute("copies joined", _repeated),
    "TopKRouter": Substitute("places by counting", _top_k_router),
    "BatchMatMul": Substitute("MatMul, where one operand is broadcast", _broadcast_product),
    "RmsNormGrad": Substitute("its derivative", _plain("RmsNormGradient", 0, 1, 2, 3)),
}
"""By operator type. Whatever is not here runs as it is, or is reported as missing on a CPU."""


class Substituter:
    """Replaces operators in programs, and remembers which."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}

    @property
    def used(self) -> tuple[str, ...]:
        """What was replaced so far: `"ReduceScatter: AllReduce and slice"`, in alphabetical order."""
        return tuple(f"{kind}: {self._used[kind]}" for kind in sorted(self._used))

    def substitute(self, model: Any, group_of: GroupOf, rank: int) -> dict[str, tuple[int, ...]]:
        """Replace in `model`, the program of `rank`, in place; the groups that this brings in, with their global ranks.

        ExecutionError, naming the operator and the rank, where its definition does not cover it.
        """
        pairs: dict[str, tuple[int, ...]] = {}

        def find(call: Call) -> Replacement | None:
            if call.type not in SUBSTITUTES:
                return None
            substitute = SUBSTITUTES[call.type]
            try:
                definition = substitute.define(call, group_of)
            except ExecutionError as error:
                raise ExecutionError(f"rank {rank} cannot be executed on a CPU: {error}") from error
            if definition is None:
                return None
            self._used[call.type] = substitute.described
            if definition.pair is not None:
                pairs[_pair_name(definition.pair)] = definition.pair
            return self._replacement(call, definition)

        replace_calls(model, find)
        return pairs

    def _replacement(self, call: Call, definition: Definition) -> Replacement:
        types = tuple(call.element(i) for i in definition.operands)
        group = None if definition.pair is None else _pair_name(definition.pair)
        steps = []
        for step in definition.steps:
            if not isinstance(step, Function):
                steps.append(Step(SUM, types[0], group=group))
                continue
            position = definition.position if step.takes_position else None
            model, types = _compiled(step, types if position is None else (*types, _POSITION))
            steps.append(Step(model, types[0], position, written=step.written))
        return Replacement(definition.operands, tuple(steps))


def _pair_name(ranks: tuple[int, int]) -> str:
    return f"symtensor_pair_{ranks[0]}_{ranks[1]}"


@lru_cache(maxsize=512)
def _compiled(function: Function, types: tuple[TensorType, ...]) -> tuple[Any, tuple[TensorType, ...]]:
    """The graph (a `mind_ir_pb2.ModelProto`) of `function` for inputs of `types`, and the types of its results."""
    mindspore = import_mindspore()
    from mindspore import context
    from mindspore.common.initializer import Zero

    read = [t for number, t in enumerate(types) if number not in function.written]
    inputs = [mindspore.Tensor(shape=t.shape, dtype=getattr(mindspore, t.dtype), init=Zero()) for t in read]
    mode = context.get_context("mode")
    with stand_alone_context():
        context.set_context(mode=context.GRAPH_MODE)
        try:
            model, _ = front_end(_cell(function, types), inputs, "definition")
        finally:
            context.set_context(mode=mode)
    output, values = model.graph.output[0], ValueReader()
    return model, values.types(output.attr_info) or tuple(values.tensor(tensor) for tensor in output.tensor)


def _cell(function: Function, types: tuple[TensorType, ...]) -> Any:
    from ms_symtensor.bridge.proof import (
        attention_definition,
        cache_definition,
        collective_parts,
        definitions,
        mint_functions,
        spatial,
    )

    modules = attention_definition, cache_definition, collective_parts, definitions, mint_functions, spatial
    kind = next(vars(module)[function.cell] for module in modules if function.cell in vars(module))
    if function.inner is not None:
        return kind(_cell(function.inner, types), *function.arguments)
    if function.cell == "FlashAttention":
        layout, heads, scale, sparse_mode, before, after, reads_mask = function.arguments
        dim = layout.index("S")
        seen = attention_definition.visible(types[0].shape[dim], types[1].shape[dim], sparse_mode, before, after)
        return kind(layout, heads, scale, seen, reads_mask)
    if function.cell == "Filled":
        value, dtype = function.arguments
        return kind(value, getattr(import_mindspore(), dtype))
    if function.cell == "Applied":
        name, pattern = function.arguments
        return kind(vars(mint_functions)[name], pattern)
    return kind(*function.arguments)
