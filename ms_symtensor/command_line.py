"""What the command line of `symtensor` takes: every command, its options, their help and examples.

It imports nothing that plans, so that --help and mistakes are told at once.
"""

import argparse
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from ms_symtensor.errors import InputError
from ms_symtensor.streams import show
from ms_symtensor.version import VERSION

CLUSTER = "atlas_800t_a2"
RUNTIMES = tuple(sorted(file.stem for file in (Path(__file__).parent / "cost" / "runtimes").glob("*.yaml")))
HIDEABLE = ("gradients", "weights", "tensor", "expert", "point_to_point")
PINNED = (
    "pipeline_stages", "micro_batch_num", "pp_interleave_num", "data_parallel", "model_parallel", "sequence_parallel",
    "context_parallel", "expert_parallel", "optimizer_level", "optimizer_weight_shard_size", "recompute", "swap_optimizer",
)  # fmt: skip

_FIX_HELP = (
    f"pin what a plan reports: {', '.join(PINNED)} (recompute: none, full, select, or a number of blocks; swap_optimizer: yes,"
    " the optimizer is offloaded to host memory, --max swap_optimizer=yes: where that helps); or operators by name:"
    " '*.query.matmul=(8,1)(1,1)' as shard() takes it, '*.query.matmul=m/4,n/2' as the report prints it, '*/attention/*=dp,tp':"
    " the first dim of the output cut data_parallel ways, the others model_parallel ways"
)

EXIT_CODES = """exit codes:
  0  done; of verify, prove and audit: everything agrees
  1  a check failed: something differs
  2  a mistake in the request, nothing that fits, or a file that cannot be read or written
  130, 141  interrupted; whoever read the output has gone"""

EXAMPLES = {
    "plan": (
        "symtensor plan llama2_7b --device-num 8 --global-batch-size 16 --out plan/llama2_7b",
        "symtensor plan llama3_70b --device-num 64 --fix pipeline_stages=4 --max recompute=8 --out plan/pinned",
        "symtensor plan net.py:factory --device-num 8 --cluster mine.yaml --json --out plan/mine",
    ),
    "fit": (
        "symtensor fit llama2_7b --device-num 8 --most global_batch_size --fix micro_batch_num=1",
        "symtensor fit llama2_70b --least device_num --global-batch-size 64 --out plan/fewest",
    ),
    "estimate": (
        "symtensor estimate llama2_7b --device-num 8 --fix data_parallel=2 --fix model_parallel=4",
        "symtensor estimate --plan plan/llama2_7b",
        "symtensor estimate --from requests.json --json",
    ),
    "verify": ("symtensor verify plan/llama2_7b", "symtensor verify plan/llama2_7b --blocks 2 --json"),
    "prove": (
        "symtensor prove plan/llama2_7b --steps 2",
        "symtensor prove net.py:factory --device-num 4",
    ),
    "audit": ("symtensor audit net.py:factory --device-num 8",),
    "explain": (
        "symtensor explain plan/llama2_7b --operator query.matmul",
        "symtensor explain plan/llama2_7b --why-not dp=4,tp=2",
    ),
    "capture": ("symtensor capture net.py:factory --out graph.json",),
    "validate": ("symtensor validate measured.csv --cluster a100_80g --calibrate 8 --seed 0",),
    "calibrate": ("symtensor calibrate measured.csv --cluster atlas_800t_a2 --out mine.yaml",),
    "compare": (
        "symtensor compare plan/llama2_7b output/msrun_log",
        "symtensor compare plan/llama2_7b worker_0.log profile --rows measured.csv",
    ),
}


class _Parser(argparse.ArgumentParser):
    """Mistakes become InputError, so that they look like all others."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")

    def print_help(self, file: object = None) -> None:
        show(self.format_help().rstrip())


def _place(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: give a path; a variable of the shell may be unset")
    return text


def _path(text: str) -> Path:
    return Path(_place(text))


class _Version(argparse.Action):
    """--version: tell it and end."""

    def __call__(self, *_: object) -> NoReturn:
        show(f"symtensor {VERSION}")
        raise SystemExit(0)


class _Completion(argparse.Action):
    """--print-completion SHELL: tell the shell's own script and end. InputError without shtab."""

    def __call__(self, command_line: argparse.ArgumentParser, _: object, shell: object, __: object = None) -> NoReturn:
        if find_spec("shtab") is None:
            raise InputError("--print-completion needs shtab: pip install 'ms_symtensor[completion]'")
        import shtab

        show(shtab.complete(command_line, str(shell)).rstrip())
        raise SystemExit(0)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What a command line asks for; `command` is the command's name. InputError for what it does not take."""
    return parser().parse_args(arguments)


def commands_of(command_line: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of `symtensor`, each with its parser."""
    for action in command_line._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def parser() -> argparse.ArgumentParser:
    """What `symtensor` takes."""
    command_line = _Parser(
        prog="symtensor",
        description="Plans the parallel training of large models with MindSpore, and has MindSpore's compiler check it.",
        epilog=f"examples:\n  {EXAMPLES['plan'][0]}\n  symtensor verify plan/llama2_7b\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_argument("--version", nargs=0, action=_Version, help="show the version and end")
    command_line.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "tcsh"),
        action=_Completion,
        help="show a shell's script for completion and end (needs shtab)",
    )
    _add_verbose(command_line, 0)
    choices = command_line.add_subparsers(required=True, metavar="command", dest="command", parser_class=_Parser)

    plan = _add_command(choices, "plan", "find a strategy and write it in every form that MindSpore reads")
    _add_model(plan)
    plan.add_argument("--device-num", type=int, required=True, help="number of NPUs")
    _add_request(plan)
    _add_runtime(plan)
    plan.add_argument(
        "--layouts",
        choices=("free", "uniform"),
        default="free",
        help="uniform: all blocks alike, as Megatron and MindFormers run them (zoo; default: %(default)s)",
    )
    plan.add_argument(
        "--exact-loss",
        action="store_true",
        help="refuse plans whose micro-batches train another loss than the whole batch",
    )
    plan.add_argument("--top", type=int, metavar="K", help="show the best K ways to lay out the step")
    plan.add_argument("--pareto", action="store_true", help="show the fastest plans within less and less memory, too")
    plan.add_argument("--out", type=_path, required=True, metavar="DIR", help="where to write: the plan's folder")
    _add_json(plan)

    fit = _add_command(choices, "fit", "the largest batch or the longest sequence that fits, or the fewest devices")
    _add_model(fit)
    question = fit.add_mutually_exclusive_group(required=True)
    question.add_argument("--most", choices=("global_batch_size", "seq_length"), help="the largest that fits")
    question.add_argument("--least", choices=("device_num",), help="the fewest that it fits on")
    fit.add_argument("--device-num", type=int, help="number of NPUs")
    _add_request(fit)
    fit.add_argument("--up-to", type=int, metavar="N", help="the largest number that is tried (docs/howto/fit.md)")
    fit.add_argument("--out", type=_path, metavar="DIR", help="where to write: the plan at the answer, as plan does")
    _add_json(fit)

    estimate = _add_command(
        choices, "estimate", "price a configuration in uniform layouts, or a plan: nothing is searched"
    )
    _add_model(estimate, "?")
    estimate.add_argument("--cluster", help="a known cluster, or a file (default: atlas_800t_a2, or that of the plan)")
    estimate.add_argument("--device-num", type=int, help="number of NPUs")
    _add_memory(estimate)
    estimate.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="pin what a plan reports: degrees, as plan takes them",
    )
    estimate.add_argument("--plan", type=_path, metavar="DIR", help="price the layouts of this plan")
    estimate.add_argument(
        "--from",
        dest="requests",
        type=_path,
        metavar="FILE.json",
        help="price every configuration of a list: objects with model, device_num, fix and the options of this command",
    )
    _add_runtime(estimate)
    _add_folder(estimate)
    _add_json(estimate)

    verify = _add_command(choices, "verify", "have MindSpore compile a plan, and compare with the prediction")
    verify.add_argument("directory", metavar="DIR", type=_path, help="a plan's directory")
    verify.add_argument(
        "--blocks",
        type=int,
        metavar="N",
        help="zoo: compile at most N of every run of equal blocks, and few micro-batches",
    )
    _add_rank(verify)
    _add_folder(verify)
    _add_json(verify)

    prove = _add_command(
        choices, "prove", "run every rank's program here, and compare loss and gradients with one process"
    )
    prove.add_argument(
        "target",
        metavar="DIR|file.py:factory",
        type=_place,
        help="a plan's directory, or a function that returns (cell, inputs)",
    )
    prove.add_argument("--device-num", type=int, help="number of NPUs; a plan knows its own")
    prove.add_argument("--ranks", type=int, metavar="R", help="run the first R devices of a plan only")
    prove.add_argument("--steps", type=int, default=0, metavar="K", help="prove K optimizer steps too")
    prove.add_argument(
        "--time-limit", type=float, default=600.0, metavar="S", help="seconds for the processes (default: %(default)g)"
    )
    _add_folder(prove)
    _add_json(prove)

    audit = _add_command(choices, "audit", "what hand-written shard() calls cost, and whether they train what is meant")
    audit.add_argument("factory", metavar="file.py:factory", help="a function that returns (cell, inputs)")
    audit.add_argument("--device-num", type=int, required=True, help="number of NPUs")
    audit.add_argument("--cluster", default=CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    _add_rank(audit)
    _add_json(audit)

    explain = _add_command(choices, "explain", "the symbolic formulas behind a plan")
    explain.add_argument("directory", metavar="DIR", type=_path, help="a plan's directory")
    explain.add_argument("--operator", metavar="NAME", help="only this one: query.matmul, MatMul, or a full name")
    explain.add_argument("--latex", action="store_true", help="as LaTeX")
    explain.add_argument(
        "--why-not",
        metavar="dp=8,tp=8",
        help="why the step is not laid out so: the best such plan beside this one (also pp, mb, sp, cp, ep; what --fix takes)",
    )
    _add_folder(explain)

    capture = _add_command(choices, "capture", "save a network's graph, to plan where no MindSpore is installed")
    _add_model(capture)
    capture.add_argument("--out", type=_path, required=True, metavar="FILE", help="where to write: the graph")
    capture.set_defaults(replace_shard=True)  # a graph has no strategies

    validate = _add_command(
        choices, "validate", "compare predicted step times and memory with a table of measured ones"
    )
    _add_table(validate)
    validate.add_argument(
        "--calibrate", type=int, metavar="N", help="for each group first fit to N measured steps of others"
    )
    validate.add_argument("--seed", type=int, default=0, help="of the choice of these steps (default: %(default)s)")
    _add_json(validate)

    calibrate = _add_command(choices, "calibrate", "fit a cluster's uncertain constants to measured steps")
    _add_table(calibrate)
    calibrate.add_argument(
        "--out", type=_path, metavar="FILE", help="where to write: the cluster file (CLUSTER_calibrated.yaml)"
    )
    _add_json(calibrate)

    compare = _add_command(choices, "compare", "a plan beside your own run of it: step, parts of it, memory")
    compare.add_argument("directory", metavar="DIR", type=_path, help="a plan's directory")
    compare.add_argument(
        "runs",
        metavar="LOG|PROFILE",
        type=_path,
        nargs="+",
        help="training logs, folders of them, and folders of MindSpore's profiler",
    )
    compare.add_argument(
        "--profiled-steps", type=int, metavar="N", help="steps of a profile that was taken without profiler.step()"
    )
    compare.add_argument("--rows", type=_path, metavar="FILE.csv", help="add what was measured to this table")
    _add_folder(compare)
    _add_json(compare)
    return command_line


def _add_command(choices: "argparse._SubParsersAction[_Parser]", name: str, text: str) -> argparse.ArgumentParser:
    command = choices.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog="\n  ".join(("examples:", *EXAMPLES[name])),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_verbose(command, argparse.SUPPRESS)
    return command


def _add_verbose(command: argparse.ArgumentParser, default: int | str) -> None:
    command.add_argument(
        "-v", "--verbose", action="count", default=default, help="log what is done to standard error; -vv: more"
    )


def _add_memory(command: argparse.ArgumentParser) -> None:
    command.add_argument("--memory-limit", type=float, metavar="GiB", help="of a device (default: the cluster's)")
    command.add_argument(
        "--memory-margin",
        metavar="10%",
        help="of that, kept free: a share, or GiB (default: 5%%, of a given limit nothing)",
    )


def _add_runtime(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runtime", metavar="NAME", help=f"whose habits the price assumes: {', '.join(RUNTIMES)}")
    command.add_argument(
        "--hide", metavar="PARTS", default="", help=f"communication beside computation: {', '.join(HIDEABLE)}, or none"
    )


def _add_table(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "table", metavar="DATA.csv", type=_path, help="measurements in one of the forms of docs/results/validation.md"
    )
    command.add_argument("--cluster", required=True, help="a known cluster, or a file: where they were measured")


def _add_model(command: argparse.ArgumentParser, number: str | None = None) -> None:
    text = "a name of the model zoo, a saved graph, or file.py:factory"
    command.add_argument("model", metavar="MODEL", nargs=number, help=text)
    command.add_argument(
        "--global-batch-size", type=int, metavar="N", help="samples of a step on all devices (zoo: 16)"
    )
    command.add_argument("--seq-length", type=int, metavar="N", help="tokens of a sample (zoo: the model's)")
    command.add_argument("--num-layers", type=int, metavar="N", help="zoo: other than published")
    command.add_argument("--attention", choices=("flash", "self"), help="zoo: flash by default")
    command.add_argument("--experts", choices=("capacity", "dropless"), help="zoo: capacity by default")
    command.add_argument(
        "--load-imbalance", type=float, metavar="X", help="zoo: room of an expert, over its even share of tokens (1.1)"
    )
    command.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="zoo: of the computation")


def _add_request(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cluster", default=CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    _add_memory(command)
    command.add_argument("--fix", action="append", default=[], metavar="NAME=VALUE", help=_FIX_HELP)
    command.add_argument("--max", action="append", default=[], metavar="NAME=N", help="bound one of these from above")
    command.add_argument(
        "--replace-shard",
        action="store_true",
        help="file.py:factory: without the shard() and recompute() calls and the stages that are written there",
    )


def _add_rank(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rank",
        type=int,
        metavar="R",
        help="whose program is compared (default: 0; with pipeline stages, one of each)",
    )


def _add_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--edited", action="store_true", help="go on with a plan whose files are not as they were written"
    )
    command.add_argument(
        "--trust",
        action="store_true",
        help="run the file.py:factory that the plan names, though this user's own plan did not make it (SYMTENSOR_TRUST=1)",
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
