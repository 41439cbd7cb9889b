"""What MindFormers' classes refuse, mirrored: so that no degrees are searched or written that it would not take.

`degree_refusal` mirrors ParallelismConfig and ParallelDims (mindformers/pynative/config/config.py, distributed/parallel_dims.py),
`refusal` also what the trainer, the stages and the styles check of a network: PpLayerSetting, `_create_schedule`,
base_models/gpt/parallelize.py and distributed/context_parallel.py.
"""

from collections.abc import Iterator

from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

METHODS = ("colossal", "ulysses", "hybrid")
SCHEDULES = ("1f1b", "interleaved_1f1b", "gpipe")
POLICIES = ("always", "never", "default")


def degree_refusal(degrees: Degrees) -> str:
    """Why no mesh can be built of `degrees`, or an empty word."""
    return next(_of_degrees(degrees), "")


def refusal(shape: ModelShape, degrees: Degrees) -> str:
    """Why MindFormers does not train `shape` by `degrees`, or an empty word."""
    return next(_all(shape, degrees), "")


def warning(shape: ModelShape, degrees: Degrees) -> str:
    """What MindFormers 2.1 takes and does wrong, or an empty word: `hc_head` is in no plan of its parallelize.py, so that no rank
    sums its gradients over tensor parallelism. `prove` finds that.
    """
    if shape.streams is None or degrees.tensor == 1:
        return ""
    return (
        f"tensor_parallel {degrees.tensor}: MindFormers 2.1 does not sum the gradients of decoder.hc_head over these ranks;"
        " tensor_parallel 1 has none to sum"
    )


def _all(shape: ModelShape, degrees: Degrees) -> Iterator[str]:
    yield from _of_degrees(degrees)
    yield from _of_batch(degrees)
    yield from _of_pipeline(shape, degrees)
    yield from _of_tensor(shape, degrees)
    yield from _of_experts(shape, degrees)
    yield from _of_context(shape, degrees)
    yield from _of_sharding(degrees)


def _of_degrees(degrees: Degrees) -> Iterator[str]:
    held = degrees.tensor * degrees.context * degrees.pipeline
    if min(degrees.tensor, degrees.context, degrees.pipeline, degrees.expert) < 1:
        yield "a degree is below 1"
        return
    if degrees.device_num // held < 1:
        yield f"tensor x context x pipeline ({held}) is more than the {degrees.device_num} ranks"
        return
    if degrees.replicas * degrees.data_shard * held != degrees.device_num:
        yield f"replicas x data_parallel_shard x {held} is not {degrees.device_num} ranks"
        return
    region = degrees.data_shard * degrees.context * degrees.tensor
    if region % degrees.expert:
        yield f"expert_parallel {degrees.expert} does not divide data_parallel_shard x context x tensor ({region})"


def _of_batch(degrees: Degrees) -> Iterator[str]:
    samples = degrees.data * degrees.local_batch
    if degrees.global_batch % samples:
        yield f"the global batch {degrees.global_batch} does not divide by data parallelism x local batch ({samples})"


def _of_pipeline(shape: ModelShape, degrees: Degrees) -> Iterator[str]:
    if degrees.pipeline == 1:
        return
    if shape.family == "qwen3":
        yield "MindFormers 2.1's PyNative class of Qwen3 takes no stages (its constructor has no layer_start)"
    if degrees.schedule not in SCHEDULES:
        yield f"pipeline_parallel_schedule {degrees.schedule!r} is none of {', '.join(SCHEDULES)}"
    if degrees.schedule == "interleaved_1f1b" and degrees.interleave == 1:
        yield "interleaved_1f1b needs pipeline_parallel_interleave_num above 1"
    stages = degrees.pipeline * degrees.interleave
    if degrees.stage_layers:
        if len(degrees.stage_layers) != degrees.pipeline:
            yield f"layers are given for {len(degrees.stage_layers)} of {degrees.pipeline} stages"
        if any(len(chunks) != degrees.interleave for chunks in degrees.stage_layers):
            yield f"a stage has not {degrees.interleave} ranges of layers"
    elif shape.layers % stages:
        yield f"{shape.layers} layers do not divide by {stages} stages: ranges must be given"


def _of_tensor(shape: ModelShape, degrees: Degrees) -> Iterator[str]:
    tensor = degrees.tensor
    if tensor == 1:
        return
    if shape.latent is None and shape.compressed is None and shape.key_value_heads % tensor:
        yield f"{shape.key_value_heads} groups of keys do not divide by tensor_parallel {tensor}"
    if shape.heads % tensor:
        yield f"{shape.heads} heads do not divide by tensor_parallel {tensor}"
    if shape.vocabulary % tensor:
        yield f"the vocabulary of {shape.vocabulary} does not divide by tensor_parallel {tensor}"
    if shape.feed_forward % tensor:
        yield f"the feed-forward of {shape.feed_forward} does not divide by tensor_parallel {tensor}"
    if shape.sequence // degrees.context % tensor:
        yield f"the sequence of a rank ({shape.sequence // degrees.context}) does not divide by tensor_parallel {tensor}"


def _of_experts(shape: ModelShape, degrees: Degrees) -> Iterator[str]:
    if degrees.expert == 1:
        return
    if shape.experts is None:
        yield "a network without experts has no expert_parallel"
    elif shape.experts.count % degrees.expert:
        yield f"{shape.experts.count} experts do not divide by expert_parallel {degrees.expert}"


def _of_context(shape: ModelShape, degrees: Degrees) -> Iterator[str]:
    context, method = degrees.context, degrees.context_method
    if context == 1:
        return
    if method not in METHODS:
        yield f"context_parallel_method {method!r} is none of {', '.join(METHODS)}"
        return
    if method == "ulysses" and degrees.ulysses not in (0, context):
        yield f"ulysses needs ulysses_degree_in_cp {context}"
    ulysses = degrees.ulysses_degree
    if method == "hybrid" and (ulysses <= 1 or ulysses >= context or context % ulysses):
        yield "hybrid needs ulysses_degree_in_cp between 1 and context_parallel, dividing it"
        return
    heads = shape.heads // degrees.tensor
    keys = heads if shape.latent else shape.key_value_heads // degrees.tensor
    if heads % ulysses or keys % ulysses:
        yield f"a rank's {heads} heads, {keys} of keys, do not divide by {ulysses} ranks of ulysses"
    if shape.sequence % context:
        yield f"the sequence of {shape.sequence} does not divide by context_parallel {context}"
    if not shape.compressed_mask:
        yield "context parallelism needs use_attn_mask_compression"


def _of_sharding(degrees: Degrees) -> Iterator[str]:
    if degrees.reshard not in POLICIES:
        yield f"reshard_after_forward_policy {degrees.reshard!r} is none of {', '.join(POLICIES)}"
    size = degrees.dense_shard
    if size is not None and (size < 1 or degrees.fsdp % size):
        yield f"dense_fsdp_shard_size {size} does not divide the {degrees.fsdp} ranks that share parameters"
