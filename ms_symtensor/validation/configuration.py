"""A training configuration as users of Megatron or MindFormers say it: a network of the zoo and how it is spread and run.

It is what published measurements are about, where nobody wrote down a strategy per operator.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from model_zoo import config as zoo
from ms_symtensor.cost.plan_price import PlanBill
from ms_symtensor.cost.runtime import Runtime, Stored
from ms_symtensor.errors import ImpossibleError, InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.uniform.layout import ALL, NO_RECOMPUTATION, Blocks, Recomputation, Selection
from ms_symtensor.uniform.layout import FULL_RECOMPUTATION as FULL_RECOMPUTATION
from ms_symtensor.uniform.layout import SELECTIVE_RECOMPUTATION as SELECTIVE_RECOMPUTATION

Framework = Literal["megatron", "mindspeed", "mindspore", "nanotron", "fsdp"]
"""Whose habits hold: what an optimizer level shards, what is overlapped, what the allocator keeps for itself.

"megatron" and "nanotron" keep whole weights at levels 1 and 2 (ZeRO), as does "mindspeed", which is Megatron with the kernels of
torch_npu on Ascend; "mindspore" shards weights at every level (see
program.settings.OptimizerLevel); "fsdp" is level 3 with gathers ahead of time.
"""
Precision = Literal["bfloat16", "float16", "float32", "float8"]


Loss = Literal["in_place", "copied", "torch"]
"""Where the gradient of the logits goes: Megatron's loss writes over them, that of its core 0.8 beside them, and PyTorch's
cross_entropy is a log_softmax and an nll_loss, each with a gradient of its own.
"""

MIXED = Stored()
"""Mixed precision with float32 main gradients."""


class AttentionKernel(Enum):
    """How softmax(q k^T) v is computed, and so whether its seq x seq scores are kept for the backward pass."""

    FLASH = "flash"  # FlashAttention-2, FlashAttentionScore
    FLASH1 = "flash1"  # FlashAttention-1: the same memory, slower
    FUSED_SOFTMAX = "fused_softmax"  # Megatron's scaled masked softmax in one kernel; scores are kept
    PLAIN = "plain"  # separate scale, mask, softmax and dropout; scores are kept


class Part:
    """What a selective recomputation computes again, as tables call it."""

    ATTENTION_CORE = Selection.ATTENTION_CORE
    ACTIVATION_FUNCTION = Selection.ACTIVATION
    NORM = Selection.NORM
    GATHERS = Selection.COMMUNICATION


CAPACITY_FACTOR = zoo.Experts.load_imbalance
"""Tokens of the fullest expert over the mean, where nothing bounds them: what plans of the zoo are priced with."""


def mixture(
    num_experts: int, top_k: int, intermediate_size: int, shared_experts: int = 0, imbalance: float = CAPACITY_FACTOR
) -> zoo.Experts:
    """Experts of one width, of which every token sees `top_k` and all that are shared.

    `imbalance`: tokens of the fullest expert over the mean.

    Raises:
        ImpossibleError: if there are fewer than a token takes.
    """
    if not 1 <= top_k <= num_experts:
        raise ImpossibleError(f"top_k {top_k} of {num_experts} experts")
    shared = shared_experts * intermediate_size
    return zoo.Experts(num_experts, top_k, intermediate_size, shared_size=shared, load_imbalance=imbalance)


def transformer(
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    n_kv_heads: int,
    intermediate_size: int,
    vocab_size: int,
    windows: tuple[int, int] = (0, 1),
    **choices: Any,
) -> zoo.TransformerConfig:
    """A decoder of these dimensions, LLaMA's but for `choices`, which are fields of the zoo's networks.

    `windows`: a query meets so many keys at most, in the first block of so many; 0: all before it.

    Raises:
        ImpossibleError: for dimensions that do not go together.
    """
    known: dict[str, Any] = {
        "norm": "rms_norm", "activation": "swiglu", "position": "rotary", "linear_bias": False, "qkv_bias": False,
        "tied_embeddings": False,
    }  # fmt: skip
    try:
        found = zoo.TransformerConfig(
            "of a row",
            hidden_size,
            num_layers,
            num_heads,
            n_kv_heads,
            intermediate_size,
            vocab_size,
            max_position_embeddings=zoo.DEFAULT_SEQ_LENGTH,
            norm_epsilon=1e-5,
            **known | choices,
        )
    except InputError as error:
        raise ImpossibleError(str(error)) from None
    window, period = windows
    if window:
        kinds = tuple(zoo.BlockKind(window=0 if n % period else window) for n in range(num_layers))
        return replace(found, kinds=kinds)
    return found


Transformer, Experts = transformer, mixture
"""What the zoo's classes of a network and of its experts are made with here."""


def in_parts(*parts: Selection, blocks: Blocks = (ALL,)) -> tuple[tuple[Selection, Blocks], ...]:
    """The same `blocks` for several parts."""
    return tuple((part, blocks) for part in parts)


@dataclass(frozen=True)
class Configuration:
    """One training step: a model, how devices share it, and what the framework does.

    device_num is the product of data, model (tensor), context and pipeline parallelism. The devices of a stage hold experts as
    expert_model_parallel (tensor ranks that cut one; 0: see `ranks_of_an_expert`) x expert_parallel x copies. `interleave`
    chunks of blocks per stage. `optimizer_weight_shard_size` -1: over all copies. `layers_on_stage` empty: as evenly as they
    divide, the first stages one more. `head_stage` holds final norm and head; -1: the last.

    Raises:
        ImpossibleError: for degrees that do not divide what they cut.
    """

    model: zoo.TransformerConfig
    seq_length: int
    data_parallel: int = 1
    model_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_model_parallel: int = 0
    pipeline_stages: int = 1
    interleave: int = 1
    micro_batch_size: int = 1
    micro_batch_num: int = 1
    layers_on_stage: tuple[int, ...] = ()
    head_stage: int = -1
    optimizer_level: OptimizerLevel = OptimizerLevel.NONE
    optimizer_weight_shard_size: int = -1
    recomputation: Recomputation = NO_RECOMPUTATION
    attention: AttentionKernel = AttentionKernel.FLASH
    fused_norm: bool = True
    precision: Precision = "bfloat16"
    stored: Precision = "float32"  # MindSpore: the type that weights, and the sums of their gradients, are stored in
    memory_limit_B: float = 0.0  # what the run was allowed to take of a device; 0: what the device has
    bytes_per_parameter: Stored = MIXED  # not for MindSpore, where programs say it
    framework: Framework = "megatron"
    overlap_gradients: bool = True  # gradient sums of data parallelism run under the backward pass
    overlap_weights: bool = True  # gathers of sharded weights run under the forward pass
    overlap_tensors: bool = False  # tensor ranks' collectives of the backward pass run under its products
    whole_embedding: bool = False  # every tensor rank looks tokens up in the whole table
    padded_vocabulary: bool = True  # filled up such that every tensor rank has a multiple of 128 rows
    gathered_logits: bool = False  # tensor ranks gather the logits of the whole vocabulary for the loss
    exchanged_heads: bool = False  # context parallelism by AlltoAll (Ulysses), not by keys that go round a ring
    loss: Loss = "in_place"
    fused_layers: bool = True  # gates, rotations and biases are one kernel, or part of a product
    fused_gradient_sums: bool = True  # products add the gradients of their weights to those of the step themselves
    blocking_launches: bool = False  # the host waits for every kernel (CUDA_LAUNCH_BLOCKING=1)
    compiled: bool = False  # torch.compile or graph kernels: element-wise operators are fused

    def __post_init__(self) -> None:
        m, held, stages = self.model, self.layers_on_stage, self.pipeline_stages
        tensor, spread, cut = self.model_parallel, self.expert_parallel, self.ranks_of_an_expert
        chunks, experts = stages * self.interleave, m.experts.number if m.experts else 1
        devices = self.device_num // stages
        faults = (
            (
                held and (len(held), sum(held)) != (stages, m.num_layers),
                f"{held} does not put {m.num_layers} blocks on {stages} stages",
            ),
            (not held and chunks > m.num_layers, f"{m.num_layers} blocks are too few for {chunks} pipeline stages"),
            (m.num_heads % tensor, f"{m.num_heads} heads do not divide by model_parallel {tensor}"),
            (experts % spread, f"{experts} experts do not divide by expert_parallel {spread}"),
            (
                m.experts and (tensor % cut or devices % (spread * cut)),
                f"expert_parallel {spread} x expert_model_parallel {cut} does not divide the {devices} devices of a stage",
            ),
        )
        for is_fault, message in faults:
            if is_fault:
                raise ImpossibleError(message)

    @property
    def device_num(self) -> int:
        return self.data_parallel * self.model_parallel * self.context_parallel * self.pipeline_stages

    @property
    def ranks_of_an_expert(self) -> int:
        """Tensor ranks that cut every expert: all, as Megatron does, unless different experts lie on more ranks than there are
        copies of the data.
        """
        is_spread = self.data_parallel * self.context_parallel % self.expert_parallel
        return self.expert_model_parallel or (1 if is_spread else self.model_parallel)

    @property
    def global_batch_size(self) -> int:
        """Samples of one step."""
        return self.data_parallel * self.micro_batch_size * self.micro_batch_num

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.global_batch_size * self.seq_length


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A plan that was run: what its programs do, the run-time and model FLOPs of its price, and its devices."""

    bill: PlanBill
    runtime: Runtime
    flops: float
    device_num: int
    tokens: int


Step = Configuration | PlannedRun
"""What a measured step was of."""
