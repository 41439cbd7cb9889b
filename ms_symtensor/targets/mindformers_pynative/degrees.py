"""Degrees of a PyNative file, and how a micro-batch runs: frozen data, read from and written to its sections."""

from dataclasses import dataclass, field
from typing import Any

from ms_symtensor.errors import InputError

Ranges = tuple[tuple[int, int], ...]
"""First and last of each of some ranges of layers."""


@dataclass(frozen=True)
class Recompute:
    """What a layer computes once more before its gradient."""

    layers: tuple[tuple[int, int], ...] = ()
    """First and last layer of each range that is recomputed whole; multi-token prediction follows the last layer."""
    modules: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    """Modules (`self_attention`, `mlp`) with the ranges of layers in which they alone are recomputed."""
    kept: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    """Communication (`exclude_op`) whose results are kept instead, with the ranges of layers."""

    def whole(self, layer: int) -> bool:
        """Whether all of `layer` is recomputed."""
        return any(first <= layer <= last for first, last in self.layers)

    def module(self, name: str, layer: int) -> bool:
        """Whether module `name` of `layer` is recomputed by itself."""
        return not self.whole(layer) and _names(self.modules, name, layer)

    def keeps(self, name: str, layer: int) -> bool:
        """Whether what `name` of `layer` received is kept, so that it is not sent once more."""
        return _names(self.kept, name, layer)


def _names(chosen: tuple[tuple[str, tuple[tuple[int, int], ...]], ...], name: str, layer: int) -> bool:
    return any(known == name and first <= layer <= last for known, ranges in chosen for first, last in ranges)


@dataclass(frozen=True)
class Degrees:
    """How ranks share the work. The defaults are MindFormers' own."""

    device_num: int
    tensor: int = 1
    context: int = 1
    context_method: str = "colossal"
    ulysses: int = 0
    """Ranks that share heads inside context parallelism, of `hybrid`; 0: as the method has it."""
    pipeline: int = 1
    interleave: int = 1
    stage_layers: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Per stage, first and last layer of each model chunk; empty: split evenly."""
    schedule: str = "1f1b"
    expert: int = 1
    shard: int = -1
    """`data_parallel_shard`: ranks of data parallelism that share parameters; -1: all."""
    dense_shard: int | None = None
    """`dense_fsdp_shard_size`."""
    reshard: str = "default"
    safe_tokens: bool = True
    local_batch: int = 1
    global_batch: int = 1
    optimizer: str = "AdamW"
    recompute: Recompute = field(default_factory=Recompute)

    @property
    def data(self) -> int:
        """Ranks of data parallelism."""
        return self.device_num // (self.tensor * self.pipeline * self.context)

    @property
    def data_shard(self) -> int:
        """Of these, ranks that share parameters."""
        return self.shard if self.shard > 0 else self.data

    @property
    def replicas(self) -> int:
        """Groups of them that hold the same parameters."""
        return max(self.data // self.data_shard, 1)

    @property
    def fsdp(self) -> int:
        """Ranks that share dense parameters where `dense_shard` says nothing."""
        return self.data_shard * self.context

    @property
    def expert_fsdp(self) -> int:
        """Ranks that share one rank's experts."""
        return self.data_shard * self.context * self.tensor // self.expert

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step."""
        return self.global_batch // (self.data * self.local_batch)

    @property
    def reshards(self) -> bool:
        """Whether a unit gives its parameters up after the forward pass."""
        return self.reshard == "always" or (self.reshard == "default" and self.pipeline == 1)

    @property
    def ulysses_degree(self) -> int:
        """Ranks that exchange sequence for heads."""
        if self.context == 1:
            return 1
        return {"colossal": 1, "ulysses": self.context}.get(self.context_method, self.ulysses)

    def chunks(self, layers: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per stage, first and last layer of each of its chunks."""
        if self.pipeline == 1:
            return (((0, layers - 1),),)
        if self.stage_layers:
            return self.stage_layers
        stages, each = self.pipeline * self.interleave, layers // (self.pipeline * self.interleave)
        bounds = [(stage * each, stage * each + each - 1) for stage in range(stages)]
        return tuple(tuple(bounds[rank :: self.pipeline]) for rank in range(self.pipeline))


def degrees_of(config: dict[str, Any], device_num: int) -> Degrees:
    """The degrees of a file's sections."""
    given, training = config.get("parallelism") or {}, config.get("training") or {}

    def number(name: str, default: int) -> int:
        value = given.get(name)
        return default if value is None else int(value)

    return Degrees(
        device_num,
        number("tensor_parallel", 1),
        number("context_parallel", 1),
        str(given.get("context_parallel_method") or "colossal").lower(),
        number("ulysses_degree_in_cp", 0),
        number("pipeline_parallel", 1),
        number("pipeline_parallel_interleave_num", 1),
        _stage_layers(given.get("pipeline_parallel_layers_per_stage")),
        str(given.get("pipeline_parallel_schedule") or "1f1b").lower(),
        number("expert_parallel", 1),
        number("data_parallel_shard", -1),
        given.get("dense_fsdp_shard_size"),
        str(given.get("reshard_after_forward_policy") or "default"),
        bool(given.get("expert_parallel_use_safe_tokens", True)),
        int(training.get("local_batch_size") or 1),
        int(training.get("global_batch_size") or 1),
        str((config.get("optimizer") or {}).get("type") or "AdamW"),
        _recompute(config.get("recompute") or {}),
    )


def ranges_of(texts: Any) -> tuple[tuple[int, int], ...]:
    """`["0-3", "7"]` as ((0, 3), (7, 7)). InputError for anything else."""
    found = []
    for text in texts if isinstance(texts, (list, tuple)) else [texts] if texts else ():
        first, _, last = str(text).partition("-")
        is_range = first.strip().isdecimal() and (last or first).strip().isdecimal()
        if not is_range or int(first) > int(last or first):
            raise InputError(f"{text!r} is no range of layers: give '3' or '0-3'")
        found.append((int(first), int(last or first)))
    return tuple(found)


def range_texts(ranges: tuple[tuple[int, int], ...]) -> list[str]:
    """The same the other way round."""
    return [f"{first}-{last}" if last > first else str(first) for first, last in ranges]


def _stage_layers(given: Any) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(ranges_of(text.split(",")) for text in given) if isinstance(given, list) else ()


def _recompute(given: dict[str, Any]) -> Recompute:
    mode = given.get("mode") or "None"
    if mode == "None":
        return Recompute()
    needed = {"full": "full_recompute_layer", "select": "select_module"}.get(mode) if isinstance(mode, str) else None
    if needed is None:
        raise InputError(f"recompute.mode is {mode!r}: give None, full or select")
    if not given.get(needed):
        raise InputError(f"recompute.mode is {mode}, and {needed} is missing: MindFormers refuses that")
    layers = ranges_of(given.get("full_recompute_layer"))
    modules = _ranges_by_name(given, "select_module") if mode == "select" else ()
    return Recompute(layers, modules, _ranges_by_name(given, "exclude_op"))


def _ranges_by_name(given: dict[str, Any], key: str) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    named = given.get(key) or {}
    if not isinstance(named, dict):
        raise InputError(f"recompute.{key} is {named!r}: give names with their ranges of layers")
    return tuple((str(name), ranges_of(ranges)) for name, ranges in named.items())
