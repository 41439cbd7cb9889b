"""ultrascale_h100.csv: Llama-like models under nanotron on H100, with memory (Hugging Face, Ultra-Scale Playbook)."""

from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import transformer
from ms_symtensor.validation.dataset import Case, Form, UnusableRowError
from ms_symtensor.validation.readers.common import Names, configuration, is_timed, measured, must_be_given
from ms_symtensor.validation.table import Row

COLUMNS = (
    "model", "n_devices", "dp", "tp", "pp", "zero", "mbs", "grad_acc", "gbs", "status", "mfu", "tok_s_gpu", "mem_gb",
    "seq_len",
)  # fmt: skip
LEAST_MFU_PERCENT = 5.0  # below, steps are dominated by what no model of a step knows (restarts, swapping)

# layers, hidden, heads, feed-forward: huggingface/nanotron@0e0a27ea83, scripts/scaling_benchmarks.py, which made these runs:
# a vocabulary of 131072, embeddings tied below a feed-forward of 10,000
DIMENSIONS = {
    "1B": (16, 2048, 32, 8192),
    "3B": (28, 3072, 32, 8192),
    "4B": (30, 3072, 32, 8192),
    "8B": (32, 4096, 32, 14336),
    "80B": (80, 8192, 64, 28672),
}
VOCABULARY = 131072
LARGEST_TIED_FFN = 10_000
GROUPED_KV_HEADS = 8  # Llama 3's
PEAK_FLOPs = 989.5e12  # of an H100 in bfloat16, to which nanotron relates its utilisation


def model_of(name: str) -> TransformerConfig:
    """The model called like `llama-like-8B`, with as many key-value heads as heads, as the script has it."""
    size = name.rpartition("-")[2]
    if size not in DIMENSIONS:
        raise UnusableRowError(f"the dimensions of {name} are not published")
    layers, hidden, heads, ffn = DIMENSIONS[size]
    return transformer(hidden, layers, heads, heads, ffn, VOCABULARY, tied_embeddings=ffn < LARGEST_TIED_FFN)


def as_run(model: TransformerConfig, flops_of_token: float, seq_length: int, stages: int) -> TransformerConfig:
    """`model` with as many key-value heads as heads or with Llama 3's eight: whichever has the `flops_of_token` that a row's
    own utilisation and throughput stand for. Runs of 80B without ZeRO have the latter, which makes them 12 % smaller.
    """
    grouped = replace(model, n_kv_heads=GROUPED_KV_HEADS)
    return min((model, grouped), key=lambda m: abs(counted_flops(m, seq_length, stages) - flops_of_token))


def counted_flops(model: TransformerConfig, seq_length: int, stages: int) -> float:
    """FLOPs of a token as the source counts them: six per parameter, embeddings included, which stages do not share, and
    twelve per block, hidden width and token of the sequence.
    """
    attention = 2 * model.hidden_size**2 + 2 * model.hidden_size * model.n_kv_heads * model.head_dim
    blocks = model.num_layers * (attention + 3 * model.hidden_size * model.intermediate_size)
    tables = (1 if model.tied_embeddings and stages == 1 else 2) * model.vocab_size * model.hidden_size
    return 6.0 * (blocks + tables) + 12.0 * model.num_layers * model.hidden_size * seq_length


def stages_of(model: TransformerConfig, stages: int) -> tuple[tuple[int, ...], int]:
    """Blocks on each stage, and the stage with final norm and head, as nanotron puts them.

    Modules follow each other with the FLOPs of blocks and head as their cost; behind a module at which the sum passes the
    stage's share of it the next stage begins: huggingface/nanotron, src/nanotron/models/base.py, build_model, and
    get_block_compute_costs of its Llama. UnusableRowError if a stage is left with nothing: these runs crash.
    """
    block = 4 * model.hidden_size**2 + 3 * model.intermediate_size * model.hidden_size
    head = model.vocab_size * model.hidden_size
    modules = [("embedding", 0), *[("block", block)] * model.num_layers]
    modules += [("norm", 0), ("head", head), ("cast", 0), ("loss", 0)]
    total = sum(cost for _, cost in modules)
    placed: list[list[str]] = [[] for _ in range(stages)]
    stage = done = 0
    for name, cost in modules:
        placed[stage].append(name)
        done += cost
        if done > total * (stage + 1) / stages:
            stage += 1
    if [] in placed:
        raise UnusableRowError("nanotron leaves a pipeline stage empty and fails")
    return tuple(names.count("block") for names in placed), next(i for i, names in enumerate(placed) if "head" in names)


def case(row: Row) -> Case:
    """bfloat16, float32 gradient accumulation, sequence parallelism with asynchronous communication, 1F1B, no recomputation."""
    if row.count("dp") * row.count("mbs") * row.count("grad_acc") != row.count("gbs"):
        raise UnusableRowError("dp x mbs x grad_acc is not gbs")
    timed = is_timed(row)
    if timed:
        must_be_given(row, "mfu", "tok_s_gpu")
    if timed and row.number("mfu") < LEAST_MFU_PERCENT:
        raise UnusableRowError(f"MFU below {LEAST_MFU_PERCENT:g} %")
    model, stages, seq_length = model_of(row.text("model")), row.count("pp"), row.count("seq_len")
    if timed:
        flops_of_token = row.number("mfu") / 100 * PEAK_FLOPs / row.positive("tok_s_gpu")
        model = as_run(model, flops_of_token, seq_length, stages)
    blocks, head_stage = stages_of(model, stages)
    must_be_given(row, "zero")
    zero = row.number("zero")
    if zero not in (0, 1):
        raise UnusableRowError(f"unknown zero {row.text('zero')!r}")
    step = configuration(
        row,
        model,
        Names(micro_batch="mbs", micro_batches="grad_acc"),
        sequence_parallel=row.count("tp") > 1,
        layers_on_stage=blocks,
        head_stage=head_stage,
        optimizer_level=OptimizerLevel(int(zero)),
        framework="nanotron",
        fused_gradient_sums=False,  # src/nanotron/optim/gradient_accumulator.py: a pass over every parameter and micro-batch
        overlap_gradients=zero == 0,  # ZeRO scatters and gathers behind the backward pass: src/nanotron/optim/zero.py
        overlap_weights=False,
        overlap_tensors=True,  # tp_linear_async_communication: src/nanotron/parallel/tensor_parallel/functional.py
    )
    columns = ("tok_s_gpu", "mem_gb", "mfu") if timed else ()
    # rank 0 writes the log: larger logits of a last stage miss
    found = measured(row, step, *columns, timed=timed, stage=0)
    return Case(row.line, f"{row.text('model')}|n{row.text('n_devices')}", step, found)


FORM = Form("ultrascale_h100", COLUMNS, case)
