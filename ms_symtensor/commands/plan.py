"""`symtensor plan`: find a strategy and write it in every form that MindSpore reads."""

import argparse
import shlex
from dataclasses import replace

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError
from ms_symtensor.streams import notice

TEXT = "find a strategy and write it in every form that MindSpore reads"
EXAMPLES = (
    "symtensor plan llama2_7b --device-num 8 --global-batch-size 16 --out plan/llama2_7b",
    "symtensor plan llama3_70b --device-num 64 --fix pipeline_stages=4 --max recompute=8 --out plan/pinned",
    "symtensor plan qwen3_32b --device-num 64 --target mindformers --out plan/mindformers",
    "symtensor plan deepseek_v3 --device-num 1024 --target mindformers-pynative --out plan/pynative",
    "symtensor plan qwen3_32b --device-num 64 --target mindspeed --out plan/mindspeed",
    "symtensor plan net.py:factory --device-num 8 --cluster mine.yaml --json --out plan/mine",
)
TARGETS = ("mindspore", "mindformers", "mindformers-pynative", "mindspeed")


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_model(command)
    command.add_argument("--device-num", type=int, required=True, help="number of NPUs")
    options.add_request(command)
    options.add_runtime(command)
    command.add_argument(
        "--layouts",
        choices=("free", "uniform"),
        help="uniform: all blocks alike, as Megatron and MindFormers run them (zoo; default: free, or as the target has them)",
    )
    options.add_target(command, TARGETS, "planned is what its files can say")
    command.add_argument(
        "--exact-loss",
        action="store_true",
        help="refuse plans whose micro-batches train another loss than the whole batch",
    )
    command.add_argument(
        "--certify",
        action="store_true",
        help="look at every step layout that might be faster until none can be by more than --gap, or say which may be",
    )
    command.add_argument(
        "--gap", metavar="2%", help="with --certify: how far from the optimum the plan may be (default: 2%%)"
    )
    command.add_argument("--top", type=int, metavar="K", help="show the best K ways to lay out the step")
    command.add_argument(
        "--pareto", action="store_true", help="show the fastest plans within less and less memory, too"
    )
    options.add_out(command, ": the plan's folder", required=True)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.arguments import gap, limits, memory_limit_B, with_overlap
    from ms_symtensor.commands.plan_pynative import plan_pynative
    from ms_symtensor.commands.shared import cluster_of, model_of, remembered, require_cut, require_positive, show_found
    from ms_symtensor.cost.runtime import DEFAULT, runtime_of
    from ms_symtensor.models import by_hand_of, is_captured, is_factory
    from ms_symtensor.report.alternatives import as_run, priced
    from ms_symtensor.report.considered import considered_text
    from ms_symtensor.report.emit import write_plan
    from ms_symtensor.report.pareto import pareto_json, pareto_text
    from ms_symtensor.report.plan_report import plan_json, plan_texts
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.text import numbered, seconds
    from ms_symtensor.search.constraints.floor import floor_of
    from ms_symtensor.search.constraints.request import Request
    from ms_symtensor.search.nearest import naming_what_fits
    from ms_symtensor.search.pareto import front
    from ms_symtensor.search.possible import require_numbers
    from ms_symtensor.strategy import folder as folders
    from ms_symtensor.strategy.loss import loss_note
    from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
    from ms_symtensor.strategy.record import PARETO_FILE, record
    from ms_symtensor.target_plans import in_uniform_layouts, planned_in_any_form, with_free_layouts
    from ms_symtensor.targets.registry import target_of
    from ms_symtensor.uniform.search import none_of

    target = target_of(chosen.target)
    if target.name == "mindformers-pynative":
        return plan_pynative(chosen)
    if target.rules is not None and chosen.layouts == "free":
        raise InputError(f"--target {target.name} cuts all blocks alike: leave --layouts free out")
    if target.runtime and chosen.runtime not in (None, target.runtime):
        raise InputError(f"--target {target.name} is priced as --runtime {target.runtime}: leave --runtime out")
    is_uniform = target.rules is not None or chosen.layouts == "uniform"
    if is_uniform and is_captured(chosen.model):
        raise none_of(chosen.model)
    certified_gap = gap(chosen.certify, chosen.gap)
    if certified_gap is not None and is_uniform:
        raise InputError("--certify is for free layouts: leave it out, or --layouts uniform and --target")
    cluster = cluster_of(chosen.cluster)
    require_positive("--device-num", chosen.device_num)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    require_positive("--top", chosen.top)
    if chosen.replace_shard and not is_factory(chosen.model):
        raise InputError(f"--replace-shard is for file.py:factory, not for {chosen.model}: leave it out")
    fix, hide = with_overlap(chosen.fix, chosen.hide)
    wanted = limits(fix, chosen.max)
    require_numbers(cluster, chosen.device_num, wanted, chosen.global_batch_size)
    folders.tidy(chosen.out)
    with progress() as step:
        step("graph")
        model = model_of(chosen)
        require_cut(model, chosen.device_num, wanted)
        request = Request(
            cluster, chosen.device_num, model.global_batch_size, model.seq_length,
            limit_B, model.name, model.source, wanted,
            runtime=runtime_of(chosen.runtime or target.runtime or DEFAULT, hide),
            certified_gap=certified_gap,
        )  # fmt: skip
        uniform = None
        if is_uniform:
            found, graph, uniform = in_uniform_layouts(model, request, target, step)
        else:
            found, graph = naming_what_fits(
                request,
                lambda wanted: planned_in_any_form(model, wanted, step),
                model.graph_at is not None,
                floor_of(model.graph),
            )
        if chosen.exact_loss and found.loss is MicroBatchLoss.MEAN_OF_MEANS:
            raise InputError(
                f"{model.name} in {found.micro_batch_num} micro-batches: {loss_note(found.loss)}; plan one batch (--fix"
                " micro_batch_num=1), or divide one sum by one count of the inputs"
            )

        def within(limit_B: int) -> Plan:
            less = replace(request, limit_B=limit_B)
            found = (
                in_uniform_layouts(model, less, target, step) if is_uniform else planned_in_any_form(model, less, step)
            )
            return found[0]

        step("report")
        others = (
            priced(
                graph,
                as_run(graph, by_hand_of(found, graph), request.runtime),
                cluster,
                request.runtime,
            )
            if found.pipeline is None
            else ()
        )
        programs = programs_of(found, graph)
        more = list[str]()
        data = plan_json(found, graph) | {"target": target.name}
        if target.rules is not None:
            words, data["free_layouts"] = with_free_layouts(model, request, found, step)
            more.append(words)
        if chosen.top:
            more.append(considered_text(found, chosen.top))
        if chosen.pareto:
            plans = front(found, within)
            data["pareto"] = pareto_json(plans)
            more.append(pareto_text(plans))
        step("write")
        texts = plan_texts(found, graph, programs, others, more)
        written = write_plan(found, graph, programs, texts.whole, chosen.out, uniform, target)
        if "pareto" in data and (why := record(folders.read(chosen.out), PARETO_FILE, data["pareto"])):
            notice(why)
    remembered(written.digest)
    data["not_written"] = list(written.unsaid)
    took = f"Searched in {seconds(found.search.search_time_s)}"  # not in report.txt: the same plan, the same bytes
    unsaid = "".join(f"\n  {reason}" for reason in written.unsaid)
    read = f"report.txt has operators and all collectives; a page: symtensor report {shlex.quote(str(chosen.out))}"
    show_found(
        chosen, data, f"{texts.glance}\n\n{took}\nWritten to {chosen.out}: {numbered(written.names)}{unsaid}\n{read}"
    )
    return 0
