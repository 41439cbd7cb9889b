"""A training file of few blocks and micro-batches with the degrees of a plan, at which MindFormers' own network is audited."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from model_zoo.config_json import FILE
from ms_symtensor.errors import InputError
from ms_symtensor.files.writing import write_file
from ms_symtensor.program.pipeline import runs_of
from ms_symtensor.targets.mindformers.dimensions import SYNONYMS
from ms_symtensor.targets.mindformers.settings import MODEL
from ms_symtensor.targets.mindformers.training_file import TrainingFile, read_training_file
from ms_symtensor.targets.mindformers.writing import with_layout
from ms_symtensor.targets.yaml_text import with_value
from ms_symtensor.uniform.layout import Mark, Recomputation, Stages, UniformLayout

BLOCKS = 2
"""Blocks of a kind that stand for all: the second reads what a block has made."""


@dataclass(frozen=True)
class Reduced:
    """A file of `blocks` blocks at `place`; its step has so many `samples` of `seq_length` tokens in so many micro-batches."""

    place: Path
    blocks: int
    samples: int
    seq_length: int
    layout: UniformLayout


def reduced(file: TrainingFile, layout: UniformLayout, folder: Path, pretrained: Path | None = None) -> Reduced:
    """Write to `folder` what `file` says, with `layout` on few blocks. `pretrained`: as for `read_training_file`.

    Raises:
        InputError: for a network of the older classes, and those of `with_layout`.
    """
    if file.is_legacy:
        raise InputError(
            f"{file.name} names a network of the older classes: `symtensor audit` takes these as a factory"
        )
    dense = min(1, file.config.dense_layers)
    stages = layout.stages
    blocks = min(file.config.num_layers, max(BLOCKS + dense, stages.number * stages.interleave))
    text = _said(file, file.text, "num_hidden_layers", blocks)
    if dense:
        text = _said(file, text, "first_k_dense_replace", dense)
    if pretrained is not None:
        shutil.copyfile(pretrained / FILE if pretrained.is_dir() else pretrained, folder / FILE)
        text = with_value(text, ("pretrained_model_dir",), str(folder))
    place = folder / file.name
    write_file(place, text)
    small = read_training_file(place)
    each = file.config.batch_size // (layout.degrees.data_parallel * stages.micro_batch_num)
    number = min(stages.micro_batch_num, max(2, stages.number))
    few = Stages(stages.number, number, stages.interleave, scheduler=stages.scheduler)
    samples = layout.degrees.data_parallel * number * each
    small = replace(small, config=replace(small.config, batch_size=samples))
    of_few = replace(layout, stages=few, recompute=Recomputation(marks=_marks(file, layout, few, blocks)))
    text, _ = with_layout(small, of_few)
    write_file(place, text)
    return Reduced(place, blocks, samples, small.config.seq_length, of_few)


def _said(file: TrainingFile, text: str, key: str, value: int) -> str:
    """`text` with `value` by the name that the file has for `key`."""
    model = file.data.get("model", {}).get("model_config", {})
    name = next((one for one in (key, *SYNONYMS.get(key, ())) if one in model), key)
    return with_value(text, (*MODEL, name), value)


def _marks(file: TrainingFile, layout: UniformLayout, few: Stages, blocks: int) -> tuple[tuple[Mark, ...], ...]:
    """What is recomputed of each block: as of the first ones of a model chunk, and of its last one."""
    whole, short = layout.marks_of_chunks(file.config.num_layers), runs_of(few.in_order(blocks), few.interleave)
    return tuple(
        tuple(
            mark
            for chunk, run in zip(of_stage, runs, strict=True)
            for mark in (*chunk[: max(1, len(run) - 1)], *chunk[-1:])[: len(run)]
        )
        for of_stage, runs in zip(whole, short, strict=True)
    )
