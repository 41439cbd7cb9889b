"""`symtensor serve`: strategy, batch and instances that serve a network fastest."""

import argparse

from ms_symtensor.commands import options

TEXT = "strategy, batch and instances that give most tokens a second and device within limits of latency"
EXAMPLES = (
    "symtensor serve llama3_70b --device-num 8 --input-tokens 3500 --output-tokens 1500 --ttft 2s --tpot 50ms",
    "symtensor serve deepseek_v3 --cluster cloudmatrix384 --device-num 384 --weights int8 --input-tokens 4096"
    " --output-tokens 1024 --tpot 50ms --out serve/deepseek",
    "symtensor serve qwen3_32b --device-num 8 --input-tokens 512-8192 --output-tokens 500 --fix decode.tp=4",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("model", metavar="MODEL", help="a name of the model zoo, or a config.json")
    options.add_description(command)
    command.add_argument("--cluster", default=options.CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    command.add_argument("--device-num", type=int, required=True, help="number of NPUs")
    options.add_memory(command)
    command.add_argument(
        "--input-tokens", required=True, metavar="N|A-B", help="of a prompt; A-B: lengths are spread evenly between"
    )
    command.add_argument("--output-tokens", type=int, required=True, metavar="N", help="generated for each prompt")
    command.add_argument(
        "--ttft", metavar="2s", help="the most time to the first token, with no queue before it (s or ms)"
    )
    command.add_argument("--tpot", metavar="50ms", help="the most time per token after it, on average (s or ms)")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--colocated", action="store_true", help="prefill and decode on the same instances only")
    mode.add_argument("--disaggregated", action="store_true", help="on instances of their own only")
    mode.add_argument(
        "--turns", action="store_true", help="in turns on the same devices, each under its own strategy (Seesaw)"
    )
    mode.add_argument("--both", action="store_true", help="whichever is faster (default)")
    command.add_argument(
        "--weights",
        choices=("bfloat16", "int8", "int4"),
        default="bfloat16",
        help="type of linear layers (%(default)s)",
    )
    command.add_argument(
        "--cache", choices=("bfloat16", "int8"), default="bfloat16", help="type of keys and values (%(default)s)"
    )
    pinned = "tp, dp, pp, ep, requests (at once of a dp rank), tokens (of a prefill pass); decode.tp=4"
    options.add_fix(command, pinned, "NAME=N")
    command.add_argument("--top", type=int, metavar="K", help="show the best K ways to lay out the step: deployments")
    command.add_argument(
        "--why-not",
        metavar="tp=8,decode.dp=4",
        help="why the step is not laid out so: the best deployment with these values beside the best",
    )
    options.add_out(command, ": report, JSON, engine commands, plans of the phases")
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from dataclasses import replace
    from time import perf_counter

    from ms_symtensor.arguments import memory_limit_B
    from ms_symtensor.commands.shared import cluster_of, config_named, require_positive, show_found
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.serve_report import serve_json, serve_text, why_not_text, write_serve
    from ms_symtensor.report.text import numbered, seconds
    from ms_symtensor.serving.deployment import MIXED, SPLIT, TURNS
    from ms_symtensor.serving.plans import phase_plans, why_no_plans
    from ms_symtensor.serving.request import Request, fixed_of, seconds_of, tokens_of
    from ms_symtensor.serving.search import search
    from ms_symtensor.streams import notice

    started = perf_counter()
    top = 1 if chosen.top is None else chosen.top
    for option, number in (
        ("--device-num", chosen.device_num),
        ("--output-tokens", chosen.output_tokens),
        ("--top", top),
    ):
        require_positive(option, number)
    cluster = cluster_of(chosen.cluster)
    request = Request(
        config_named(chosen.model, chosen.dim, chosen.approximate),
        cluster,
        chosen.device_num,
        tokens_of(chosen.input_tokens, chosen.output_tokens),
        memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin),
        seconds_of("--ttft", chosen.ttft),
        seconds_of("--tpot", chosen.tpot),
        chosen.weights,
        chosen.cache,
        fixed_of(chosen.fix),
    )
    asked = {MIXED: chosen.colocated, SPLIT: chosen.disaggregated, TURNS: chosen.turns}
    modes = tuple(mode for mode, only in asked.items() if only) or (MIXED, SPLIT)
    with progress() as step:
        step("deployments")
        found = search(request, modes, top)
    took_s = perf_counter() - started
    text, data = serve_text(request, found), serve_json(request, found, took_s)
    if chosen.why_not is not None:
        pinned = fixed_of(chosen.why_not.split(","), "--why-not")
        both = {phase: {**request.fixed[phase], **pinned[phase]} for phase in pinned}
        other = search(replace(request, fixed=both), modes)
        text += f"\n\n{why_not_text(chosen.why_not, found.best, other.best)}"
        data["why_not"] = serve_json(request, other, 0.0)
    if chosen.out is not None:
        refused = why_no_plans(request, found.best)
        with progress() as step:
            step("plans of the phases")
            plans = () if refused else phase_plans(request, found, took_s)
        data |= {"plans_refused": refused} if refused else {}
        written = write_serve(chosen.out, request, found.best, data, text, plans)
        if refused:
            notice(f"no plans to verify: {refused}")
        text += f"\n\nWritten to {chosen.out}: {numbered(written)}"
    show_found(chosen, data, f"{text}\n\nSearched in {seconds(took_s)}")
    return 0
