"""What a user may name as a model: one of the zoo, a config.json, a saved graph, or a factory in a file."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_symtensor.errors import CompilerError, InputError, InvalidStrategyError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule, require_known
from ms_symtensor.program.custom_backward import require_slices_as_they_come
from ms_symtensor.program.loss_parts import factors_of_loss
from ms_symtensor.program.samples import where_samples_meet
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.checked import batch_and_sequence
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.fixed_pipeline import fixed_pipeline
from ms_symtensor.search.folded.alternating import merge_period, separated
from ms_symtensor.search.plan import planned as planned_on_one_stage
from ms_symtensor.search.possible import require_possible
from ms_symtensor.search.stages.network import network
from ms_symtensor.strategy.file import check
from ms_symtensor.strategy.loss import loss_of
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.source import require_function, require_trusted, zoo_options
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.graph_file import load as load_graph
from ms_symtensor.tensor.scaling import Scaling

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig


@dataclass(frozen=True)
class Model:
    """A graph to plan, under the name that the user knows; `source` says how its network is built again.

    `graph_at(batch, layers)`: the network at another batch, with at least so many of its first blocks or all; None where it
    exists as it is. `captured`: what MindSpore makes of a network that `graph_at` only infers from others.
    """

    name: str
    graph: Graph
    global_batch_size: int
    seq_length: int
    source: Mapping[str, str] = field(default_factory=dict)
    graph_at: Callable[[int, int | None], Graph] | None = None
    captured: "Captured | None" = None
    config: "TransformerConfig | None" = None
    """The dimensions of a network of the zoo, at the batch of a step."""
    other_form: "Callable[[], Model] | None" = None
    """The same network with its experts in another form, which costs may prefer."""
    notes: tuple[str, ...] = ()
    """What a config.json has that is not planned, or is planned as something else."""

    @property
    def by_sample(self) -> "Model":
        """The same with experts by sample, if their form is not given: on devices that are neighbours, as other software does."""
        return self if self.other_form is None else self.other_form()

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
    dims: Sequence[str] = (),
    approximate: bool = False,
) -> Model:
    """The model called `name`. `options` are those of `model_zoo.dimensions_of`; only the zoo takes them, and a config.json.
    `dims`, other values of its keys (KEY=VALUE), and `approximate` are for the latter: see `model_zoo.config_json.read`.

    A factory's network must have no strategies written by hand, or, with `replace_shard`, gives them up.

    A network that exists has its batch and sequence already; other numbers than these are an InputError, as are unknown
    names and files that hold no graph.
    """
    from model_zoo import PUBLISHED
    from model_zoo.captured import CAPTURED
    from model_zoo.config_json import file_of

    if name in CAPTURED:
        return _captured(name, global_batch_size, seq_length, dict(options or {}), dims)
    file = None if name in PUBLISHED else file_of(name)
    if file is not None:
        return _described(file, global_batch_size, seq_length, dict(options or {}), dims, approximate)
    if not is_factory(name) and (Path(name).suffix == ".json" or len(Path(name).parts) > 1) and not Path(name).exists():
        raise InputError(f"there is no file {name}: check the path; of a network on a hub give its config.json")
    if dims or approximate:
        raise InputError(f"--{'dim' if dims else 'approximate'} is for a config.json, not for {name}: leave it out")
    if name in PUBLISHED or "dimensions" in (options or {}):
        return _zoo(name, global_batch_size, seq_length, dict(options or {}))
    if Path(name).is_dir():
        raise InputError(
            f"the folder {name} holds no config.json: give a file of it, such as {Path(name) / 'config.json'}"
        )
    if not is_factory(name) and not Path(name).is_file():
        raise InputError(
            f"unknown model {name!r}: give a model of the zoo ({', '.join((*PUBLISHED, *CAPTURED))}), a config.json, a saved"
            " graph, or file.py:factory"
        )
    graph = None if is_factory(name) else load_graph(name)
    if options:
        option = {"compute_dtype": "dtype"}.get(next(iter(options)), next(iter(options))).replace("_", "-")
        raise InputError(f"--{option} is for the model zoo ({', '.join(PUBLISHED)}), not for {name}: leave it out")
    if graph is None:
        source = {"factory": _absolute(name)} | ({"replace_shard": "True"} if replace_shard else {})
        return _factory(name, source, global_batch_size, seq_length)
    batch, sequence = batch_and_sequence(graph)
    _require_size(name, "global-batch-size", global_batch_size, batch)
    _require_size(name, "seq-length", seq_length, sequence)
    return Model(Path(name).stem, graph, batch, sequence)


def is_captured(name: str) -> bool:
    """Whether the network called `name` is captured by MindSpore, so that it has no dimensions, and no uniform layouts."""
    from model_zoo.captured import CAPTURED

    return name in CAPTURED or is_factory(name)


def is_factory(name: str) -> bool:
    """Whether `name` is of the form `file.py:function`. InputError for a Python file without a function."""
    if name.endswith(".py"):
        require_function(name)
    path, colon, _ = name.rpartition(":")
    return bool(colon) and path.endswith(".py")


@dataclass(frozen=True)
class Captured:
    """What MindSpore makes of a network: its graph `at` any batch, and at two of them. `require_unstaged`: InputError if its
    cells have pipeline stages already.
    """

    at: Callable[[int], Graph]
    scaling: Callable[[], Scaling]
    require_unstaged: Callable[[], None]


def planned(
    model: Model, request: Request, progress: Callable[[str], None] = lambda _: None, cutoff_s: float = math.inf
) -> tuple[Plan, Graph]:
    """The best plan for `model`, and the graph it is for: that of a micro-batch where there are several.

    A network that exists as it is, or at no other batch, has one batch, and so one stage; the plan's search says so.
    InfeasibleError where stages are searched, and none takes less than `cutoff_s`.
    """
    found, graph = _planned(model, request, progress, cutoff_s)
    if model.captured is not None:
        from ms_symtensor.bridge.compiler.host import import_mindspore

        found = replace(found, made_with={**found.made_with, "mindspore": import_mindspore().__version__})
    return found, graph


def _planned(model: Model, request: Request, progress: Callable[[str], None], cutoff_s: float) -> tuple[Plan, Graph]:
    require_known(model.graph, request.rules)
    why_not = _why_one_batch(model, request, progress)
    if model.graph_at is None or why_not:
        return _with_one_batch(model, request, why_not, progress), model.graph
    of = network(model.graph, model.graph_at)
    found = best_plan(of, request, progress, cutoff_s)
    graph = separated(of.graph_at(request.global_batch_size // found.micro_batch_num))
    if model.captured is not None and found.pipeline is not None:
        model.captured.require_unstaged()
        progress("graph of a micro-batch")
        made = model.captured.at(request.global_batch_size // found.micro_batch_num)
        if made.hash != graph.hash:  # MindSpore makes something else of a batch so small
            found, graph = fixed_pipeline(made, request, found.pipeline_stages, found.micro_batch_num), made
    try:
        require_slices_as_they_come(graph, found.whole, request.rules)
    except InvalidStrategyError as error:
        if found.pipeline is None or not request.limits.allow(1, 1):
            raise
        return _with_one_batch(model, request, str(error), progress), model.graph
    whole = of.graph_at(request.global_batch_size) if model.captured is None else model.graph
    return with_loss(found, graph, whole, request.rules), graph


def with_loss(plan: Plan, graph: Graph, whole: Graph, rules: Mapping[str, Rule] | None = None) -> Plan:
    """`plan` with what its micro-batches make of the loss; `graph` is that of one of them, `whole` that of the batch."""
    return plan if plan.pipeline is None else replace(plan, loss=loss_of(factors_of_loss(graph, whole, rules)))


def _why_one_batch(model: Model, request: Request, progress: Callable[[str], None]) -> str:
    """What keeps a network that was captured from being planned in micro-batches, if anything does."""
    if model.captured is None:
        return ""
    if not request.limits.allows_micro_batches:
        return "micro_batch_num=1 is asked for"
    if request.device_num == 1 or model.global_batch_size == 1:
        return "there is one device" if request.device_num == 1 else "there is one sample"
    require_possible(merge_period(model.graph), request)
    progress("graph of another batch")
    try:
        scaling = model.captured.scaling()
        scaling.at(1)  # so at every other one too
    except (InputError, CompilerError) as error:
        return str(error)
    smaller, larger = sorted((scaling.graph, scaling.other), key=lambda graph: graph.inputs[0][1].shape)
    if factors_of_loss(smaller, larger, request.rules):
        return ""
    return where_samples_meet(scaling.graph, scaling.other, request.rules)


def _with_one_batch(model: Model, request: Request, why_not: str, progress: Callable[[str], None]) -> Plan:
    if why_not and not request.limits.allow(1, 1):
        raise InputError(f"{model.name} has one batch, and so one stage: {why_not}")
    if request.global_batch_size != model.global_batch_size:
        raise InputError(f"{model.name} was captured at {model.global_batch_size} samples: {why_not or 'give so many'}")
    found = planned_on_one_stage(model.graph, request, progress)
    require_slices_as_they_come(model.graph, found.stage, request.rules)
    method = f"{found.search.method}; one batch: {why_not}" if why_not else found.search.method
    return replace(found, search=replace(found.search, method=method))


def by_hand_of(plan: Plan, graph: Graph) -> dict[str, StagePlan]:
    """Megatron's strategies for the network of `plan`, of one stage, whose graph is `graph`; none where it is not of the zoo."""
    if "model" not in plan.source:
        return {}
    model = Model(plan.model, graph, plan.global_batch_size, plan.seq_length, plan.source)
    return model.by_hand(plan.stage.settings)


def replanner(plan: Plan, graph: Graph) -> Callable[[Limits, int], Plan]:
    """The best plan within other limits and so many bytes of a device, for the network of `plan`, whose graph is `graph`.

    What exists as it is keeps its stages and micro-batches: InputError for other ones, where the plan's source says another
    network by now, and for a factory of a plan that is not trusted.
    """
    require_trusted(plan)
    name = next((plan.source[key] for key in ("factory", "model", "network") if key in plan.source), None)
    if name is not None and is_factory(name) is not ("factory" in plan.source):
        raise InputError(f"the plan's source {dict(plan.source)} is no model of the zoo, and no factory: plan again")
    model = None
    if name is not None:
        options = zoo_options(plan.source)
        sizes = {"batch_size": plan.global_batch_size // plan.micro_batch_num, "seq_length": plan.seq_length}
        for size, number in sizes.items():
            if (said := options.pop(size, number)) != number:
                raise InputError(
                    f"the plan's source says {size} {said}, the plan {number}: one was changed; plan again"
                )
        replaces = plan.source.get("replace_shard") == "True"
        length = None if is_factory(name) else plan.seq_length  # what a factory makes is compared below
        model = resolve(name, plan.global_batch_size, length, options, replaces)
        _require_as_planned(model, plan, graph)
    else:
        batch, tokens = batch_and_sequence(graph)
        if batch != plan.global_batch_size // plan.micro_batch_num or tokens not in (1, plan.seq_length):
            raise InputError(
                f"the plan says {plan.global_batch_size} samples of {plan.seq_length} in {plan.micro_batch_num} micro-batches,"
                f" its graph has {batch} of {tokens}: one of them was changed; plan again"
            )

    def replanned(limits: Limits, limit_B: int) -> Plan:
        request = Request(
            plan.planned_for, plan.device_num, plan.global_batch_size, plan.seq_length, limit_B, plan.model,
            plan.source, limits,
        )  # fmt: skip
        if model is not None:
            return planned(model, request)[0]
        if plan.pipeline is None:
            return planned_on_one_stage(graph, request)
        return fixed_pipeline(graph, request, plan.pipeline_stages, plan.micro_batch_num)

    return replanned


def _require_as_planned(model: Model, plan: Plan, graph: Graph) -> None:
    """InputError if `model`, which was built again, is not the network of `plan`; its `graph` tells what differs."""
    batch = plan.global_batch_size // plan.micro_batch_num
    if plan.pipeline is None or model.graph_at is None:
        built = model.graph
    else:
        built = model.captured.at(batch) if model.captured is not None else model.graph_at(batch, None)
    check(plan, built, graph)


_KEPT_OPTIONS = ("experts", "load_imbalance", "token_groups", "dimensions", "lora")


def asked(options: Mapping[str, Any]) -> Model:
    """The model that the options of a command ask for, by their names; as `resolve`."""
    of_zoo = {
        "num_layers": options["num_layers"], "attention": options["attention"], "compute_dtype": options["dtype"],
        "experts": options["experts"], "load_imbalance": options["load_imbalance"],
        "token_groups": options["token_groups"], "lora": options["lora"],
    }  # fmt: skip
    return resolve(
        options["model"],
        global_batch_size=options["global_batch_size"],
        seq_length=options["seq_length"],
        options={name: value for name, value in of_zoo.items() if value is not None},
        replace_shard=options.get("replace_shard", False),
        dims=[f"{key}={value}" for key, value in dim.items()] if isinstance(dim := options["dim"], dict) else dim,
        approximate=options["approximate"],
    )


def _described(
    file: Path,
    batch_size: int | None,
    seq_length: int | None,
    options: dict[str, Any],
    dims: Sequence[str],
    approximate: bool,
) -> Model:
    """The network of a config.json; its plan keeps the dims, so that it needs the file no more."""
    from model_zoo.config_json import read
    from model_zoo.described import text_of

    found = read(file, dims, seq_length, approximate)
    options["dimensions"] = text_of(found.config)
    return _zoo(found.config.name, batch_size, seq_length or found.config.seq_length, options, found.notes)


def _zoo(
    name: str, batch_size: int | None, seq_length: int | None, options: dict[str, Any], notes: tuple[str, ...] = ()
) -> Model:
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
    source |= {option: str(options[option]) for option in _KEPT_OPTIONS if option in options}
    source |= {"notes": "; ".join(notes)} if notes else {}

    @cache
    @no_garbage_collection()
    def graph_at(batch: int, layers: int | None) -> Graph:
        first = config if layers is None else config.with_layers(range(min(layers, config.num_layers)))
        return build_graph(replace(first, batch_size=batch))

    other = None
    if config.experts is not None and "experts" not in options:
        other = partial(_zoo, name, None, seq_length, {**options, "experts": "by_sample"}, notes)
    graph = graph_at(config.batch_size, None)
    return Model(name, graph, config.batch_size, config.seq_length, source, graph_at, None, config, other, notes)


def _captured(
    name: str, batch_size: int | None, seq_length: int | None, options: dict[str, Any], dims: Sequence[str]
) -> Model:
    """A network of the zoo that MindSpore captures; `dims` are other sizes, SIZE=NUMBER."""
    from model_zoo.captured import CAPTURED, changed_sizes

    given = {"seq_length": seq_length} if seq_length is not None else {}
    sizes = {key.strip(): value.strip() for key, _, value in (dim.partition("=") for dim in dims)}
    source = {"network": name, **changed_sizes(name, {**options, **given, **sizes})}
    model = _factory(name, source, batch_size, None)
    tokens = source.get("seq_length", CAPTURED[name].sizes.get("seq_length", model.seq_length))
    return replace(model, seq_length=int(tokens))


def _factory(name: str, source: dict[str, str], batch_size: int | None, seq_length: int | None) -> Model:
    """The network of a factory at a batch, which MindSpore captures; at others it is inferred from two captures."""
    from ms_symtensor.bridge.apply.apply import require_unplanned
    from ms_symtensor.bridge.apply.load_network import load_network
    from ms_symtensor.bridge.apply.pipeline_network import at_batch, batch_of, require_unstaged
    from ms_symtensor.bridge.capture.capture import capture
    from ms_symtensor.bridge.capture.scopes import fresh_scopes

    if batch_size is not None and batch_size < 1:
        raise InputError(f"--global-batch-size is {batch_size}: give a positive number of samples")
    cell, inputs = load_network(source)
    require_unplanned(cell)
    batch = batch_size or batch_of(inputs)

    @cache
    def captured_at(batch: int) -> Graph:
        with fresh_scopes(cell):
            return capture(cell, *at_batch(inputs, batch))

    @cache
    def scaling() -> Scaling:
        other = next((batch // n for n in range(2, batch + 1) if batch % n == 0), 2)
        return Scaling(captured_at(batch), batch, captured_at(other), other)

    graph = captured_at(batch)
    sequence = batch_and_sequence(graph)[1]
    _require_size(name, "seq-length", seq_length, sequence)
    return Model(
        name.rpartition("/")[2],
        graph,
        batch,
        sequence,
        source | {"batch_size": str(batch)},
        lambda batch, _: scaling().at(batch),
        Captured(captured_at, scaling, lambda: require_unstaged(cell)),
    )


def _require_size(name: str, option: str, wanted: int | None, found: int) -> None:
    """InputError for another size than a network that exists has."""
    if wanted is not None and wanted != found:
        raise InputError(
            f"--{option} {wanted} does not fit {name}, whose inputs have {found}: leave it out, or build it so"
        )


def _absolute(place: str) -> str:
    path, _, function = place.rpartition(":")
    return f"{os.path.realpath(path)}:{function}"
