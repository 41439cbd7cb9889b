"""MindSpore's own resharding of checkpoints, told by a plan's files how parameters and optimizer states lie."""

import zlib
from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn
from planned import network
from plans import data_times_tensor, plan_of, small_graph

from ms_symtensor.cluster.load import load
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.programs import programs_of
from ms_symtensor.report.reshard_files import checkpoint_of, checkpoint_of_side, write_reshard
from ms_symtensor.reshard.reshard import Request, reshard
from ms_symtensor.reshard.slices import as_rollout, side_of
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.targets.formats.strategy_checkpoint import OPTIMIZER_STATES

STATES = ("moments", "adam_m")
TINY = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 256, "head_dim": 8, "num_layers": 2}
SHARDED = {"optimizer_level": OptimizerLevel.LEVEL1, "parallel_optimizer_threshold_KB": 0}


def box(row, grid):
    """The cells per dim of a slice, whose cells are true in `row`."""
    return tuple(range(int(one.min()), int(one.max()) + 1) for one in np.unravel_index(np.flatnonzero(row), grid))


def tensor_and_data(graph):
    return plan_of(graph, data_times_tensor(graph, 2, 4), 8, **SHARDED)


def data_alone(graph):
    return plan_of(graph, data_times_tensor(graph, 4, 1), 4)


def one_device(graph):
    return replace(plan_of(graph, {}, 1), model_parallel=1)


def two_stages(graph):
    """Stages that are cut otherwise."""
    strategies = data_times_tensor(graph, 2, 2), data_times_tensor(graph, 4, 1)
    stages, pipeline = pipeline_stages(graph, (1, 1), strategies, Settings(4, **SHARDED), micro_batch_num=4)
    return replace(plan_of(graph, {}, 4), stages=stages, pipeline=pipeline)


def whole(name, shape):
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)


def of_rank(value, placement, rank):
    layout = placement.layout
    for dim, cut in enumerate(layout.cuts):
        if cut > 1:
            stride = int(np.prod(layout.device_matrix[len(layout.device_matrix) - layout.tensor_map[dim] :], dtype=int))
            value = np.split(value, cut, dim)[rank // stride % cut]
    if placement.gather is not None:
        ranks = placement.gather.ranks(rank)
        value = np.split(value, len(ranks))[ranks.index(rank)]
    return np.ascontiguousarray(value)


def written(plan, graph, directory):
    """The plan's files in `directory`, and what every rank holds of weights and optimizer states."""
    programs = programs_of(plan, graph)
    write_plan(plan, graph, programs, "report", directory)
    shapes = {p.name: p.type.shape for p in graph.parameters}
    names = ["", *(f"{state}." for state in STATES)]
    size = plan.device_num // len(programs)
    return {
        stage * size + rank: {
            f"{before}{name}": of_rank(whole(f"{before}{name}", shapes[name]), placement, rank)
            for name, placement in program.parameters.items()
            for before in names
        }
        for stage, program in enumerate(programs)
        for rank in range(size)
    }


@pytest.mark.parametrize(
    ("name", "before", "after", "ending"),
    [
        ("llama2_7b", tensor_and_data, data_alone, "ckpt"),
        ("llama2_7b", tensor_and_data, one_device, "json"),
        ("gpt2_xl", two_stages, tensor_and_data, "json"),  # whose embedding both stages read
        pytest.param("gpt2_xl", data_alone, two_stages, "ckpt", marks=pytest.mark.matrix),
        pytest.param("gpt2_xl", two_stages, one_device, "ckpt", marks=pytest.mark.matrix),
    ],
)
def test_a_checkpoint_goes_from_plan_to_plan(tmp_path, name, before, after, ending):
    graph = small_graph(name, attention="self", **TINY)
    saved = written(before(graph), graph, tmp_path / "before")
    wanted = written(after(graph), graph, tmp_path / "after")
    for rank, values in saved.items():
        (tmp_path / f"saved/rank_{rank}").mkdir(parents=True)
        parameters = [{"name": n, "data": ms.Tensor(v)} for n, v in values.items()]
        ms.save_checkpoint(parameters, str(tmp_path / f"saved/rank_{rank}/step.ckpt"))
    files = [str(tmp_path / one / f"parameter_layout.{ending}") for one in ("before", "after")]
    ms.transform_checkpoints(str(tmp_path / "saved"), str(tmp_path / "new"), "step", *files)
    for rank, values in wanted.items():
        found = ms.load_checkpoint(str(tmp_path / f"new/rank_{rank}/step{rank}.ckpt"))
        assert set(found) == set(values)
        for each, value in values.items():
            np.testing.assert_array_equal(found[each].asnumpy(), value, each)
    assert len(list((tmp_path / "new").iterdir())) == len(wanted)


@pytest.mark.parametrize(("before", "after"), [(two_stages, tensor_and_data), (tensor_and_data, data_alone)])
def test_reshard_to_rollout_gives_the_files_of_mindspores_transform(tmp_path, before, after):
    """Weights whole over their copies, twice where there are ranks for it: every rank's file has the slices that it needs."""
    graph = small_graph("llama2_7b", attention="self", **TINY)
    saved = written(before(graph), graph, tmp_path / "before")
    source = side_of(programs_of(before(graph), graph), has_states=False)
    one = side_of(programs_of(after(graph), graph), has_states=False)
    target = as_rollout(one, None, source.rank_num // one.rank_num)
    found = reshard(source, target, Request(load("atlas_800t_a2"), 1 << 40, aligns=False))
    sides = ((before(graph), source), (after(graph), target))
    checkpoints = [checkpoint_of(plan, graph, programs_of(plan, graph), side, False) for plan, side in sides]
    if after is data_alone:  # as it is written where TO is of `serve`
        checkpoints[1] = checkpoint_of_side(target)
    write_reshard(tmp_path / "way", *checkpoints, {}, "")
    for rank, values in saved.items():
        (tmp_path / f"saved/rank_{rank}").mkdir(parents=True)
        weights = [{"name": n, "data": ms.Tensor(v)} for n, v in values.items() if not n.startswith(STATES)]
        ms.save_checkpoint(weights, str(tmp_path / f"saved/rank_{rank}/step.ckpt"))
    files = [str(tmp_path / "way" / name) for name in ("from.ckpt", "to.ckpt")]
    ms.transform_checkpoints(str(tmp_path / "saved"), str(tmp_path / "new"), "step", *files)
    for rank in range(target.rank_num):
        theirs = ms.load_checkpoint(str(tmp_path / f"new/rank_{rank}/step{rank}.ckpt"))
        ours = {}
        for move in found.moves:
            for unit in move.of.units:
                ends = np.cumsum([np.prod(pair.grid, dtype=int) for pair in unit])[:-1]
                for pair, row in zip(unit, np.split(move.needed[rank], ends)):
                    if row.any():
                        value = whole(pair.source.name, pair.source.shape)
                        steps = [size // cells for size, cells in zip(pair.source.shape, pair.grid)]
                        where = [slice(r.start * s, r.stop * s) for r, s in zip(box(row, pair.grid), steps)]
                        ours[pair.source.name] = value[tuple(where)]
        assert set(theirs) == set(ours)
        for name, value in ours.items():
            np.testing.assert_array_equal(theirs[name].asnumpy(), value, name)


def test_the_checkpoint_of_all_stages_is_mindspores_merged_one(tmp_path):
    from mindspore.train.node_strategy_pb2 import ParallelStrategyMap

    from ms_symtensor.strategy.checkpoint import checkpoint_protobuf, strategy_checkpoint

    graph = small_graph("gpt2_xl", attention="self", **TINY)
    plan = two_stages(graph)
    written(plan, graph, tmp_path / "plan")
    (tmp_path / "stages").mkdir()
    for program, stage in zip(programs_of(plan, graph), plan.stages):
        states = (*OPTIMIZER_STATES, "accu_grads")
        one = strategy_checkpoint(program.graph, stage, program.parameters, states, program.stage)
        (tmp_path / f"stages/{program.stage}.ckpt").write_bytes(checkpoint_protobuf(one))
    ms.merge_pipeline_strategys(str(tmp_path / "stages"), str(tmp_path / "merged.ckpt"))
    theirs, ours = ParallelStrategyMap(), ParallelStrategyMap()
    theirs.ParseFromString((tmp_path / "merged.ckpt").read_bytes())
    ours.ParseFromString((tmp_path / "plan/parameter_layout.ckpt").read_bytes())
    assert ours.current_stage == theirs.current_stage
    assert sorted(map(str, ours.parallel_layout_item)) == sorted(map(str, theirs.parallel_layout_item))
    assert {str(one) for one in ours.parallel_strategy_item} <= {str(one) for one in theirs.parallel_strategy_item}


def test_load_distributed_checkpoint_gives_one_process_the_whole_weights(tmp_path):
    graph = small_graph("llama2_7b", attention="self", **TINY)
    files = []
    for rank, values in written(tensor_and_data(graph), graph, tmp_path).items():
        files.append(str(tmp_path / f"{rank}.ckpt"))
        ms.save_checkpoint([{"name": n, "data": ms.Tensor(v)} for n, v in values.items()], files[-1])
    cell, _ = network(**TINY)
    for parameter in cell.get_parameters():
        parameter.init_data()
    ms.load_distributed_checkpoint(cell, files, None, str(tmp_path / "parameter_layout.ckpt"))
    for parameter in cell.get_parameters():
        np.testing.assert_array_equal(parameter.asnumpy(), whole(parameter.name, parameter.shape), parameter.name)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda weights: nn.AdamWeightDecay(weights),
        lambda weights: nn.Adam(weights, use_amsgrad=True),
        lambda weights: nn.Momentum(weights, 0.1, 0.9),
        lambda weights: nn.SGD(weights, momentum=0.9),
        lambda weights: nn.Lamb(weights, 0.1),
        lambda weights: mint.optim.AdamW(weights, amsgrad=True),
    ],
)
def test_the_states_of_mindspores_optimizers_are_known(optimizer):
    weights = [ms.Parameter(np.ones((2, 3), np.float32), name="layers.0.weight")]
    states = [
        p.name.partition(".")[0] for p in optimizer(weights).get_parameters() if p.name.endswith(".layers.0.weight")
    ]
    assert states and set(states) <= set(OPTIMIZER_STATES)
