"""Options that several commands take, and the values they allow.

Nothing here imports what plans: --help and mistakes are told at once.
"""

import argparse
from pathlib import Path

from ms_symtensor.errors import InputError

CLUSTER = "atlas_800t_a2"
RUNTIMES = tuple(sorted(file.stem for file in (Path(__file__).parents[1] / "cost" / "runtimes").glob("*.yaml")))
HIDEABLE = ("gradients", "weights", "tensor", "expert", "point_to_point")
PINNED = (
    "pipeline_stages", "micro_batch_num", "pp_interleave_num", "data_parallel", "model_parallel", "sequence_parallel",
    "context_parallel", "expert_parallel", "optimizer_level", "optimizer_weight_shard_size", "recompute", "swap_optimizer",
    "pipeline_scheduler",
)  # fmt: skip

_PINNED = (
    f"{', '.join(PINNED)} (recompute: none, full, select, or a number of blocks; pipeline_scheduler:"
    " 1f1b, gpipe, seqpipe, seqvpp, seqsmartvpp; swap_optimizer: yes, the optimizer is offloaded to host memory, --max"
    " swap_optimizer=yes: where that helps); overlap.NAME=yes: MindSpore is told to overlap; or operators by name:"
    " '*.query.matmul=(8,1)(1,1)' as shard() takes it, '*.query.matmul=m/4,n/2' as the report prints it, '*/attention/*=dp,tp':"
    " the first dim of the output cut data_parallel ways, the others model_parallel ways"
)


def place(text: str) -> str:
    """A path or file.py:factory that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: give a path; a variable of the shell may be unset")
    return text


def path(text: str) -> Path:
    """A path that is not empty."""
    return Path(place(text))


def gibibytes(text: str) -> float:
    """A number of GiB, without a unit."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text}: give a number of GiB, such as 60") from None


def add_verbose(command: argparse.ArgumentParser, default: int | str) -> None:
    """-v."""
    command.add_argument(
        "-v", "--verbose", action="count", default=default, help="log what is done to standard error; -vv: more"
    )


def add_memory(command: argparse.ArgumentParser, margin: str = "5%%, of a given limit nothing") -> None:
    """What a device may hold; `margin` of it is kept free by default."""
    command.add_argument("--memory-limit", type=gibibytes, metavar="GiB", help="of a device (default: the cluster's)")
    command.add_argument(
        "--memory-margin",
        metavar="10%",
        help=f"of that, kept free: a share, or GiB (default: {margin})",
    )


def add_runtime(command: argparse.ArgumentParser) -> None:
    """Whose habits the price assumes."""
    command.add_argument("--runtime", metavar="NAME", help=f"whose habits the price assumes: {', '.join(RUNTIMES)}")
    command.add_argument(
        "--hide", metavar="PARTS", default="", help=f"communication beside computation: {', '.join(HIDEABLE)}, or none"
    )


def add_target(command: argparse.ArgumentParser, names: tuple[str, ...], text: str) -> None:
    """The software that runs it, one of `names`; `text`: what that means for the command."""
    command.add_argument(
        "--target",
        metavar="NAME",
        default=names[0],
        help=f"the software that runs it: {', '.join(names)}; {text} (default: %(default)s)",
    )


def require_read(chosen: argparse.Namespace, *read: str) -> None:
    """InputError for an option that is given, and that --target `chosen.target` does not read."""
    for name, value in vars(chosen).items():
        is_given = value is not None and value is not False and value not in ("", [], CLUSTER)
        if is_given and name not in ("command", "verbose", "target", "json", *read):
            raise InputError(f"--{name.replace('_', '-')} is not for --target {chosen.target}: leave it out")


def add_table(command: argparse.ArgumentParser, names_chips: bool = False) -> None:
    """A table of measurements and where they were taken; what it `names_chips` of needs no cluster beside it."""
    command.add_argument(
        "table", metavar="DATA.csv", type=path, help="measurements in one of the forms of docs/results/validation.md"
    )
    where = "a known cluster, or a file: where they were measured"
    more = "; times of kernels and collectives: of rows that name no chip" if names_chips else ""
    command.add_argument("--cluster", required=not names_chips, help=where + more)


def add_model(command: argparse.ArgumentParser, number: str | None = None) -> None:
    """The network and its dims."""
    text = "a name of the model zoo, a Hugging Face config.json or its folder, a saved graph, or file.py:factory"
    command.add_argument("model", metavar="MODEL", nargs=number, help=text)
    command.add_argument(
        "--global-batch-size", type=int, metavar="N", help="samples of a step on all devices (zoo: 16)"
    )
    command.add_argument("--seq-length", type=int, metavar="N", help="tokens of a sample (zoo: the model's)")
    command.add_argument("--num-layers", type=int, metavar="N", help="zoo: other than published")
    command.add_argument("--attention", choices=("flash", "self"), help="zoo: flash by default")
    command.add_argument(
        "--experts",
        choices=("capacity", "by_sample", "dropless"),
        help="zoo: the faster of capacity and by_sample by default; by_sample in uniform layouts",
    )
    command.add_argument(
        "--load-imbalance", type=float, metavar="X", help="zoo: room of an expert, over its even share of tokens (1.1)"
    )
    command.add_argument(
        "--token-groups", type=int, metavar="N", help="zoo: a sample's tokens are routed in N groups (1)"
    )
    command.add_argument("--lora", type=int, metavar="RANK", help="zoo: train adapters of this rank alone")
    add_description(command)
    command.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="zoo: of the computation")


def add_description(command: argparse.ArgumentParser) -> None:
    """How a config.json is taken."""
    command.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="config.json: another value of a key of it; a captured network: another size",
    )
    command.add_argument(
        "--approximate",
        action="store_true",
        help="config.json: take what cannot be planned for the nearest that takes no less time, and say so",
    )


def add_request(command: argparse.ArgumentParser) -> None:
    """The cluster, its memory, and what is pinned."""
    command.add_argument("--cluster", default=CLUSTER, help="a known cluster, or a file (default: %(default)s)")
    add_memory(command)
    add_pins(command)
    command.add_argument(
        "--replace-shard",
        action="store_true",
        help="file.py:factory: without the shard() and recompute() calls and the stages that are written there",
    )


def add_pins(command: argparse.ArgumentParser) -> None:
    """What is pinned or bounded."""
    add_fix(command, _PINNED)
    command.add_argument("--max", action="append", default=[], metavar="NAME=N", help="bound one of these from above")


def add_fix(command: argparse.ArgumentParser, what: str, pin: str = "NAME=VALUE") -> None:
    """What is pinned, as a plan reports it."""
    command.add_argument("--fix", action="append", default=[], metavar=pin, help=f"pin what a plan reports: {what}")


def add_out(command: argparse.ArgumentParser, what: str, metavar: str = "DIR", required: bool = False) -> None:
    """Where `what` is written."""
    command.add_argument("--out", type=path, metavar=metavar, required=required, help=f"where to write{what}")


def add_rank(command: argparse.ArgumentParser) -> None:
    """Whose program is compared."""
    command.add_argument(
        "--rank",
        type=int,
        metavar="R",
        help="whose program is compared (default: 0; with pipeline stages, one of each)",
    )


def add_folder(command: argparse.ArgumentParser) -> None:
    """How a plan's folder is taken."""
    command.add_argument(
        "--edited", action="store_true", help="go on with a plan whose files are not as they were written"
    )
    command.add_argument(
        "--trust",
        action="store_true",
        help="run the file.py:factory that the plan names, though this user's own plan did not make it (SYMTENSOR_TRUST=1)",
    )


def add_json(command: argparse.ArgumentParser) -> None:
    """--json."""
    command.add_argument("--json", action="store_true", help="print JSON")
