"""What a user may name as a model: one of the zoo, a saved graph, or a factory in a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.apply.load_network import zoo_options
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.custom_backward import require_slices_as_they_come
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.asked.limits import Limits
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.fixed_pipeline import fixed_pipeline
from ms_symtensor.search.plan import planned as planned_on_one_stage
from ms_symtensor.search.stages.network import network
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.graph_file import load as load_graph


@dataclass(frozen=True)
class Model:
    """A graph to plan, under the name that the user knows; `source` says how its network is built again.

    `graph_at(batch, layers)`: the network at another batch, with so many of its first blocks or all; None where a network
    exists as it is.
    """

    name: str
    graph: Graph
    global_batch_size: int
    seq_length: int
    source: Mapping[str, str] = field(default_factory=dict)
    graph_at: Callable[[int, int | None], Graph] | None = None

    def by_hand(self, settings: Settings) -> dict[str, StagePlan]:
        """Megatron's strategies on the devices of `settings`, whose optimizer sharding and recompute they share.

        One for every split into data and tensor parallelism by powers of two; only networks of the zoo have any.
        """
        if "model" not in self.source:
            return {}
        from model_zoo import dimensions_of
        from model_zoo.megatron import megatron_strategy

        config = dimensions_of(self.source["model"], **zoo_options(self.source))
        found = {}
        for tensor in (2**i for i in range(settings.device_num.bit_length())):
            data = settings.device_num // tensor
            try:
                cuts = megatron_strategy(self.graph, config, data, tensor, sequence_parallel=tensor > 1)
            except InputError:
                continue  # a size that this split does not divide
            strategies = {name: OpStrategy(*strategy) for name, strategy in cuts.items()}
            name = f"data {data} x tensor {tensor}" + (" with sequence parallelism" if tensor > 1 else "")
            found[name] = StagePlan(strategies, settings)
        return found


def resolve(
    name: str,
    global_batch_size: int | None = None,
    seq_length: int | None = None,
    options: Mapping[str, Any] | None = None,
    replace_shard: bool = False,
) -> Model:
    """The model called `name`. `options` are those of `model_zoo.dimensions_of`; only the zoo takes them.

    A factory's network must have no strategies written by hand, or, with `replace_shard`, gives them up.

    A network that exists has its batch and sequence already; other numbers than these are an InputError, as are unknown
    names and files that hold no graph.
    """
    from model_zoo import PUBLISHED

    if name in PUBLISHED:
        return _zoo(name, global_batch_size, seq_length, dict(options or {}))
    if not is_factory(name) and not Path(name).is_file():
        raise InputError(
            f"unknown model {name!r}: give a model of the zoo ({', '.join(PUBLISHED)}), a saved graph, or file.py:factory"
        )
    if options:
        option = {"compute_dtype": "dtype"}.get(next(iter(options)), next(iter(options))).replace("_", "-")
        raise InputError(f"--{option} is for the model zoo ({', '.join(PUBLISHED)}), not for {name}: leave it out")
    if is_factory(name):
        source = {"factory": _absolute(name)} | ({"replace_shard": "True"} if replace_shard else {})
        graph, shown = _factory(source), name.rpartition("/")[2]
    else:
        graph, source, shown = load_graph(name), {}, Path(name).stem
    batch, sequence = _batch_and_sequence(graph)
    for option, wanted, found in (
        ("global-batch-size", global_batch_size, batch),
        ("seq-length", seq_length, sequence),
    ):
        if wanted is not None and wanted != found:
            raise InputError(
                f"--{option} {wanted} does not fit {name}, whose inputs have {found}: leave it out, or build it so"
            )
    return Model(shown, graph, batch, sequence, source)


def is_factory(name: str) -> bool:
    """Whether `name` is of the form `file.py:function`."""
    path, colon, _ = name.rpartition(":")
    return bool(colon) and path.endswith(".py")


def planned(model: Model, request: Request, progress: Callable[[str], None] = lambda _: None) -> tuple[Plan, Graph]:
    """The best plan for `model`, and the graph it is for: that of a micro-batch where there are pipeline stages.

    A network that exists as it is has one batch, and so one stage.
    """
    if model.graph_at is None:
        alone = planned_on_one_stage(model.graph, request, progress)
        require_slices_as_they_come(model.graph, alone.stage, request.rules)
        return alone, model.graph
    of = network(model.graph, model.graph_at)
    found = best_plan(of, request, progress)
    return found, of.graph_at(request.global_batch_size // found.micro_batch_num)


def replanned(plan: Plan, graph: Graph, limits: Limits, limit_B: int) -> Plan:
    """The best plan within other limits and `limit_B` bytes of a device, for the network of `plan`, whose graph is `graph`.

    What exists as it is keeps its stages and micro-batches: InputError for other ones.
    """
    request = Request(
        load_cluster(plan.cluster), plan.device_num, plan.global_batch_size, plan.seq_length, limit_B, plan.model, plan.source,
        limits,
    )  # fmt: skip
    if "model" in plan.source:
        options = {k: v for k, v in zoo_options(plan.source).items() if k not in ("batch_size", "seq_length")}
        model = resolve(plan.source["model"], plan.global_batch_size, plan.seq_length, options)
        return planned(model, request)[0]
    if plan.pipeline is None:
        return planned_on_one_stage(graph, request)
    if not limits.allow(plan.pipeline_stages, plan.micro_batch_num):
        raise InputError(
            f"{plan.model} is built for {plan.micro_batch_num} micro-batches: build it otherwise, and plan again"
        )
    return fixed_pipeline(graph, request, plan.pipeline_stages, plan.micro_batch_num)


def _zoo(name: str, batch_size: int | None, seq_length: int | None, options: dict[str, Any]) -> Model:
    from model_zoo import dimensions_of
    from model_zoo.builder import build_graph

    if batch_size is not None:
        options["batch_size"] = batch_size
    config = dimensions_of(name, seq_length=seq_length, **options)
    source = {
        "model": name,
        "num_layers": str(config.num_layers),
        "seq_length": str(config.seq_length),
        "batch_size": str(config.batch_size),
        "attention": config.attention,
        "compute_dtype": config.compute_dtype,
    }
    source |= {option: str(options[option]) for option in ("experts", "load_imbalance") if option in options}

    @cache
    def graph_at(batch: int, layers: int | None) -> Graph:
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    return Model(name, graph_at(config.batch_size, None), config.batch_size, config.seq_length, source, graph_at)


def _factory(source: Mapping[str, str]) -> Graph:
    from ms_symtensor.bridge.apply.apply import require_unsharded
    from ms_symtensor.bridge.apply.load_network import load_network
    from ms_symtensor.bridge.capture.capture import capture
    from ms_symtensor.bridge.capture.scopes import fresh_scopes

    cell, inputs = load_network(source)
    require_unsharded(cell)
    with fresh_scopes(cell):
        return capture(cell, *inputs)


def _absolute(place: str) -> str:
    path, _, function = place.rpartition(":")
    return f"{Path(path).resolve()}:{function}"


def _batch_and_sequence(graph: Graph) -> tuple[int, int]:
    """The first two dims of the first input, 1 where there are fewer."""
    shape = graph.inputs[0][1].shape if graph.inputs else ()
    return (shape[0] if shape else 1, shape[1] if len(shape) > 1 else 1)
