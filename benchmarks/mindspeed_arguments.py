"""Arguments for MindSpeed-LLM against Megatron's own classes: what `--target mindspeed` writes, read by megatron-core.

    python -m benchmarks.mindspeed_arguments [--python PYTHON]

PYTHON is that of an environment with torch and megatron-core 0.12.1; without it `build/megatron-venv` is made. Each case is a
network of the zoo and a layout; Megatron's TransformerConfig takes the options, its groups of ranks, layers of every stage and
number of micro-batches are asked for, and must be the layout's. Exit code 1 if something raises or differs.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from model_zoo import dimensions_of
from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.mindspeed.dimensions import dimensions
from ms_symtensor.targets.mindspeed.options import layout_options
from ms_symtensor.targets.mindspeed.rules import forms, refusal
from ms_symtensor.uniform.layout import (
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    Degrees,
    Selection,
    Stages,
    UniformLayout,
    first_blocks,
)

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "numpy", "packaging", "megatron-core==0.12.1")
JUDGE = Path(__file__).with_name("mindspeed_judge.py")
NETWORKS = ("llama2_7b", "llama3_70b", "qwen3_32b", "mixtral_8x7b", "deepseek_v3", "gpt2_xl")
CASES = 40

Case = tuple[TransformerConfig, UniformLayout, str]


@cache
def layouts() -> tuple[Case, ...]:
    """The cases: networks of eight blocks, every degree in turn, what the rules refuse left out."""
    found: list[Case] = []
    for round_ in range(20):
        for name in NETWORKS:
            batch = 16 * (1 + round_ % 3)
            config = dimensions_of(name, num_layers=8, seq_length=1024, batch_size=batch)
            tensor, context = (1, 2, 4)[round_ % 3], (1, 1, 2)[(round_ // 2) % 3]
            degrees = Degrees(
                (1, 2, 4)[(round_ // 3) % 3], tensor, tensor > 1, context, 2 * (config.experts is not None)
            )
            stages = ((1, 1), (2, 1), (2, 2), (4, 1))[round_ % 4]
            placed = Stages(stages[0], max(stages[0], 4), stages[1])
            if round_ % 5 == 1 and stages == (2, 1):
                placed = replace(placed, layers=(5, 3))
            part = frozenset({Selection.ACTIVATION} if round_ % 2 else ())
            recomputation = (NO_RECOMPUTATION, first_blocks(placed, 8, 1, part), SELECTIVE_RECOMPUTATION)[round_ % 3]
            if config.experts is not None and context > 1:
                continue  # experts of the zoo take whole sequences
            for form in forms(config, degrees):
                level = OptimizerLevel(int(round_ % 4 != 3))
                layout = UniformLayout(
                    form, placed, recomputation, level, swap_optimizer=bool(level) and round_ % 7 == 0
                )
                if not refusal(config, layout) and config.batch_size % (form.data_parallel * 4) == 0:
                    found.append((config, layout, "gradients,weights" if level and round_ % 2 else ""))
    step = max(1, len(found) // CASES)
    return tuple(found[::step][:CASES])


def expected(case: Case) -> dict[str, object]:
    """What Megatron has to make of the options of `case`."""
    config, layout, hide = case
    of, stages = layout.degrees, layout.stages
    return {
        "options": dimensions(config) | layout_options(config, layout, hide),
        "devices": layout.device_num,
        "data_parallel": of.data_parallel,
        "micro_batches": stages.micro_batch_num,
        "layers": list(stages.in_order(config.num_layers)),
        "listed": bool(stages.layers),
        "experts": None if config.experts is None else [of.expert_parallel, of.expert_model_parallel],
    }


def _made() -> str:
    """The Python of `build/megatron-venv`, which is made if it is not there."""
    python = ROOT / "build" / "megatron-venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return str(python)


def main() -> int:
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--python", help="of an environment with torch and megatron-core")
    chosen = command_line.parse_args()
    entries = [expected(case) for case in layouts()]
    done = subprocess.run([chosen.python or _made(), str(JUDGE)], input=json.dumps(entries), text=True, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
