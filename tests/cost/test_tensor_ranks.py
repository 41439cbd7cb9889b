"""What tensor ranks send and keep, against the program that MindSpore's compiler writes of the model zoo's network."""

from collections import Counter
from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cost.configuration import Configuration, Experts, Part, Recomputation, Transformer, in_parts
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.shapes import shapes_of
from ms_symtensor.cost.training_memory import stage_bytes
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import COLLECTIVES, Phase
from ms_symtensor.program.settings import Recompute, Settings, StagePlan

SEQUENCE, RANKS = 1024, 4
LLAMA3_8B = Transformer(4096, 32, 32, 8, 14336, 128256)
SPREAD = Configuration(
    LLAMA3_8B, SEQUENCE, model_parallel=RANKS, sequence_parallel=True, framework="mindspore", padded_vocabulary=False
)


def of_program(recompute: bool = False) -> Counter:
    """The collectives of a block in the middle, forward (True) and backward; or those that are run again."""
    config = dimensions_of("llama3_8b", batch_size=1, seq_length=SEQUENCE, num_layers=3)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 1, RANKS, sequence_parallel=True)
    settings = Settings(RANKS, recompute={"layers.1": Recompute()} if recompute else {})
    plan = StagePlan({name: OpStrategy(*cut) for name, cut in cuts.items()}, settings)
    middle = [n for n in partition(graph, plan).nodes if n.block == "layers.1" and n.kind in COLLECTIVES]
    if recompute:
        return Counter(n.kind for n in middle if n.phase is Phase.RECOMPUTE)
    return Counter((n.kind, n.phase is Phase.FORWARD) for n in middle if n.parameter is None)


def of_operators(configuration: Configuration, place: int = 1, group: str = "tp") -> Counter:
    block = Network(shapes_of([configuration])).places[place]
    found: Counter = Counter()
    for sent, forward in ((block.sent, True), (block.sent_back, False)):
        for transfer in sent:
            if transfer.group == group:
                found[transfer.kind.value, forward] += int(transfer.times[0])
    return +found


def test_mindspore_gathers_once_and_others_again() -> None:
    assert of_operators(SPREAD) == of_program()
    again = of_operators(replace(SPREAD, framework="megatron"))
    assert again - of_program() == {("AllGather", False): 2} and again > of_program()


def test_mindspore_does_not_combine_a_blocks_result_again() -> None:
    block = Network(shapes_of([SPREAD])).places[1]
    whole, result = (Counter(t.kind.value for t in p.sent if t.times[0]) for p in (block, block.delivery))
    assert whole - result == of_program(recompute=True)


SHARED_EXPERTS = replace(SPREAD, model=replace(LLAMA3_8B, experts=Experts(8, 2, 1792, shared_experts=1)))


@pytest.mark.parametrize("framework", ["megatron", "mindspore"])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_ranks_that_cut_shared_experts_meet_as_those_that_cut_a_feed_forward(framework, sequence_parallel) -> None:
    # megatron/core/transformer/moe/shared_experts.py: SharedExpertMLP is an MLP
    spread = replace(SHARED_EXPERTS, framework=framework, sequence_parallel=sequence_parallel)
    assert of_operators(spread, place=2) == of_operators(spread, place=1)


def test_ranks_that_cut_routed_experts_add_their_gradients_as_their_results() -> None:
    tokens_held_whole = replace(SHARED_EXPERTS, sequence_parallel=False)
    assert of_operators(tokens_held_whole, 2, "etp") == {("AllReduce", True): 1, ("AllReduce", False): 1}
    each_kind_once = {(kind, forward): 1 for kind in ("AllGather", "ReduceScatter") for forward in (True, False)}
    assert of_operators(SHARED_EXPERTS, 2, "etp") == each_kind_once


def test_what_is_gathered_again_is_not_kept() -> None:
    again = Recomputation(parts=in_parts(Part.GATHERS, blocks=(5,)))
    kept, less = (
        stage_bytes(Network(shapes_of([c]))).activations_B[0, 0] for c in (SPREAD, replace(SPREAD, recomputation=again))
    )
    gathered_B = SEQUENCE * LLAMA3_8B.hidden_size * 2 * (1 - 1 / RANKS)
    assert kept - less == pytest.approx(5 * 2 * gathered_B)
