"""The cells of `experts.py` as graphs."""

from model_zoo.build_layers import Layers
from model_zoo.config import Experts
from model_zoo.emitter import Value
from ms_symtensor.tensor.graph import Constant, TensorType

_DROP_BY_POSITION = 0


def mixture_of_experts(b: Layers, x: Value) -> Value:
    c, experts = b.config, b.config.experts
    assert experts is not None
    tokens = x.shape[0]
    length = c.routed_length
    batch, places = tokens // length, experts.places(length)
    with b.emit.cell("feed_forward", "MixtureOfExperts"):
        weights, chosen = _router(b, x)
        chosen = b.reshape("split_choices", chosen, (batch, length, experts.per_token))
        tokens_of, place_of = b.emit.op(
            "TopKRouter", "route",
            (chosen, *map(Constant, (places - 1, experts.number, _DROP_BY_POSITION))),
            TensorType((batch, experts.number, places - 1), "int32"), chosen.type,
        )  # fmt: skip
        read = x
        if experts.scales_input:
            read = b.binary("Mul", "mul_weights", x, b.cast("cast_weights", weights, c.compute_dtype))
        samples = b.reshape("split_samples", read, (batch, length, c.hidden_size))
        samples = b.concat("add_token", [b.table((batch, 1, c.hidden_size), c.compute_dtype), samples], 1)
        tokens_of = b.concat("add_place", [b.table((batch, experts.number, 1), "int32"), tokens_of], 2)
        y = _look_up(b, "dispatch", samples, tokens_of)
        if experts.by_sample:
            y = _feed_forward(b, y)
        else:
            y = b.transpose("to_experts", y, (1, 0, 2, 3))
            y = _feed_forward(b, b.reshape("join_places", y, (experts.number, batch * places, c.hidden_size)))
            y = b.reshape("split_places", y, (experts.number, batch, places, c.hidden_size))
            y = b.transpose("to_samples", y, (1, 0, 2, 3))
        y = b.reshape("join_experts", y, (batch, experts.number * places, c.hidden_size))
        y = _look_up(b, "combine", y, place_of)
        if not experts.scales_input:
            if experts.bias:  # place 0 of an expert, where what is dropped is looked up, is not zero then
                scalar = b.table((), "int32")
                there = b.binary("FloorMod", "place_in_expert", place_of, scalar)
                there = b.cast("cast_there", b.binary("Minimum", "is_there", there, scalar), "float32")
                weights = b.reshape("split_there", weights, (batch, length, experts.per_token))
                weights = b.binary("Mul", "mul_there", weights, b.unary("StopGradient", "stop_there", there))
            weights = b.reshape("split_weights", weights, (batch, length, experts.per_token, 1))
            y = b.binary("Mul", "mul_weights", y, b.cast("cast_weights", weights, c.compute_dtype))
        y = b.reshape("merge_samples", b.sum("sum_experts", y, (2,), False), (tokens, c.hidden_size))
        if not experts.shared_size:
            return y
        shared = b.feed_forward("shared", x, experts.shared_size)
        if experts.shared_gate:
            gate = b.unary("Sigmoid", "sigmoid_gate", b.linear("shared_gate", x, 1, False))
            shared = b.binary("Mul", "mul_gate", shared, gate)
        return b.binary("Add", "add_shared", y, shared)


def _look_up(b: Layers, primitive: str, table: Value, index: Value) -> Value:
    """Rows of table [batch, rows, hidden] by index [batch, ...]."""
    result = TensorType((*index.shape, table.shape[2]), table.dtype)
    return b.emit.op("Gather", primitive, (table, index, Constant(1), Constant(1)), result)[0]


def _scores(b: Layers, x: Value) -> Value:
    c, experts = b.config, b.config.experts
    assert experts is not None
    with b.emit.cell("scores", "Scores"):
        weight = b.weight("weight", (experts.number, c.hidden_size), c.trains_base)
        scores = b.matmul(b.cast("cast_in", x, "float32"), b.cast("cast_weight", weight, "float32"))
        if not experts.bias:
            return scores
        bias = b.weight("bias", (experts.number,), c.trains_base)
        return b.binary("Add", "add_bias", scores, b.cast("cast_bias", bias, "float32"))


def _top_k(b: Layers, primitive: str, x: Value, number: int) -> tuple[Value, Value]:
    """The largest values along the last dim, and where they stand."""
    shape = (*x.shape[:-1], number)
    values, places = TensorType(shape, x.dtype), TensorType(shape, "int32")
    found = b.emit.op("TopK", primitive, (x, Constant(number)), values, places, sorted=True)
    return found[0], found[1]


def _weigh(b: Layers, weights: Value, experts: Experts) -> Value:
    if experts.normalised:
        weights = b.binary("RealDiv", "div", weights, b.sum("sum_weights", weights, (-1,), True))
    return weights if experts.scale == 1.0 else b.binary("Mul", "mul_scale", weights, b.table((), "float32"))


def _router(b: Layers, x: Value) -> tuple[Value, Value]:
    experts = b.config.experts
    assert experts is not None
    if experts.chooses_apart:
        return _group_router(b, x, experts)
    with b.emit.cell("router", "Router"):
        weights, index = _top_k(b, "top_k", _probabilities(b, _scores(b, x), experts), experts.per_token)
        return _weigh(b, weights, experts), index


def _probabilities(b: Layers, logits: Value, experts: Experts) -> Value:
    if experts.scoring == "sigmoid":
        return b.unary("Sigmoid", "sigmoid", logits)
    return b.emit.op("Softmax", "softmax", (logits, Constant((-1,))), logits.type)[0]


def _group_router(b: Layers, x: Value, experts: Experts) -> tuple[Value, Value]:
    with b.emit.cell("router", "GroupRouter"):
        scores = choice = _probabilities(b, _scores(b, x), experts)
        if experts.is_corrected:
            correction = b.emit.parameter("correction", (experts.number,), "float32", trains=False)
            choice = b.binary("Add", "add_correction", b.unary("StopGradient", "stop_gradient", scores), correction)
        if experts.groups > 1:
            choice = _in_best_groups(b, choice, experts)
        index = _top_k(b, "top_k", choice, experts.per_token)[1]
        picked = TensorType(index.shape, "float32")
        weights = b.emit.op("GatherD", "pick", (scores, Constant(1), index), picked)[0]
        return _weigh(b, weights, experts), index


def _in_best_groups(b: Layers, choice: Value, experts: Experts) -> Value:
    """`choice` [tokens, experts] with zeros outside the chosen groups of every token."""
    tokens, groups, scalar = choice.shape[0], experts.groups, b.table((), "float32")
    choice = b.reshape("split_groups", choice, (tokens, groups, experts.number // groups))
    if experts.scoring == "softmax":
        best = b.reduce("ReduceMax", "max_expert", choice, (-1,), False)
    else:
        best = b.sum("sum_two", _top_k(b, "top_two", choice, 2)[0], (-1,), False)
    found = _top_k(b, "top_groups", best, experts.groups_per_token)[1]
    one_hot = TensorType((*found.shape, groups), "float32")
    arguments = (found, Constant(groups), scalar, scalar, Constant(-1))
    chosen = b.sum("sum_groups", b.emit.op("OneHot", "one_hot", arguments, one_hot)[0], (1,), False)
    choice = b.binary("Mul", "mul_groups", choice, b.reshape("widen_groups", chosen, (tokens, groups, 1)))
    return b.reshape("merge_groups", choice, (tokens, experts.number))


def _feed_forward(b: Layers, x: Value) -> Value:
    c, experts = b.config, b.config.experts
    assert experts is not None
    wide, narrow = (
        (experts.number, c.hidden_size, experts.intermediate_size),
        (experts.number, experts.intermediate_size, c.hidden_size),
    )
    with b.emit.cell("experts", "ExpertFeedForward"):
        if not c.is_gated:
            return _product(b, "down", b.activation(_product(b, "up", x, wide)), narrow)
        gate, up = _product(b, "gate", x, wide), _product(b, "up", x, wide)
        if experts.clamp:
            scalar = b.table((), c.compute_dtype)
            gate = b.binary("Minimum", "clamp_gate", gate, scalar)
            up = b.binary("Maximum", "raise_up", b.binary("Minimum", "clamp_up", up, scalar), scalar)
            up = b.binary("Add", "add_one", up, scalar)
            slope = b.unary("Sigmoid", "sigmoid", b.binary("Mul", "mul_slope", gate, scalar))
            gate = b.binary("Mul", "mul_gate", gate, slope)
        else:
            gate = b.unary("SiLU", "silu", gate)
        return _product(b, "down", b.binary("Mul", "mul", gate, up), narrow)


def _product(b: Layers, name: str, x: Value, shape: tuple[int, int, int]) -> Value:
    """x [..., experts, n, k] times the weight of that name, [experts, k, m], plus its bias."""
    weight = b.cast(f"cast_{name}", b.matrix(name, shape), b.config.compute_dtype)
    result = TensorType((*x.shape[:-1], shape[2]), x.dtype)
    arguments = (x, weight, Constant(False), Constant(False))
    y = b.emit.op("BatchMatMul", f"matmul_{name}", arguments, result)[0]
    if b.config.has_scales:
        y = b.binary("Mul", f"scale_{name}", y, b.weight(f"{name}_scale", (shape[0], 1, shape[2])))
    if b.config.experts is None or not b.config.experts.bias:
        return y
    bias = b.weight(f"{name}_bias", (shape[0], 1, shape[2]), b.config.trains_base)
    return b.binary("Add", f"add_{name}", y, b.cast(f"cast_{name}_bias", bias, b.config.compute_dtype))
