"""`symtensor reshard`: the way from one plan to another, weight by weight."""

import argparse
from pathlib import Path

from ms_symtensor.commands import options

TEXT = "the way from one plan to another: what moves, how, how long, within which memory"
EXAMPLES = (
    "symtensor reshard plan/llama2_7b plan/llama2_7b_on_16 --prove",
    "symtensor reshard plan/train plan/rollout --rollout --rollout-dtype bfloat16 --out reshard/rollout",
    "symtensor reshard --joint qwen3_30b_a3b --device-num 16 --global-batch-size 256 --input-tokens 1024 --output-tokens 2048",
)

OF_FOLDERS = (
    "phase", "prove", "rollout", "replicas", "rollout_dtype", "weights_only", "apart", "keep_ranks", "keep_source",
)  # fmt: skip
OF_JOINT = ("device_num", "global_batch_size", "input_tokens", "output_tokens", "fix")


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("source", metavar="FROM", type=options.path, help="the folder of the plan that runs now")
    command.add_argument(
        "target",
        metavar="TO",
        type=options.path,
        nargs="?",
        help="the folder of the plan that runs next, or one of serve",
    )
    joint = command.add_argument_group(
        "--joint", "both plans for a step of reinforcement learning; FROM is a MODEL then"
    )
    joint.add_argument("--joint", action="store_true", help="choose training and rollout together")
    joint.add_argument("--device-num", type=int, metavar="N", help="number of NPUs")
    joint.add_argument("--global-batch-size", type=int, metavar="N", help="samples of a step on all devices")
    joint.add_argument("--input-tokens", metavar="N|A-B", help="of a prompt; A-B: lengths are spread evenly between")
    joint.add_argument("--output-tokens", type=int, metavar="N", help="generated for each prompt")
    joint.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="NAME=N",
        help="pin what a plan reports: of training, or rollout.tp=N as serve takes it",
    )
    command.add_argument(
        "--rollout", action="store_true", help="TO generates: weights only, whole over their copies, no optimizer"
    )
    command.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="--rollout: how often TO runs (default: as often as FROM's devices allow)",
    )
    command.add_argument(
        "--rollout-dtype", choices=("bfloat16", "float16", "float32"), help="--rollout: of TO's weights"
    )
    command.add_argument("--phase", choices=("prefill", "decode"), help="TO of serve: whose instances (decode)")
    command.add_argument("--weights-only", action="store_true", help="leave the optimizer's states where they are")
    command.add_argument("--apart", action="store_true", help="TO runs on other devices, the next ones")
    command.add_argument("--keep-ranks", action="store_true", help="rank r of TO runs on device r: no alignment")
    command.add_argument("--keep-source", action="store_true", help="FROM's slices stay in device memory")
    command.add_argument("--cluster", help="a known cluster, or a file (default: that of the plans)")
    options.add_memory(command)
    command.add_argument(
        "--prove", action="store_true", help="make the moves on local processes, and compare bit by bit"
    )
    options.add_out(command, ": strategy files and moves; --joint: both plans too")
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from collections.abc import Callable, Sequence
    from functools import partial
    from typing import Any

    from ms_symtensor.arguments import memory_limit_B
    from ms_symtensor.cluster.load import load as load_cluster
    from ms_symtensor.commands.shared import folder_of, know_operators, require_positive, show_found, warned
    from ms_symtensor.errors import InputError
    from ms_symtensor.program.program import Program
    from ms_symtensor.program.stage_program import StageProgram
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.reshard_files import checkpoint_of, checkpoint_of_side, write_reshard
    from ms_symtensor.report.reshard_report import proof_text, reshard_json, reshard_text
    from ms_symtensor.report.text import numbered
    from ms_symtensor.reshard.proof import prove
    from ms_symtensor.reshard.reshard import Request, reshard
    from ms_symtensor.reshard.slices import as_rollout, side_of
    from ms_symtensor.serving import sides as serving
    from ms_symtensor.strategy.file import check, graph_in, plan_in
    from ms_symtensor.strategy.plan import Plan
    from ms_symtensor.tensor.graph import Graph

    other_way = OF_FOLDERS if chosen.joint else OF_JOINT
    given = [name for name in other_way if getattr(chosen, name) not in (None, False, [])]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} is {'for two folders' if chosen.joint else 'for --joint'}: leave it out")
    if chosen.joint:
        from ms_symtensor.commands.reshard_joint import reshard_joint

        return reshard_joint(chosen)
    if chosen.target is None:
        raise InputError("TO is missing: give the folder of the plan that runs next, or --joint")
    is_served = (chosen.target / serving.FILE).is_file()
    if chosen.phase and not is_served:
        raise InputError(f"--phase is for a folder of serve, and {chosen.target} is none: leave it out")
    generates = chosen.rollout or is_served
    if not generates and (chosen.replicas or chosen.rollout_dtype):
        option = "--replicas" if chosen.replicas else "--rollout-dtype"
        raise InputError(f"{option} is for a plan that generates: give --rollout too, or leave it out")
    require_positive("--replicas", chosen.replicas)
    has_states = not generates and not chosen.weights_only

    def read(path: Path) -> tuple[Plan, Graph, Sequence[Program | StageProgram]]:
        folder = folder_of(chosen, path)
        plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
        if graph is None:
            raise InputError(f"{path} holds no graph.json, which names the weights: plan again")
        check(plan, graph)
        know_operators(plan, graph)
        return plan, graph, programs_of(plan, graph)

    first, graph, programs = read(chosen.source)
    source = side_of(programs, has_states)
    after: Callable[[], dict[str, Any]]
    second: Plan | serving.Served
    if is_served:
        second = serving.read(chosen.target, chosen.phase or "decode")
        replicas = chosen.replicas or second.count
        target = serving.side_of_instances(second, chosen.rollout_dtype or "bfloat16", replicas)
        after = partial(checkpoint_of_side, target)
    else:
        second, other, others = read(chosen.target)
        target = side_of(others, has_states)
        if chosen.rollout:
            replicas = chosen.replicas or max(1, source.rank_num // target.rank_num)
            target = as_rollout(target, chosen.rollout_dtype, replicas)
        after = partial(checkpoint_of, second, other, others, target, has_states)
    if chosen.cluster is None and first.cluster != second.cluster:
        raise InputError(
            f"the plans are for {first.cluster} and {second.cluster}: say with --cluster what joins the devices"
        )
    cluster = warned(load_cluster(chosen.cluster) if chosen.cluster is not None else first.planned_for)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    request = Request(cluster, limit_B, chosen.apart, not chosen.keep_ranks, chosen.keep_source)
    with progress() as step:
        step("moves")
        found = reshard(source, target, request)
        if chosen.prove:
            step("proof")
        proof = prove(found) if chosen.prove else None
    data, text = reshard_json(found, first, second, proof), reshard_text(found, first)
    if chosen.out is not None:
        before = checkpoint_of(first, graph, programs, source, has_states)
        written = write_reshard(chosen.out, before, after(), data, text)
    if proof is not None:
        text += f"\n\n{proof_text(proof)}"
    if chosen.out is not None:
        text += f"\n\nWritten to {chosen.out}: {numbered(written)}"
    show_found(chosen, data, text)
    return 0 if proof is None or proof.holds else 1
