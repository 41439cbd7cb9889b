"""How MindFormers sends tokens to their experts, as what it takes.

Source: mindformers 2.1.0, parallel_core/training_graph/transformer/moe/token_dispatcher.py. Its sizes are known at run time
only; here they are those of the zoo's experts, which have room for `load_imbalance` times their even share of tokens.
"""

from dataclasses import replace

from model_zoo.config import Experts, TransformerConfig
from ms_symtensor.cost.bill import Bill, Message, Part, Work
from ms_symtensor.cost.plan_price import PlanBill
from ms_symtensor.uniform.layout import UniformLayout


def with_safe_tokens(config: TransformerConfig, layout: UniformLayout) -> TransformerConfig:
    """`config`, whose batch is that of a micro-batch, with room for safe tokens, if it has them (`use_pad_tokens`): every rank
    sends one token more for each expert, to as many experts as any other (MoEAlltoAllTokenDispatcher._process_pad_tokens).
    """
    experts, of = config.experts, layout.degrees
    if experts is None or not experts.safe_tokens:
        return config
    ranks = of.data_parallel * of.context_parallel * (of.model_parallel if of.sequence_parallel else 1)
    tokens = max(1.0, config.batch_size * config.seq_length / ranks)
    return replace(
        config, experts=replace(experts, load_imbalance=experts.load_imbalance * (1 + experts.number / tokens))
    )


def dispatched(bill: PlanBill, config: TransformerConfig) -> PlanBill:
    """`bill`, whose tokens go to their experts and back as `config` says.

    alltoall_deredundancy (MoEAlltoAllDeredundencyTokenDispatcher): a rank gathers the tokens of the ranks that have its place in
    the other nodes, each token once, and exchanges rows with the ranks of its own node alone; the way back is a ReduceScatter,
    of the same bytes.
    """
    experts = config.experts
    if experts is None or experts.dispatcher != "alltoall_deredundancy":
        return bill
    rows = experts.number * experts.places(config.routed_length) / config.routed_length
    stages = (replace(stage, bill=_in_two_levels(stage.bill, experts, rows)) for stage in bill.stages)
    return replace(bill, stages=tuple(stages))


def _in_two_levels(bill: Bill, experts: Experts, rows: float) -> Bill:
    """`bill`, in which a token is sent as so many `rows`."""
    items = {}
    for key, works in bill.items.items():
        found: dict[Work, int] = {}
        for work, count in works.items():
            for one in _levels(work, experts.node_ranks, rows) if key.part is Part.EXPERT else (work,):
                found[one] = found.get(one, 0) + count
        items[key] = found
    return Bill(items, bill.units)


def _levels(work: Work, node_ranks: int, rows: float) -> tuple[Work, ...]:
    """An AlltoAll over several nodes as an exchange inside a node, and a gather over nodes."""
    if not isinstance(work, Message) or work.kind != "AlltoAll" or len(work.ranks) <= node_ranks:
        return (work,)
    inside, across = work.ranks[:node_ranks], work.ranks[::node_ranks]
    gathered_B = int(work.size_B / rows) * len(across)
    return Message("AlltoAll", inside, work.size_B), Message("AllGather", across, gathered_B)
