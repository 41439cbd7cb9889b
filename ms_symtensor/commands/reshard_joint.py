"""`symtensor reshard --joint`: training and rollout plans for a step of reinforcement learning."""

import argparse

from ms_symtensor.errors import InputError

ROLLOUT = "rollout."


def reshard_joint(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from dataclasses import replace

    from ms_symtensor.arguments import limits, memory_limit_B
    from ms_symtensor.commands.options import CLUSTER
    from ms_symtensor.commands.shared import cluster_of, config_named, require_folder, require_positive, show_found
    from ms_symtensor.joint import joint
    from ms_symtensor.models import resolve, with_loss
    from ms_symtensor.report.joint_report import joint_json, joint_text, write_joint
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.text import numbered
    from ms_symtensor.search.constraints.request import Request as PlanRequest
    from ms_symtensor.search.possible import require_numbers
    from ms_symtensor.serving.request import Request, fixed_of, tokens_of
    from ms_symtensor.targets.exporter import Uniform
    from ms_symtensor.uniform.estimate import estimate

    needed = {
        "--device-num": chosen.device_num, "--global-batch-size": chosen.global_batch_size,
        "--output-tokens": chosen.output_tokens, "--input-tokens": chosen.input_tokens,
    }  # fmt: skip
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise InputError(f"--joint takes {', '.join(needed)}: give {', '.join(missing)}")
    for name in list(needed)[:3]:
        require_positive(name, needed[name])
    if chosen.target is not None:
        raise InputError(f"--joint takes one MODEL, and chooses both plans: leave {chosen.target} out")
    if chosen.out is not None:
        require_folder(chosen.out)
    cluster = cluster_of(chosen.cluster or CLUSTER)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    tokens, samples = tokens_of(chosen.input_tokens, chosen.output_tokens), chosen.global_batch_size
    rollout = [text.removeprefix(ROLLOUT) for text in chosen.fix if text.startswith(ROLLOUT)]
    wanted = limits([text for text in chosen.fix if not text.startswith(ROLLOUT)], ["context_parallel=1"])
    require_numbers(cluster, chosen.device_num, wanted, samples)
    config = config_named(str(chosen.source), (), False)
    request = Request(config, cluster, chosen.device_num, tokens, limit_B, fixed=fixed_of(rollout))
    by_sample = config.experts and replace(config.experts, by_sample=True)
    trained = replace(config, batch_size=samples, seq_length=tokens.whole, experts=by_sample)
    asked = PlanRequest(cluster, chosen.device_num, samples, tokens.whole, limit_B, config.name, limits=wanted)
    with progress() as step:
        step("plans of training and rollout")
        found = joint(request, samples, trained, asked)
    data, text = joint_json(request, samples, found), joint_text(request, samples, found)
    if chosen.out is not None:
        model, layout = resolve(str(chosen.source), samples, tokens.whole).by_sample, found.step.training.layout
        plan, graph = estimate(trained, layout, replace(asked, source=model.source))
        written = with_loss(plan, graph, model.graph), graph, Uniform(trained, layout)
        names = write_joint(chosen.out, request, written, found, data, text)
        text += f"\n\nWritten to {chosen.out}: {numbered(names)}"
    show_found(chosen, data, text)
    return 0
