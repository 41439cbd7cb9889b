"""A launch script of MindSpeed-LLM: written, and read back."""

import re
import shlex
from collections.abc import Mapping

from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindspeed.dimensions import Options

_HEAD = """#!/bin/bash
# Arguments of MindSpeed-LLM's pretrain_gpt.py (Megatron's core 0.12) that say a plan.
# Data, tokenizer and learning rate are yours: give them behind the script's name.
export CUDA_DEVICE_MAX_CONNECTIONS=1

NPUS_PER_NODE={per_node}
NNODES={nodes}

MODEL_ARGS="
{model}
"

PLAN_ARGS="
{plan}
"

torchrun --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES --node_rank ${{NODE_RANK:-0}} \\
    --master_addr ${{MASTER_ADDR:-localhost}} --master_port ${{MASTER_PORT:-6000}} pretrain_gpt.py $MODEL_ARGS $PLAN_ARGS \\
    --distributed-backend nccl "$@"
"""
_ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_MOST_B = 1 << 20
_DEPTH = 8


def script(model: Options, plan: Options, per_node: int, nodes: int) -> str:
    """The text of a launch script with these options."""
    return _HEAD.format(per_node=per_node, nodes=nodes, model=_lines(model), plan=_lines(plan))


def _lines(options: Options) -> str:
    return "\n".join(f"    --{name} {value}".rstrip() for name, value in options.items())


def options_in(text: str, name: str) -> Options:
    """The options of the script `text`, called `name`, variables filled in; of several values of one option the last counts.

    Raises:
        InputError: for a text that is no shell script, and one without options.
    """
    if len(text) > _MOST_B:
        raise InputError(f"{name} is no launch script: it has {len(text):,} characters")
    try:
        lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError as error:
        raise InputError(
            f"{name} is no launch script ({error}): give the bash file that starts pretrain_gpt.py"
        ) from error
    values: dict[str, str] = {}
    found: Options = {}
    option = ""
    for word in words:
        assigned = _ASSIGNED.fullmatch(word)
        if assigned and not word.startswith("-"):
            values[assigned[1]] = assigned[2]
            continue
        for part in _filled(word, values).replace("\\", " ").split():
            if part.startswith("--"):
                option, _, value = part[2:].partition("=")
                found[option] = value
            elif option and re.fullmatch(r"[^|&;<>]+", part):
                found[option] = f"{found[option]} {part}".strip()
            else:
                option = ""
    if "num-layers" not in found:
        raise InputError(f"{name} has no option --num-layers: give the bash file that starts pretrain_gpt.py")
    return found


def _filled(text: str, values: Mapping[str, str]) -> str:
    for _ in range(_DEPTH):
        filled = _NAMED.sub(lambda name: values.get(name[1] or name[2], name[0]), text)
        if filled == text:
            break
        text = filled
    return text
