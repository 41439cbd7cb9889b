"""Damaged inputs: whether each is refused in one line, or accepted for what it is.

    python -m benchmarks.fuzz [--number 10000] [--first 0] [--kinds plan graph …] [--keep DIRECTORY]

Input N of a kind is made from a small good one by a generator seeded with the kind and N: the same N is the same input. Commands
run in this process, where an alarm ends them; every hundredth in a process of its own. What is wrong, and counted:

traceback   an exception that is no error of the product (in a process of its own: the word on its standard error stream)
lines       a refusal of several lines, of more than 450 characters, or beside output
hang        more than 10 s
digest      a changed file of a plan's folder that is accepted without --edited

Exit code 1 if anything is. `--keep` has the inputs that went wrong, with their commands.
"""

import argparse
import contextlib
import copy
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ms_symtensor.cli import main as symtensor

LIMIT_S = 10
"""Seconds in which a command about a small network answers, or is taken to hang."""
LINE_CHARACTERS = 450 + len("symtensor: error: ")
OWN_PROCESS_EVERY = 100
SMALL = ("--num-layers", "1", "--global-batch-size", "4", "--seq-length", "128")
ROOT = Path(__file__).parents[1]
TABLE = """\
group,hidden,layers,heads,seq_len,n_devices,dp,tp,pp,micro_batch,global_batch,step_ms,consistent
h1024-L24-a16-s1024-gbs32|n8,1024,24,16,1024,8,2,2,2,4,32,219.732754,Y
h1024-L24-a16-s1024-gbs8|n8,1024,24,16,1024,8,2,2,2,2,8,140.496352,Y
h2048-L20-a16-s1024-gbs8|n8,2048,20,16,1024,8,1,4,2,2,8,160.6027,Y
h2048-L16-a16-s1024-gbs8|n8,2048,16,16,1024,8,1,4,2,2,8,132.598596,Y
"""
"""Steps of github.com/VIA-Research/vTrain@f8dda8473a, data/ground_truth_single.csv."""
CLUSTER = """\
based_on: atlas_800t_a2
name: mine
device:
  cube_peak_FLOPs: {value: 300.0e12, range: [2.0e14, 4.0e14], source: measured here}
"""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 1 << 31, 1 << 63, 10**30, -0.0, 0.5, 1e-300, 1e308, float("inf"), float("nan"), "",
    " ", "x", "0", "a.b", "../..", "\0", "\n", "\ud800", "é…", "x" * 2000, [], {}, [[]], [None], [0], [-1], [[1, 1]], {"": 0},
)  # fmt: skip
TOKENS = (
    "", " ", "-", "--", "--help", "-1", "0", "1", "3", "7", "1e9", "99999999999999999999", "nan", "inf", "x", "=", "a=b", "*=m/2",
    "pipeline_stages=3", "micro_batch_num=7", "model_parallel=0", "*.query.matmul=(2,1)(1,1)", "recompute=select",
    "/dev/null", "/proc/self/mem", ".", "nothing.json", "nothing.py:f", "\udcff", "é…", "%", "10%", "a100_80g", "llama2_7b",
)  # fmt: skip


class Hang(BaseException):
    """The alarm: no `except Exception` on the way catches it."""


@dataclass(frozen=True)
class Case:
    """A command; `is_changed`: whether a file of the plan's folder that it reads is not as it was written."""

    arguments: tuple[str, ...]
    is_changed: bool = False


@dataclass(frozen=True)
class Good:
    """The good inputs, in `folder`: a plan, its graph, a cluster file and a table of steps."""

    folder: Path

    @property
    def plan(self) -> Path:
        return self.folder / "plan"


def good_inputs(folder: Path) -> Good:
    """Write them, however long that takes."""
    found = Good(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        code = symtensor(["plan", "gpt2_xl", *SMALL, "--device-num", "2", "--out", str(found.plan)])
    if code != 0:
        raise RuntimeError(f"the good plan ends with exit code {code}")
    (folder / "steps.csv").write_text(TABLE, encoding="utf-8")
    (folder / "mine.yaml").write_text(CLUSTER, encoding="utf-8")
    return found


def damaged_bytes(content: bytes, random_: random.Random) -> bytes:
    """`content` cut, or with bytes changed, doubled, left out or put in."""
    at = random_.randrange(len(content) + 1)
    length = random_.choice((1, 1, 2, 8, 100))
    match random_.randrange(5):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes(random_.randrange(256) for _ in range(length)) + content[at + length :]
        case 2:
            return content[:at] + content[at : at + length] * 2 + content[at + length :]
        case 3:
            return content[:at] + content[at + length :]
        case _:
            return (
                content[:at]
                + random_.choice((b"[" * 5000, b"9" * 5000, b"\xff", b"\0", b"\n", b'"', b"-"))
                + content[at:]
            )


def damaged_data(data: Any, random_: random.Random) -> Any:
    """Plain `data` with one to three values replaced, left out, doubled, renamed or exchanged."""
    changed = copy.deepcopy(data)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        places = list(_places(changed))
        if not places:
            return random_.choice(VALUES)
        holder, key = random_.choice(places)
        other, other_key = random_.choice(places)
        match random_.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random_.choice(("x", "", "name", "value", f"{key} "))] = holder.pop(key)
            case 1 | 2:
                holder[key] = copy.deepcopy(other[other_key])
            case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                number = holder[key]
                holder[key] = random_.choice((-number, number + 1, number * 2, number * 10**9, str(number)))
            case 4 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(random_.choice(VALUES))
    return changed


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


def _damaged_json(content: bytes, random_: random.Random) -> bytes:
    if random_.randrange(4) == 0:
        return damaged_bytes(content, random_)
    return json.dumps(damaged_data(json.loads(content), random_)).encode()


def plan_case(good: Good, place: Path, random_: random.Random) -> Case:
    """A plan's folder with one file damaged, or, with --edited, its plan or its graph."""
    shutil.copytree(good.plan, place / "plan")
    edited = random_.randrange(4) > 0
    names = ("plan.json", "graph.json") if edited else sorted(file.name for file in good.plan.iterdir())
    file = place / "plan" / random_.choice(names)
    before = file.read_bytes()
    damaged = _damaged_json(before, random_) if file.suffix == ".json" else damaged_bytes(before, random_)
    file.write_bytes(damaged)
    options = random_.choice(((), ("--operator", "matmul"), ("--latex",), ("--why-not", "model_parallel=1")))
    return Case(
        ("explain", str(place / "plan"), *options, *(["--edited"] if edited else [])), not edited and damaged != before
    )


def graph_case(good: Good, place: Path, random_: random.Random) -> Case:
    """A saved graph, planned."""
    (place / "graph.json").write_bytes(_damaged_json((good.plan / "graph.json").read_bytes(), random_))
    return Case(("plan", str(place / "graph.json"), "--device-num", "2", "--out", str(place / "out")))


def cluster_case(good: Good, place: Path, random_: random.Random) -> Case:
    """A cluster file, whole or based on another one."""
    from ms_symtensor.cluster.content import to_content
    from ms_symtensor.cluster.load import load

    text = (good.folder / "mine.yaml").read_bytes()
    if random_.randrange(2):
        text = yaml.safe_dump(to_content(load(random_.choice(("atlas_800t_a2", "a100_80g"))))).encode()
    damaged = damaged_data(yaml.safe_load(text), random_)
    return _for_cluster(yaml.safe_dump(damaged).encode(), good, place, random_)


def yaml_case(good: Good, place: Path, random_: random.Random) -> Case:
    """A cluster file damaged as text."""
    text = (ROOT / "ms_symtensor/cluster" / random_.choice(("atlas_800t_a2.yaml", "b200.yaml"))).read_bytes()
    return _for_cluster(damaged_bytes(text, random_), good, place, random_)


def _for_cluster(content: bytes, good: Good, place: Path, random_: random.Random) -> Case:
    """A command about the cluster file with this `content`."""
    (place / "mine.yaml").write_bytes(content)
    at = ("--cluster", str(place / "mine.yaml"))
    if random_.randrange(2):
        return Case(("validate", str(good.folder / "steps.csv"), *at))
    return Case(("plan", "gpt2_xl", *SMALL, "--device-num", "2", *at, "--out", str(place / "out")))


def csv_case(good: Good, place: Path, random_: random.Random) -> Case:
    """A table of measured steps."""
    rows = [line.split(",") for line in TABLE.splitlines()]
    match random_.randrange(3):
        case 0:
            damaged = damaged_bytes(TABLE.encode(), random_)
        case _:
            row = random_.choice(rows)
            row[random_.randrange(len(row))] = str(random_.choice(VALUES))
            if random_.randrange(3) == 0:
                random_.choice(rows).append("1")
            damaged = "\n".join(",".join(row) for row in rows).encode(errors="surrogatepass")
    (place / "steps.csv").write_bytes(damaged)
    command = random_.choice((("validate",), ("calibrate", "--out", str(place / "out.yaml"))))
    return Case((command[0], str(place / "steps.csv"), "--cluster", "a100_80g", *command[1:]))


def command_case(good: Good, place: Path, random_: random.Random) -> Case:
    """A good command with words replaced, left out, doubled or put in."""
    commands = (
        (
            "plan",
            "gpt2_xl",
            *SMALL,
            "--device-num",
            "2",
            "--out",
            str(place / "out"),
            "--fix",
            "model_parallel=2",
            "--json",
        ),
        (
            "plan",
            str(good.plan / "graph.json"),
            "--device-num",
            "2",
            "--out",
            str(place / "out"),
            "--memory-margin",
            "10%",
        ),
        ("explain", str(good.plan), "--operator", "matmul"),
        ("explain", str(good.plan), "--why-not", "dp=1"),
        ("validate", str(good.folder / "steps.csv"), "--cluster", "a100_80g", "--calibrate", "2", "--seed", "1"),
        ("calibrate", str(good.folder / "steps.csv"), "--cluster", "a100_80g", "--out", str(place / "mine.yaml")),
        ("capture", "gpt2_xl", *SMALL, "--out", str(place / "graph.json")),
    )
    words = list(random_.choice(commands))
    for _ in range(random_.choice((1, 1, 2, 3))):
        at = random_.randrange(len(words) + 1)
        word = random_.choice(TOKENS)
        match random_.randrange(4):
            case 0:
                words[at : at + 1] = [word]
            case 1:
                words[at : at + 1] = []
            case 2:
                words[at:at] = words[max(0, at - 2) : at]
            case _:
                words[at:at] = [word]
    return Case(tuple(words))


KINDS: dict[str, Callable[[Good, Path, random.Random], Case]] = {
    "plan": plan_case, "graph": graph_case, "cluster": cluster_case, "yaml": yaml_case, "csv": csv_case, "command": command_case,
}  # fmt: skip


def _run(case: Case) -> tuple[int | None, str, str, str]:
    """Exit code (None where it did not end by itself), output, errors, and what went wrong in this process."""

    def end(*_: object) -> None:
        raise Hang

    output, errors, wrong = io.StringIO(), io.StringIO(), ""
    code: int | None = None
    signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT_S)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = symtensor(list(case.arguments))
    except SystemExit as ended:  # --help
        code = ended.code if isinstance(ended.code, int) else 1
    except Hang:
        wrong = "hang"
    except BaseException:
        wrong = f"traceback\n{traceback.format_exc()}"
    finally:
        signal.alarm(0)
    return code, output.getvalue(), errors.getvalue(), wrong


def _run_apart(case: Case) -> tuple[int | None, str, str, str]:
    """The same in a process of its own."""
    arguments = [os.fsencode(argument) for argument in case.arguments]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ms_symtensor", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=3 * LIMIT_S,  # its imports take their time too
        )
    except subprocess.TimeoutExpired:
        return None, "", "", "hang"
    except ValueError:  # a character that no argument can have
        return 2, "", "", ""
    errors = done.stderr.decode(errors="replace")
    wrong = f"traceback\n{errors}" if "Traceback" in errors or done.returncode < 0 else ""
    return done.returncode, done.stdout.decode(errors="replace"), errors, wrong


def verdict(case: Case, code: int | None, output: str, errors: str, wrong: str) -> str:
    """What is wrong with an answer, "" for nothing."""
    if wrong:
        return wrong
    lines = [line for line in errors.splitlines() if not line.startswith("symtensor: warning: ")]
    refusals = [line for line in lines if line.startswith("symtensor: error: ")]
    if code == 2 and errors and (len(refusals) != 1 or len(refusals[0]) > LINE_CHARACTERS or output):
        return f"lines\n{errors}"
    if code == 0 and case.is_changed:
        return "digest"
    return ""


def fuzzed(kind: str, number: int, good: Good, keep: Path | None) -> str:
    """Make and run input `number` of `kind`; "refused", "accepted", or what went wrong."""
    random_ = random.Random(f"{kind} {number}")
    with tempfile.TemporaryDirectory(prefix="symtensor_fuzz_") as folder:
        case = KINDS[kind](good, Path(folder), random_)
        run = _run_apart if number % OWN_PROCESS_EVERY == OWN_PROCESS_EVERY - 1 else _run
        code, output, errors, failure = run(case)
        wrong = verdict(case, code, output, errors, failure)
        if wrong and keep is not None:
            place = keep / f"{kind}_{number}"
            shutil.copytree(folder, place, dirs_exist_ok=True)
            (place / "wrong.txt").write_text(f"{case.arguments!r}\n{wrong}\n", encoding="utf-8", errors="replace")
    return wrong or ("refused" if code == 2 else "accepted")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=10000, help="inputs of all kinds together (default: %(default)s)")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first of each kind (default: %(default)s)"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--keep", type=lambda text: Path(text).resolve(), help="where to leave the inputs that go wrong"
    )
    chosen = parser.parse_args(arguments)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="symtensor_fuzz_") as state:
        os.environ["XDG_STATE_HOME"] = state  # what is planned here is noted there, not as the user's own
        good = good_inputs(Path(state))
        os.chdir(state)  # commands that are damaged may write where they are
        for kind in chosen.kinds:
            start, found = time.monotonic(), Counter[str]()
            for number in range(chosen.first, chosen.first + max(1, chosen.number // len(chosen.kinds))):
                result = fuzzed(kind, number, good, chosen.keep)
                word, _, detail = result.partition("\n")
                found[word] += 1
                if word not in ("refused", "accepted"):
                    wrong += 1
                    print(f"{kind} {number}: {word}: {' | '.join(detail.splitlines()[-3:])}", flush=True)
            counts = ", ".join(f"{word} {count}" for word, count in sorted(found.items()))
            print(f"{kind}: {found.total()} inputs: {counts} ({time.monotonic() - start:.0f} s)", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
