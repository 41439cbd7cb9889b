"""A deep plan carried over to few blocks: each keeps its collectives, and the compiler judges the short network."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from ms_symtensor.bridge.judge.fewer_blocks import fewer_blocks
from ms_symtensor.cli import main
from ms_symtensor.errors import InputError
from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.file import load, load_graph

LAYERS = 12
_LAYER = re.compile(r"(layers(?:-CellList/|\.))(\d+)")  # in the name of an operator or a parameter


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    found = tmp_path_factory.mktemp("plan")
    arguments = ["plan", "llama2_7b", "--num-layers", str(LAYERS), "--seq-length", "128", "--global-batch-size", "16"]
    pins = ["pipeline_stages=2", "pp_interleave_num=1", "micro_batch_num=4", "recompute=3"]
    fixed = [word for pin in pins for word in ("--fix", pin)]
    assert main([*arguments, "--device-num", "4", *fixed, "--out", str(found)]) == 0
    return found


def _collectives(plan, graph, layer_of):
    """Kinds, phases, ranks and bytes of the collectives by operator, its layer numbered as `layer_of` says, without Send."""
    found = {}
    for program in partition_stages(graph, plan.stages, plan.pipeline):
        for one in (c for c in program.collectives(program.ranks.start) if c.kind in COLLECTIVES):
            name = _LAYER.sub(lambda found: f"{found[1]}{layer_of[int(found[2])]}", one.op)
            found.setdefault(name, Counter())[one.kind, one.phase, one.ranks, one.size_B] += 1
    return found


def test_kept_blocks_keep_their_collectives(directory):
    plan, graph = load(directory), load_graph(directory)
    fewer = fewer_blocks(plan, 2, graph)
    recomputed = [int(name.rpartition(".")[2]) for name in plan.settings.recompute]
    assert len(recomputed) == 3 and len(fewer.kept) < LAYERS
    assert [f"layers.{i}" in fewer.plan.settings.recompute for i in range(len(fewer.kept))] == [
        n in recomputed for n in fewer.kept
    ]
    plan = replace(plan, pipeline=replace(plan.pipeline, micro_batch_num=fewer.plan.micro_batch_num))
    whole = _collectives(plan, graph, range(LAYERS))
    short = _collectives(fewer.plan, fewer.graph, fewer.kept)
    assert short and all(found == whole[name] for name, found in short.items())


def test_the_compiler_judges_the_short_network(directory, capsys):
    assert main(["verify", str(directory), "--blocks", "1", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["accepted"] and found["collectives"]["equal"]
    assert found["blocks"]["planned"] == LAYERS and found["blocks"]["compiled"] < LAYERS
    assert found["micro_batch_num"] == {"compiled": 2, "planned": 4}
    assert "of 12 blocks, 2 of 4 micro-batches" in shown.err


def test_no_block_and_other_networks_are_refused(directory, capsys):
    assert main(["verify", str(directory), "--blocks", "0"]) == 2
    assert "give at least 1" in capsys.readouterr().err
    with pytest.raises(InputError, match="no network of the zoo"):
        fewer_blocks(replace(load(directory), source={"factory": "net.py:make"}), 2)
