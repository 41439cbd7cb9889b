"""Small networks of the zoo, and plans for them as people write them by hand (data times tensor parallel)."""

from dataclasses import replace

from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.dimensions import dimensions_of
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph, Op

COLUMN = ("query", "key", "value", "gate", "up")
ROW = ("output", "down")


def small(name: str, **changes) -> TransformerConfig:
    """The network `name` of the zoo with two layers and small dims, its structure unchanged."""
    config = dimensions_of(name, num_layers=2, seq_length=128, batch_size=8)
    heads = {"num_heads": 8, "n_kv_heads": 4 if config.n_kv_heads < config.num_heads else 8}
    dims = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 1024, "head_dim": 32}
    return replace(config, **(heads | dims | changes))


def small_graph(name: str, **changes) -> Graph:
    return build_graph(small(name, **changes))


def data_times_tensor(graph: Graph, data: int, tensor: int, sequence: bool = False) -> dict[str, OpStrategy]:
    """Strategies of all shardable operators: batch cut by `data`, heads and hidden dims by `tensor`."""
    found = {}
    for op in graph.ops:
        seen = view(graph, op)
        if signature(seen).shardable:
            found[op.name] = _strategy(op, [t.shape for t in seen.inputs], data, tensor, sequence)
    return found


def _strategy(op: Op, shapes: list[tuple[int, ...]], d: int, t: int, sequence: bool) -> OpStrategy:
    tokens = (d * t, 1) if sequence else (d, 1)
    linear = op.cell[-1] if op.cell else ""
    if op.type == "MatMul":
        if linear in ROW:
            return OpStrategy(((d, t), (1, t)), ((d * t, 1),) if sequence and t > 1 else None)
        return OpStrategy(((tokens if linear == "dense" else (d, 1)), (1 if linear == "dense" else t, 1)))
    if op.primitive == "add_bias":
        if linear in ROW or linear == "dense":
            return OpStrategy((tokens, (1,)))
        return OpStrategy(((d, t), (t,)))
    if op.type == "Gather":
        return OpStrategy(((t if linear == "word_embedding" else 1, 1), (d, 1)))
    if op.type == "OneHot":
        return OpStrategy(((d, t), (), ()))
    in_loss = linear == "loss" or "CrossEntropy" in op.name
    strategies = []
    for shape in shapes:
        if in_loss and len(shape) == 2:
            strategies.append((d, t if shape[1] > 1 else 1))
        elif len(shape) == 4:
            heads_first = (linear == "core" and op.type not in BEFORE_SWAP) or op.primitive == "transpose_out"
            strategies.append((d, t, 1, 1) if heads_first else (d, 1, t, 1))
        elif len(shapes[0]) == 4:
            strategies.append((1,) * len(shape))
        elif len(shape) == 3:
            strategies.append((d, 1, 1))
        elif len(shape) == 2:
            strategies.append((d, t) if linear == "feed_forward" else tokens)
        else:
            strategies.append((1,) * len(shape))
    return OpStrategy(tuple(strategies))


BEFORE_SWAP = ("FlashAttentionScore", "Transpose")  # plain attention has heads before the sequence


def plan_of(graph: Graph, strategies: dict[str, OpStrategy], device_num: int, **settings) -> Plan:
    """A plan with these strategies and settings; its prediction is made up, only to be written and read."""
    return Plan(
        model=graph.name,
        graph_hash=graph.hash,
        cluster="atlas_800t_a2",
        stages=(StagePlan(strategies, Settings(device_num, **settings)),),
        global_batch_size=8,
        seq_length=128,
        data_parallel=2,
        model_parallel=device_num // 2,
        sequence_parallel=False,
        prediction=Prediction({"compute": 0.1, "communication": 0.25}, {"parameters": 1 << 30}, True, 1 << 36),
        search=SearchReport(12, 0.5, 0.0, "dynamic programming"),
        source={"model": "llama2_7b"},
    )  # fmt: skip


def hand_written(
    name: str, data: int, tensor: int, sequence: bool = False, level: int = 0, recompute: bool = False, **changes
):
    """Graph and plan of a small network of the zoo on `data * tensor` devices."""
    graph = small_graph(name, **changes)
    blocks = {op.block: Recompute() for op in graph.ops if op.block} if recompute else {}
    plan = plan_of(
        graph, data_times_tensor(graph, data, tensor, sequence), data * tensor,
        optimizer_level=OptimizerLevel(level), recompute=blocks,
    )  # fmt: skip
    return graph, plan
