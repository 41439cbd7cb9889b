"""Cells that a run-time runs as one kernel."""

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.fusion import FUSED, fused, fused_cells
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Program
from ms_symtensor.program.settings import Settings, StagePlan

CONFIG = dimensions_of("llama2_7b", num_layers=2, seq_length=512, batch_size=2)
GRAPH = build_graph(CONFIG)
KNOWN = meanings(GRAPH)


def program(*words: str) -> Program:
    cuts = megatron_strategy(GRAPH, CONFIG, 2, 2, True)
    plan = StagePlan({name: OpStrategy(*cut) for name, cut in cuts.items()}, Settings(4))
    return fused(partition(GRAPH, plan, known=KNOWN), fused_cells(GRAPH, KNOWN, frozenset(words)), frozenset(words))


def test_a_gate_reads_and_writes_what_crosses_its_border() -> None:
    one = program("GatedFeedForward")
    kernels = [n for n in one.nodes if n.kind == FUSED and n.block == "layers.0"]
    assert [n.phase for n in kernels] == [Phase.FORWARD, Phase.BACKWARD]
    forward, backward = kernels
    assert len(forward.inputs) == 2 and len(forward.outputs) == 1  # gate and up, their product
    assert set(forward.inputs) <= set(backward.inputs) and len(backward.outputs) == 2
    slice_B = 512 * 11008 // 2 * 2  # bfloat16: 1 sample of 512 tokens, half of the width
    assert {one.tensors[t].size_B for t in (*forward.inputs, *forward.outputs)} == {slice_B}


def test_what_a_cell_makes_for_itself_is_not_kept() -> None:
    assert activation_peak_B(program("GatedFeedForward")) < activation_peak_B(program())
    assert activation_peak_B(program("CrossEntropy")) < activation_peak_B(program())


def test_products_stay_kernels_of_their_own() -> None:
    plain, one = program(), program("GatedFeedForward", "Norm", "RotaryEmbedding", "CrossEntropy")
    for kind in ("MatMul", "FlashAttentionScore", "AllReduce", "AllGather"):
        assert sum(n.kind == kind for n in one.nodes) == sum(n.kind == kind for n in plain.nodes)
    assert len(one.nodes) < len(plain.nodes)


def test_a_loss_in_steps_passes_over_its_logits_eight_times() -> None:
    """As Megatron-LM's: maximum, difference, exponential, sum and quotient, in place."""

    def forward(*words: str) -> list[int]:
        one = program("CrossEntropy", *words)
        nodes = [n for n in one.nodes if n.kind == FUSED and n.phase is Phase.FORWARD]
        return [sum(one.tensors[t].size_B for t in n.inputs) for n in nodes]

    logits_B = 512 * 32000 // 2 * 4  # a sample of 512 tokens, half of the vocabulary
    steps = forward("label_indices", "loss_in_steps")
    assert [size // logits_B for size in steps] == [1, 2, 2, 1, 2]
    assert sum(steps) - sum(forward("label_indices")) == 7 * logits_B
