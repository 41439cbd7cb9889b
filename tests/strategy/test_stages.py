import json
from dataclasses import replace

import pytest
from plans import data_times_tensor, plan_of, small_graph

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Recompute, Settings
from ms_symtensor.strategy import file
from ms_symtensor.strategy.python_code import python_code
from ms_symtensor.strategy.stage_cells import parameters_of_several_stages, stage_cells
from ms_symtensor.strategy.stages import pipeline_stages


@pytest.fixture(scope="module")
def graph():
    return small_graph("llama2_7b", num_layers=4)


@pytest.fixture(scope="module")
def plan(graph):
    strategies = data_times_tensor(graph, 2, 2, False), data_times_tensor(graph, 4, 1, False)
    settings = Settings(4, recompute={"layers.0": Recompute(), "layers.2": Recompute(False)})
    stages, pipeline = pipeline_stages(graph, (1, 3), strategies, settings, micro_batch_num=4)
    return replace(plan_of(graph, {}, 4), stages=stages, pipeline=pipeline)


def test_every_stage_has_its_own_operators_and_blocks(graph, plan):
    first, second = plan.stages
    assert {name.split("/")[2][0] for name in first.strategies if "/layers-" in name} == {"0"}
    assert {name.split("/")[2][0] for name in second.strategies if "/layers-" in name} == {"1", "2", "3"}
    assert list(first.settings.recompute) == ["layers.0"] and list(second.settings.recompute) == ["layers.2"]
    assert plan.device_num == 8 and plan.pipeline_stages == 2 and plan.micro_batch_num == 4
    assert list(plan.settings.recompute) == ["layers.0", "layers.2"]
    assert set(plan.strategies) == set(data_times_tensor(graph, 2, 2, False))


def test_a_plan_of_several_stages_is_written_and_read(graph, plan, tmp_path):
    file.save(plan, tmp_path, graph)
    assert file.load(tmp_path) == plan
    text = (tmp_path / "plan.json").read_text()
    assert json.loads(text)["stages"][1]["layers"] == [[1, 4]]


def test_a_plan_of_one_stage_that_accumulates_gradients_is_written_and_read(graph, tmp_path):
    strategies = data_times_tensor(graph, 2, 2, False)
    stages, pipeline = pipeline_stages(graph, (4,), [strategies], Settings(4), micro_batch_num=3)
    plan = replace(plan_of(graph, {}, 4), stages=stages, pipeline=pipeline)
    file.save(plan, tmp_path, graph)
    assert file.load(tmp_path) == plan
    code = python_code(graph, plan)
    assert "GradAccumulationCell(net, 3)" in code and "pipeline_stage =" not in code
    assert stage_cells(graph, pipeline) == {}


def test_blocks_of_functional_operators_alone_have_their_stage(graph, plan):
    """MindSpore counts the stages that cells have, and rejects a network with fewer than the context asks for."""
    ops = tuple(op if op.block is None else replace(op, cell=(), primitive="") for op in graph.ops)
    found = stage_cells(replace(graph, ops=ops), plan.pipeline)
    assert [found["layers", str(number)].stage for number in range(4)] == [0, 1, 1, 1]


def test_what_is_for_one_stage_says_so(plan):
    with pytest.raises(InputError, match="2 pipeline stages and 4 micro-batches: this works on plans of one stage"):
        _ = plan.stage


def test_the_stages_share_their_settings_and_common_operators(plan):
    first, second = plan.stages
    with pytest.raises(InputError, match="different settings"):
        replace(plan, stages=(replace(first, settings=replace(first.settings, enable_alltoall=True)), second))
    name, other = next(iter(first.strategies)), OpStrategy(((1, 4), (1, 4)))
    with pytest.raises(InputError, match="several pipeline stages with different strategies"):
        replace(plan, stages=(first, replace(second, strategies={**second.strategies, name: other})))
    with pytest.raises(InputError, match="1 stages for a pipeline of 2"):
        replace(plan, stages=(first,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["stages"][1].update(layers=[[2, 4]]), "layers 2 to 4 .* do not follow the 1 layers"),
        (lambda d: d["stages"][1].update(layers=[[1, 2, 4]]), "first layer and the one behind the last"),
        (lambda d: d["stages"][1].update(layers=[[1, 2], [2, 4]]), "same number of runs"),
        (lambda d: d.update(micro_batch_num=1), "1 micro-batches for 2 pipeline stages"),
    ],
)
def test_a_file_with_a_wrong_pipeline_is_refused(plan, tmp_path, change, message):
    data = json.loads(file.files_of(plan)["plan.json"])
    change(data)
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as caught:
        file.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_python_code_sets_the_stages_of_cells(graph, plan):
    code = python_code(graph, plan)
    compile(code, "shard.py", "exec")
    lines = [line.strip() for line in code.splitlines()]
    assert "net.word_embedding.pipeline_stage = 0" in lines and "net.head.pipeline_stage = 1" in lines
    assert lines.count("block.pipeline_stage = 1") + lines.count("net.layers[2].pipeline_stage = 1") >= 1
    assert '"pipeline_stages": 2,' in lines and "# then: net = mindspore.nn.PipelineCell(net, 4)" in lines


def test_cells_are_named_once_and_lists_never(graph, plan):
    found = stage_cells(graph, plan.pipeline)
    assert {".".join(path): place.stage for path, place in found.items()} == {
        "word_embedding": 0, "layers.0": 0, "layers.1": 1, "layers.2": 1, "layers.3": 1, "norm": 1, "head": 1, "loss": 1,
    }  # fmt: skip
    assert parameters_of_several_stages(graph, plan.pipeline) == ()
    tied = small_graph("gpt2_xl", num_layers=4)
    assert parameters_of_several_stages(tied, plan.pipeline) == ("word_embedding.table",)
