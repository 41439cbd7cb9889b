"""A plan for people and for programs."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ms_symtensor.cost.collective_costs import CollectiveCost, collective_costs
from ms_symtensor.cost.overlap import OVERLAPS
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.report.alternatives import Alternative, alternatives_text
from ms_symtensor.report.bound_operators import bound_operators_text
from ms_symtensor.report.considered import considered_json, families_text
from ms_symtensor.report.operators import operators_text, products_text, sections
from ms_symtensor.report.rates import rates, rates_text
from ms_symtensor.report.recomputation import in_short, recomputation_text
from ms_symtensor.report.repeated_work import repeated_work_text
from ms_symtensor.report.stage_report import stages_text
from ms_symtensor.report.text import beside, percent, seconds, share, size, table
from ms_symtensor.strategy.loss import loss_note
from ms_symtensor.strategy.plan import SIZES, Plan, SearchReport
from ms_symtensor.tensor.graph import Graph

ROUNDING = 1e-9
"""A smaller gap is one of rounding."""


def plan_json(plan: Plan, graph: Graph) -> dict[str, Any]:
    """The plan's figures by the keys that `symtensor plan --json` promises; times in seconds, sizes in bytes."""
    settings, prediction = plan.settings, plan.prediction
    return {
        **{name: getattr(plan, name) for name in ("model", "cluster", "device_num", *SIZES)},
        "pipeline_stages": plan.pipeline_stages,
        "micro_batch_num": plan.micro_batch_num,
        "pp_interleave_num": plan.pp_interleave_num,
        "pipeline_scheduler": plan.pipeline_scheduler,
        **({} if plan.loss is None else {"loss": plan.loss.value}),
        **({"notes": plan.source["notes"].split("; ")} if "notes" in plan.source else {}),
        **({"overlap": overlap_json(plan)} if plan.overlap else {}),
        "fixed": dict(plan.fixed),
        "at_most": dict(plan.at_most),
        "optimizer_level": int(settings.optimizer_level),
        "optimizer_weight_shard_size": _shard_size(settings),
        "recompute": list(settings.recompute),
        **{f"recompute_{key}": named for key in ("kept", "only") if (named := _named(settings, key))},
        "step_time_s": prediction.step_time_s,
        **rates(plan, graph),
        "time_breakdown_s": dict(prediction.time_s),
        "hidden_s": dict(prediction.hidden_s),
        **({"experts_s": dict(prediction.experts_s)} if prediction.experts_s else {}),
        "peak_memory_B": prediction.peak_memory_B,
        "memory_breakdown_B": dict(prediction.memory_B),
        "memory_limit_B": prediction.limit_B,
        **({"swap_optimizer": True, "host_memory_B": prediction.host_memory_B} if settings.swap_optimizer else {}),
        "fits": prediction.fits,
        "optimality_gap": plan.search.optimality_gap,
        "search_time_s": plan.search.search_time_s,
        "candidates": plan.search.candidates,
        "considered": considered_json(plan),
    }


Programs = Sequence[Program | StageProgram]
"""Those of a plan (`programs_of`)."""

LONGEST = 5
"""So many collectives are shown at a glance."""


class PlanTexts(NamedTuple):
    """`glance`: degrees, time, memory, stages, the longest collectives, and what costs more than it need; `whole`: who is cut and
    recomputed how, all collectives, and what was searched, too.
    """

    glance: str
    whole: str


def plan_texts(
    plan: Plan, graph: Graph, programs: Programs, alternatives: tuple[Alternative, ...] = (), more: Sequence[str] = ()
) -> PlanTexts:
    """A plan for people, beside `alternatives`, strategies by hand; `more` stands at the end of both texts."""
    stages = [one for one in programs if isinstance(one, StageProgram)]
    held = f"Pipeline stages (bytes of one rank)\n{stages_text(plan, graph, stages)}" if stages else ""
    first = [headline(plan), rates_text(plan, rates(plan, graph)), times_and_memory(plan)]
    costs = collective_costs(programs[0], plan.planned_for)
    which = "blocks and micro-batches of its stage" if stages else "blocks"
    title = f"Collectives of a step on rank 0, all {which} together\n"
    by_hand = alternatives_text(plan, alternatives) if alternatives else ""
    remarks = [bound_operators_text(graph), repeated_work_text(graph, plan), by_hand]
    cut = sections(graph, plan.whole)
    longest = title + _collectives(costs, LONGEST)
    glance = [*first, held, products_text(cut), longest, *remarks, search_text(plan.search), *more]
    recomputation = plan.settings.recompute
    nodes = (n for one in programs for n in (one.micro if isinstance(one, StageProgram) else one).nodes)
    selected = any(chosen.in_part for chosen in recomputation.values())
    whole = [
        *first,
        recomputation_text(graph, recomputation, nodes) if selected else "",
        held,
        title + _collectives(costs),
        "Operators (dim/slices)\n\n" + operators_text(cut),
        *remarks,
        families_text(plan) if plan.search.considered else "",
        search_text(plan.search),
        *more,
    ]
    return PlanTexts(_joined(glance), _joined(whole))


def _joined(sections: Iterable[str]) -> str:
    return "\n\n".join(text for text in sections if text)


def times_and_memory(plan: Plan) -> str:
    """The parts of a step and of a device's memory, side by side."""
    return beside(_times(plan), _memory(plan))


def headline(plan: Plan) -> str:
    """What the plan is for, and its degrees."""
    settings = plan.settings
    level = settings.optimizer_level
    optimizer = "whole" if level is OptimizerLevel.NONE else f"level{int(level)}, over {_shard_text(settings)}"
    rows = [
        ("data_parallel", str(plan.data_parallel), "optimizer sharding", optimizer),
        ("model_parallel", str(plan.model_parallel), "recompute", in_short(settings.recompute)),
        ("sequence_parallel", "yes" if plan.sequence_parallel else "no", "pipeline_stages", _stages(plan)),
        ("context_parallel", str(plan.context_parallel), "expert_parallel", str(plan.expert_parallel)),
    ]
    own = " (own file)" if plan.own_cluster is not None else ""
    title = f"{plan.model}: {plan.device_num} devices of {plan.cluster}{own}, global batch {plan.global_batch_size}" + (
        f", sequence {plan.seq_length}" if plan.seq_length > 1 else ""
    )
    pins = [f"{name} = {value}" for name, value in plan.fixed.items()]
    pins += [f"{name} <= {value}" for name, value in plan.at_most.items()]
    loss = [f"  loss: {note}"] if (note := loss_note(plan.loss)) else []
    if plan.source.get("experts") == "by_sample":
        loss.append("  experts: by_sample, a product for every sample")
    loss += [f"  {note}" for note in plan.source.get("notes", "").split("; ") if note]
    loss += [f"  overlap: {name}, {trust}" for name, trust in overlap_json(plan).items()]
    return "\n".join([title, *(["  pinned: " + ", ".join(pins)] if pins else []), table(rows), *loss])


VERIFIABLE, PRICED = "verify compares the order that MindSpore compiles", "priced, not verifiable here"


def overlap_json(plan: Plan) -> dict[str, str]:
    """The overlap that MindSpore is told, and how far that can be checked without its devices."""
    return {name: VERIFIABLE if OVERLAPS[name].in_order and plan.pipeline is None else PRICED for name in plan.overlap}


def _stages(plan: Plan) -> str:
    if plan.pipeline is None:
        return "1"
    chunks = f" of {plan.pp_interleave_num} chunks" if plan.pp_interleave_num > 1 else ""
    order = f", {plan.pipeline_scheduler}" if plan.pipeline.needs_config else ""
    return f"{plan.pipeline_stages}{chunks}, {plan.micro_batch_num} micro-batches{order}"


def _times(plan: Plan) -> str:
    time = plan.prediction
    rows = [(name, seconds(s), share(s, time.step_time_s)) for name, s in time.time_s.items()]
    hidden = [(f"({part} hidden)", seconds(s), "") for part, s in time.hidden_s.items()]
    experts = [(f"(experts: {name})", seconds(s), share(s, time.step_time_s)) for name, s in time.experts_s.items()]
    step = ("step", seconds(time.step_time_s), "")
    return "Predicted step time\n" + table([*rows, step, *hidden, *experts], right=(1, 2))


def _memory(plan: Plan) -> str:
    memory = plan.prediction
    rows = [(name, size(b), share(b, memory.peak_memory_B)) for name, b in memory.memory_B.items()]
    verdict = "fits" if memory.fits else "does not fit"
    total = ("peak", size(memory.peak_memory_B), f"{verdict} {size(memory.limit_B)}")
    host = [("host memory", size(memory.host_memory_B), "optimizer_states")] if plan.settings.swap_optimizer else []
    usable_B = plan.planned_for.device.hbm_usable_B
    left_B = max(0, int(usable_B) - memory.peak_memory_B)
    left = ("left", size(left_B), f"{share(left_B, usable_B)} of {size(int(usable_B))}")
    return "Predicted memory of a device\n" + table([*rows, total, left, *host], right=(1,))


def _collectives(costs: tuple[CollectiveCost, ...], most: int | None = None) -> str:
    """Equal ones in a row, the longest first; behind `most` rows the others together."""
    sums: dict[tuple[str, str, int, int], tuple[int, float]] = {}
    for c in costs:
        key = c.phase, c.kind, len(c.ranks), c.size_B
        count, time_s = sums.get(key, (0, 0.0))
        sums[key] = count + c.count, time_s + c.time_s
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    rows = [
        (phase, kind, str(ranks), str(count), size(size_B), seconds(time_s))
        for (phase, kind, ranks, size_B), (count, time_s) in ordered[:most]
    ]
    if not rows:
        return "  none"
    if others := ordered[len(rows) :]:
        number, time_s = (sum(of) for of in zip(*(found for _, found in others), strict=True))
        rows.append(("others", "", "", str(number), "", seconds(time_s)))
    return table(rows, ("phase", "collective", "ranks", "count", "bytes each", "time of all"), right=(2, 3, 4, 5))


def search_text(search: SearchReport) -> str:
    """How much was searched, how, and how far from the optimum the plan can be."""
    above = (
        f"at most {percent(search.optimality_gap)} % above the optimum of" if search.optimality_gap > ROUNDING else ""
    )
    return f"Search: {search.candidates} candidates; {above or 'optimal in'} this model ({search.method})"


def _named(settings: Settings, key: str) -> dict[str, list[str]]:
    """The operators that blocks with selective recomputation keep (`kept`), or that alone are recomputed (`only`)."""
    every = {block: list(getattr(chosen, key)) for block, chosen in settings.recompute.items() if chosen.in_part}
    return {block: names for block, names in every.items() if names}


def _shard_size(settings: Settings) -> int:
    """1 where nothing is sharded; -1 means all copies of each parameter, as in MindSpore."""
    return 1 if settings.optimizer_level is OptimizerLevel.NONE else settings.optimizer_weight_shard_size


def _shard_text(settings: Settings) -> str:
    number = settings.optimizer_weight_shard_size
    return "all copies" if number == -1 else f"{number} copies"
