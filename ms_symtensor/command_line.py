"""What the command line of `symtensor` takes: every command, its options and their help."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from ms_symtensor.arguments import FIX_HELP
from ms_symtensor.cost.runtime import HIDEABLE, known_runtimes
from ms_symtensor.errors import InputError
from ms_symtensor.streams import show

Command = Callable[[argparse.Namespace], int]
"""Runs what was chosen, and returns the exit code."""


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


def parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """What `symtensor` takes; `run` of what it parses is one of `commands`, by name."""
    command_line = _Parser(
        prog="symtensor", description="Sharding strategies for MindSpore, checked by MindSpore's compiler"
    )
    choices = command_line.add_subparsers(required=True, metavar="command", parser_class=_Parser)

    plan = choices.add_parser("plan", help="find a strategy and write it in every form that MindSpore reads")
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
    plan.add_argument("--out", type=_path, required=True, metavar="DIR", help="where to write the plan")
    _add_json(plan)
    plan.set_defaults(run=commands["plan"])

    fit = choices.add_parser("fit", help="the largest batch or the longest sequence that fits, or the fewest devices")
    _add_model(fit)
    question = fit.add_mutually_exclusive_group(required=True)
    question.add_argument("--most", choices=("global_batch_size", "seq_length"), help="the largest that fits")
    question.add_argument("--least", choices=("device_num",), help="the fewest that it fits on")
    fit.add_argument("--device-num", type=int, help="number of NPUs")
    _add_request(fit)
    fit.add_argument("--up-to", type=int, metavar="N", help="the largest number that is tried (docs/howto/fit.md)")
    fit.add_argument("--out", type=_path, metavar="DIR", help="write the plan at the answer, as plan does")
    _add_json(fit)
    fit.set_defaults(run=commands["fit"])

    estimate = choices.add_parser(
        "estimate", help="price a configuration in uniform layouts, or a plan: nothing is searched"
    )
    _add_model(estimate, "?")
    estimate.add_argument("--cluster", help="a known cluster, or a file (default: atlas_800t_a2, or that of the plan)")
    estimate.add_argument("--device-num", type=int, help="number of NPUs")
    _add_memory(estimate)
    estimate.add_argument(
        "--fix", action="append", default=[], metavar="NAME=VALUE", help="degrees, as plan takes them"
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
    estimate.set_defaults(run=commands["estimate"])

    verify = choices.add_parser("verify", help="have MindSpore compile a plan, and compare with the prediction")
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
    verify.set_defaults(run=commands["verify"])

    prove = choices.add_parser(
        "prove", help="run every rank's program here, and compare loss and gradients with one process"
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
    prove.set_defaults(run=commands["prove"])

    audit = choices.add_parser(
        "audit", help="what hand-written shard() calls cost, and whether they train what is meant"
    )
    audit.add_argument("factory", metavar="file.py:factory", help="a function that returns (cell, inputs)")
    audit.add_argument("--device-num", type=int, required=True, help="number of NPUs")
    audit.add_argument("--cluster", default="atlas_800t_a2", help="for predicted times (default: %(default)s)")
    _add_rank(audit)
    _add_json(audit)
    audit.set_defaults(run=commands["audit"])

    explain = choices.add_parser("explain", help="the symbolic formulas behind a plan")
    explain.add_argument("directory", metavar="DIR", type=_path, help="a plan's directory")
    explain.add_argument("--operator", metavar="NAME", help="only this one: query.matmul, MatMul, or a full name")
    explain.add_argument("--latex", action="store_true", help="as LaTeX")
    explain.add_argument(
        "--why-not",
        metavar="dp=8,tp=8",
        help="why the step is not laid out so: the best such plan beside this one (also pp, mb, sp, cp, ep; what --fix takes)",
    )
    _add_folder(explain)
    explain.set_defaults(run=commands["explain"])

    capture = choices.add_parser("capture", help="save a network's graph, to plan where no MindSpore is installed")
    _add_model(capture)
    capture.add_argument("--out", type=_path, required=True, metavar="FILE", help="where to write the graph")
    capture.set_defaults(run=commands["capture"], replace_shard=True)  # a graph has no strategies

    validate = choices.add_parser(
        "validate", help="compare predicted step times and memory with a table of measured ones"
    )
    _add_table(validate)
    validate.add_argument(
        "--calibrate", type=int, metavar="N", help="for each group first fit to N measured steps of others"
    )
    validate.add_argument("--seed", type=int, default=0, help="of the choice of these steps (default: %(default)s)")
    _add_json(validate)
    validate.set_defaults(run=commands["validate"])

    calibrate = choices.add_parser("calibrate", help="fit a cluster's uncertain constants to measured steps")
    _add_table(calibrate)
    calibrate.add_argument("--out", type=_path, metavar="FILE", help="cluster file (default: CLUSTER_calibrated.yaml)")
    _add_json(calibrate)
    calibrate.set_defaults(run=commands["calibrate"])

    compare = choices.add_parser("compare", help="a plan beside your own run of it: step, parts of it, memory")
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
    compare.set_defaults(run=commands["compare"])
    return command_line


def _add_memory(command: argparse.ArgumentParser) -> None:
    command.add_argument("--memory-limit", type=float, metavar="GiB", help="of a device (default: the cluster's)")
    command.add_argument(
        "--memory-margin",
        metavar="10%",
        help="of that, kept free: a share, or GiB (default: 5%%, of a given limit nothing)",
    )


def _add_runtime(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--runtime", metavar="NAME", help=f"whose habits the price assumes: {', '.join(known_runtimes())}"
    )
    command.add_argument(
        "--hide", metavar="PARTS", default="", help=f"communication beside computation: {', '.join(HIDEABLE)}, or none"
    )


def _add_table(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "table", metavar="DATA.csv", type=_path, help="measurements in one of the forms of docs/results/validation.md"
    )
    command.add_argument("--cluster", required=True, help="where they were measured: a known cluster, or a file")


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
    command.add_argument("--cluster", default="atlas_800t_a2", help="a known cluster, or a file (default: %(default)s)")
    _add_memory(command)
    command.add_argument("--fix", action="append", default=[], metavar="NAME=VALUE", help=FIX_HELP)
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
