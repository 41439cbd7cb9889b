"""The pages of docs/results, and the table in README, written from the newest run of each benchmark (benchmarks/data).

    python -m benchmarks.results                                            # write the pages
    python -m benchmarks.results --check                                    # exit code 1 if one is not what the data give
    python -m benchmarks.ratios | python -m benchmarks.results --store ratios   # keep the tables of a run, and write the pages
    python -m benchmarks.results --corpus NEW.json CERTIFIED.json           # keep the figures of two runs of benchmarks.corpus

A page has `<!-- results: NAME -->` … `<!-- results: end -->` where the tables of benchmarks/data/results/NAME.json go.
`--store NAME` reads a benchmark's output, takes the tables of Markdown in it, and replaces that file.
docs/results/validation.md is written by `benchmarks.validation`.
"""

import argparse
import datetime
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data"
MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- results: end -->)", re.DOTALL)
GIB = 1024**3

README_ROWS = ("`plans`", "`versions`", "`proofs`", "`operators`", "`brute_force_stages`", "`determinism`")


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def tables_in(text: str) -> list[list[list[str]]]:
    """The tables of Markdown in `text`: a first row of columns, and rows."""
    found: list[list[list[str]]] = []
    is_open = False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_open = False
        elif not is_open:
            found.append([cells(line)])
            is_open = True
        elif set(line) - set("|- :"):
            found[-1].append(cells(line))
    return found


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (columns, ["---"] * len(columns), *rows))


def stored(name: str) -> dict[str, Any]:
    """What was kept of a benchmark's newest run."""
    return dict(json.loads((DATA / "results" / f"{name}.json").read_text(encoding="utf-8")))


def store(name: str, output: str) -> None:
    """Keep the tables in a benchmark's `output` as its newest run. SystemExit where it prints no table."""
    found = tables_in(output)
    if not found:
        raise SystemExit(f"{name}: no table of Markdown in what was read")
    file = DATA / "results" / f"{name}.json"
    titles = [one["title"] for one in stored(name)["tables"]] if file.exists() else []
    titles += [f"Table {i + 1}" for i in range(len(titles), len(found))]
    kept = [{"title": t, "columns": one[0], "rows": one[1:]} for t, one in zip(titles, found, strict=False)]
    run = {
        "mindspore": importlib.metadata.version("mindspore"),
        "run": datetime.date.today().isoformat(),
        "tables": kept,
    }
    file.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def tables(name: str) -> str:
    """The tables of a benchmark, each under its title, and when it was run."""
    run = stored(name)
    parts = [f"## {one['title']}\n\n{markdown(one['columns'], one['rows'])}" for one in run["tables"]]
    version = f", MindSpore {run['mindspore']}" if run["mindspore"] else ""
    when = f"Run of {run['run']}" if run["run"] else "Run on the days in the last column"
    return "\n\n".join([*parts, f"{when}{version}: `benchmarks/data/results/{name}.json`."])


FIGURES = ("step_time_s", "peak_memory_B", "optimality_gap", "degrees", "processor_s")
"""What is kept of an answer of the newest run."""

CERTIFIED = ("step_time_s", "optimality_gap", "processor_s")
"""What is kept of a certified one."""


def keep_corpus(newest: Path, certified: Path) -> None:
    """Keep the figures of the newest run of the corpus, and of its certified one, as `benchmarks.corpus` recorded them."""
    for run, name, kept in ((newest, "newest", FIGURES), (certified, "certified", CERTIFIED)):
        answers = json.loads(run.read_text(encoding="utf-8"))
        few = {request: {key: of[key] for key in kept if key in of} for request, of in answers.items()}
        (DATA / f"{name}.json").write_text(json.dumps(few, indent=1) + "\n", encoding="utf-8")


def corpus() -> str:
    """What `symtensor plan` answers to the requests of the corpus in the newest run, and in the one that is compared with."""
    recorded, newest, certified = (
        json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) for name in ("corpus", "newest", "certified")
    )
    columns = (
        "request", "step", "of recorded", "peak", "gap", "dp", "tp", "pp", "vpp", "micro-batches", "processor s",
        "certified gap", "processor s",
    )  # fmt: skip
    rows = [(*_corpus_row(one, newest[one], recorded[one]), *_certified(certified.get(one, {}))) for one in newest]
    return markdown(columns, rows)


def _certified(answer: Mapping[str, Any]) -> tuple[str, str]:
    """The gap of a certified plan, and what it took."""
    if "optimality_gap" not in answer:
        return "", ""
    return f"{100 * answer['optimality_gap']:.2f} %", f"{answer['processor_s']:.1f}"


def _corpus_row(request: str, answer: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[str, ...]:
    name, processor = f"`{request.replace('|', '/')}`", f"{answer['processor_s']:.1f}"
    if "step_time_s" not in answer:
        return (name, "no plan", *[""] * 8, processor)
    degrees = answer["degrees"]
    of = ("data_parallel", "model_parallel", "pipeline_stages", "pp_interleave_num", "micro_batch_num")
    return (
        name, f"{answer['step_time_s']:.3g} s", f"{answer['step_time_s'] / recorded['step_time_s']:.3f}",
        f"{answer['peak_memory_B'] / GIB:.1f} GiB", f"{100 * answer['optimality_gap']:.2f} %",
        *(str(degrees[name]) for name in of), processor,
    )  # fmt: skip


def short() -> str:
    """The checks that README shows."""
    checks = stored("checks")["tables"][0]
    return markdown(checks["columns"][1:4], [row[1:4] for row in checks["rows"] if row[0] in README_ROWS])


def filled(text: str) -> str:
    """A page with the tables of today's data in it."""
    made = {"corpus": corpus, "short": short}

    def table(found: re.Match[str]) -> str:
        name = found[2]
        return f"{found[1]}\n{made[name]() if name in made else tables(name)}\n\n{found[3]}"

    return MARKED.sub(table, text)


def pages() -> Iterator[tuple[Path, str, str]]:
    """Every page with tables: the file, what it holds, and what the data give."""
    for file in (ROOT / "README.md", *sorted((ROOT / "docs" / "results").glob("*.md"))):
        text = file.read_text(encoding="utf-8")
        if MARKED.search(text):
            yield file, text, filled(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", metavar="NAME", help="keep the tables on standard input as the newest run of NAME")
    parser.add_argument(
        "--corpus", metavar="RUN", nargs=2, type=Path, help="keep a run of the corpus and a certified one"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; tell what is not as the data give it")
    chosen = parser.parse_args()
    if chosen.store:
        store(chosen.store, sys.stdin.read())
    if chosen.corpus:
        keep_corpus(*chosen.corpus)
    stale = {file: new for file, old, new in pages() if old != new}
    for file, new in stale.items():
        if not chosen.check:
            file.write_text(new, encoding="utf-8")
    print("\n".join(f"{'stale' if chosen.check else 'written'}: {file.relative_to(ROOT)}" for file in stale))
    return 1 if chosen.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
