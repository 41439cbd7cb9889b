"""Training files of MindFormers with planned layouts, judged by MindFormers' own code (`mindformers_judge`).

    python -m benchmarks.mindformers_files [--version 1.9.0] [--python PATH] [--layouts 6] [--seed 0]

Every training file in graph mode that the wheel ships gets so many layouts that MindFormers can say, drawn at random, on as many
devices and samples as it has. MindFormerConfig, set_auto_parallel_context, the trainer's checks of the batch and LayerSetting
read each copy; samples, blocks of every model chunk and lists of recomputation must be those of the layout. `--python`: of an
environment with the wheel; without it `.venv-mindformers-VERSION` is made. Exit code 1 if a file is not as planned.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.mindformers.recompute import lists_of, patterns_of
from ms_symtensor.targets.mindformers.rules import forms, refusal
from ms_symtensor.targets.mindformers.training_file import TrainingFile, read_training_file
from ms_symtensor.targets.mindformers.writing import with_layout
from ms_symtensor.uniform.layout import ALL, Degrees, Recomputation, Selection, Stages, UniformLayout

ROOT = Path(__file__).parents[1]
MINDSPORE = {"1.9.0": "2.9.0", "2.1.0": "2.10.0"}
"""The MindSpore beside each version: what it pins, or the last one that PyPI has."""
DIMS = {
    "finetune_qwen3.yaml": "qwen3_32b", "finetune_deepseek3_671b.yaml": "deepseek_v3_r1",
    "finetune_deepseek3_12b_16p_pp16.yaml": "deepseek_v3_r1", "llm_pretrain_dense_template.yaml": "qwen3_8b",
    "llm_finetune_dense_template.yaml": "qwen3_8b", "llm_pretrain_moe_template.yaml": "qwen3_30b_a3b",
    "llm_finetune_moe_template.yaml": "qwen3_30b_a3b",
}  # fmt: skip
"""The config.json (tests/data/configs) of files that name a folder which is the reader's."""
NEEDED = (
    "numpy<2", "sentencepiece", "ftfy", "regex", "tqdm", "pyyaml", "jieba", "rouge_chinese", "nltk", "mindpet==1.0.4",
    "opencv-python-headless", "tokenizers", "astunparse", "tiktoken", "jinja2", "setproctitle", "safetensors", "tensorboardX",
    "deprecated", "pybind11",
)  # fmt: skip
OWN = {
    "1.9.0": ("transformers==4.57.1", "pyarrow==19.0.0", "datasets>=4"),
    "2.1.0": ("transformers>=5.3", "pyarrow==23.0.1", "datasets>=5.0.1"),
}
"""Later pyarrow wants numpy 2, which MindSpore has no bfloat16 with."""


def environment(version: str) -> Path:
    """The Python of an environment that has this version and what `ms_symtensor` needs, made if need be."""
    folder = ROOT / f".venv-mindformers-{version}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        packages = ["--editable", str(ROOT), f"mindspore=={MINDSPORE[version]}", *OWN[version], *NEEDED]
        subprocess.run([*install, *packages], check=True)
        subprocess.run([*install, "--no-deps", f"mindformers=={version}"], check=True)
        (folder / ".installed").touch()
    return python


def shipped(python: Path) -> list[Path]:
    """The training files that its wheel has."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    place = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    every = sorted(Path(place, "configs").rglob("*.yaml"))
    return [file for file in every if not file.name.startswith("predict") and "convert" not in file.name]


def read(path: Path) -> TrainingFile:
    """The file, with the dims of `DIMS`. Errors: those of `read_training_file`."""
    dims = DIMS.get(path.name)
    return read_training_file(path, None if dims is None else ROOT / "tests" / "data" / "configs" / f"{dims}.json")


def drawn(file: TrainingFile, number: int, seed: int) -> Iterator[UniformLayout]:
    """So many layouts of the file's devices and samples that MindFormers can say, or fewer after many tries."""
    rng, found = random.Random(f"{file.name} {seed}"), 0
    for _ in range(4000):
        layout = _any(rng, file)
        if layout is not None and not refusal(file.config, layout):
            yield layout
            found += 1
        if found == number:
            return


def _any(rng: random.Random, file: TrainingFile) -> UniformLayout | None:
    config, devices = file.config, file.devices
    number = rng.choice([n for n in divisors(devices) if n <= config.num_layers])
    tensor = rng.choice([n for n in divisors(devices // number) if n <= 16])
    context = rng.choice([1, 1, *divisors(devices // number // tensor)]) if config.experts is None else 1
    data = devices // number // tensor // context
    if config.batch_size % data:
        return None
    interleave = rng.choice([1, 2, 3]) if number > 1 else 1
    counts = [n for n in divisors(config.batch_size // data) if n >= number]
    if not counts or number * interleave > config.num_layers:
        return None
    stages = Stages(number, rng.choice(counts), interleave)
    held = list(stages.of(config.num_layers))
    for _ in range(rng.choice([0, 1, 2]) if number > 1 else 0):
        one, other = rng.sample(range(number), 2)
        if held[one] > interleave:
            held[one], held[other] = held[one] - 1, held[other] + 1
    stages = replace(stages, layers=tuple(held))
    expert = rng.choice(divisors(data * tensor)) if config.experts is not None else 0
    degrees = rng.choice(list(forms(config, Degrees(data, tensor, tensor > 1, context, expert))))
    core, activation = ((part, (ALL,)) for part in (Selection.ATTENTION_CORE, Selection.ACTIVATION))
    parts = () if file.is_legacy else rng.choice([(), (activation,), (core, activation)])
    whole = rng.choice([(0,), (ALL,), tuple(rng.randint(0, n) for n in held)])
    return UniformLayout(degrees, stages, Recomputation(whole, parts), OptimizerLevel(rng.choice([0, 1, 2])))


def entries(files: list[Path], number: int, seed: int, folder: Path) -> Iterator[dict]:
    """A planned copy of every file and layout, and what it has to say."""
    for path in files:
        try:
            file = read(path)
        except InputError as error:
            print(f"refused: {error}")
            continue
        for n, layout in enumerate(drawn(file, number, seed)):
            text, changes = with_layout(file, layout)
            place = folder / f"{n}_{path.name}"
            place.write_text(text, encoding="utf-8")
            lists = lists_of(file.config, layout)
            parts = {
                pattern: [list(row) for row in rows]
                for part, rows in lists.parts.items()
                for pattern in patterns_of(part, file.config.experts is not None)
            }
            yield {
                "file": str(place), "devices": file.devices, "num_layers": file.config.num_layers,
                "changed": sorted({change.key for change in changes}),
                "plan": {
                    "global_batch_size": file.config.batch_size, "held": [list(row) for row in lists.held],
                    "whole": [list(row) for row in lists.whole], **({"parts": parts} if parts else {}),
                },
            }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", choices=tuple(MINDSPORE), default="1.9.0")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--layouts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    python = chosen.python or environment(chosen.version)
    with tempfile.TemporaryDirectory() as folder:
        every = list(entries(shipped(python), chosen.layouts, chosen.seed, Path(folder)))
        expected = Path(folder, "expected.json")
        expected.write_text(json.dumps(every), encoding="utf-8")
        judge = Path(__file__).with_name("mindformers_judge.py")
        return subprocess.run([str(python), str(judge), str(expected)], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
