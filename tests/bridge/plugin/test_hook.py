import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import context, nn
from mindspore.parallel.auto_parallel import AutoParallel
from planned import SENS, network, planned, summary

from model_zoo.network import optimizer
from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell, whole_batch
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiled.collectives import collectives
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig, stand_alone_context
from ms_symtensor.bridge.judge.comparison import compare
from ms_symtensor.bridge.plugin import planning
from ms_symtensor.bridge.plugin.hook import install
from ms_symtensor.errors import SymTensorError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.file import save

ROOT = Path(__file__).parents[3]
SYMTENSOR = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor")
install()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """A directory with a plan for eight devices, and the collectives of the network that it was applied to."""
    cell, inputs, graph, plan = planned(
        "llama2_7b", 2, 4, sequence=True, num_layers=1, optimizer_level=OptimizerLevel.LEVEL1
    )
    directory = tmp_path_factory.mktemp("plan")
    save(plan, directory, graph)
    apply(cell, graph, plan)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel_config(plan))
    return directory, summary(program)


@pytest.fixture
def stored(expected, monkeypatch):
    monkeypatch.setenv("SYMTENSOR_STRATEGY", str(expected[0]))
    return expected[1]


def test_the_search_mode_plans_a_training_cell(stored):
    cell, inputs = network(num_layers=1)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=SYMTENSOR)
    assert summary(program) == stored
    assert planning.plan_on(cell).device_num == 8


@pytest.mark.parametrize("inside", [True, False])
def test_auto_parallel_plans_inside_and_around_the_training_cell(stored, inside):
    cell, inputs = network(num_layers=1)
    with ascend_compiler(8), stand_alone_context():
        if inside:
            wrapper = AutoParallel(cell, parallel_mode="symtensor")
            step = nn.TrainOneStepCell(wrapper, optimizer(cell.trainable_params())).set_train()
        else:
            step = wrapper = AutoParallel(training_cell(cell), parallel_mode="symtensor")
            inputs = (*inputs, SENS)
        wrapper.dataset_strategy("full_batch")
        program = compile_rank(step, *inputs, device_num=8)
    assert summary(program) == stored


def test_the_users_own_compile_ends_in_semi_automatic_mode(stored, monkeypatch):
    monkeypatch.setenv("MS_DEV_PRECOMPILE_ONLY", "1")
    cell, inputs = network(num_layers=1)
    step = nn.TrainOneStepCell(cell, optimizer(cell.trainable_params())).set_train()
    for weight in step.get_parameters():
        weight.init_data = lambda *_, weight=weight, **__: weight  # no memory for weights that nobody runs
    with ascend_compiler(8, rank=5), stand_alone_context():
        ms.set_auto_parallel_context(
            search_mode="symtensor", parallel_mode="auto_parallel", device_num=8, global_rank=5, full_batch=True
        )
        assert ms.get_auto_parallel_context("search_mode") == "symtensor"
        step.compile(*inputs)
        assert ms.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"
        assert ms.get_auto_parallel_context("enable_parallel_optimizer")
        assert cell.layers[0].feed_forward.down.matmul.attrs["out_strategy"] == ((8, 1),)
        ms.reset_auto_parallel_context()
        assert ms.get_auto_parallel_context("search_mode") != "symtensor"


def test_slices_of_the_batch_are_planned_at_their_global_shape(stored):
    cell, inputs = network(num_layers=1, batch_size=1)
    parallel = ParallelConfig("auto_parallel", dataset_strategy="data_parallel", search_mode="symtensor")
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel)
    assert planning.plan_on(cell) is not None
    assert program.layout_by_name["output_table"].layout.cuts == (4, 1)


def test_a_network_that_is_planned_already_is_not_planned_again(stored, monkeypatch):
    cell, inputs = network(num_layers=1)
    planning.plan_network(cell, *inputs, device_num=8)
    monkeypatch.setenv("SYMTENSOR_STRATEGY", "/nowhere")
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=SYMTENSOR)
    assert summary(program) == stored


@pytest.mark.parametrize("mode", ["recursive_programming", "sharding_propagation"])
def test_mindspores_own_searches_go_on_working(stored, mode):
    cell, inputs = network(num_layers=1)
    parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode=mode)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel)
    assert planning.plan_on(cell) is None
    assert summary(program) != stored
    with ascend_compiler(8), stand_alone_context():
        assert AutoParallel(cell, mode)._parallel_mode == mode
        with pytest.raises(ValueError, match="parallel_mode"):
            AutoParallel(cell, "unknown")
        with pytest.raises(ValueError, match="search_mode"):
            context.set_auto_parallel_context(search_mode="unknown")


def test_a_search_mode_without_its_parallel_mode_is_told(capsys):
    cell, inputs = network(num_layers=1)
    parallel = ParallelConfig("data_parallel", dataset_strategy="data_parallel", search_mode="symtensor")
    compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=parallel)
    assert planning.plan_on(cell) is None
    assert 'nothing is planned in parallel_mode="data_parallel"' in capsys.readouterr().err


def test_a_forward_network_alone_is_refused_with_what_to_do(stored):
    cell, inputs = network(num_layers=1)
    with pytest.raises(SymTensorError, match=r"no training step is found in RotaryDecoder.*plan_network\(net"):
        compile_rank(cell, *inputs, device_num=8, parallel=SYMTENSOR)


def test_a_plan_for_another_number_of_devices_is_refused(stored):
    cell, inputs = network(num_layers=1)
    with pytest.raises(SymTensorError, match="is for 8 devices, not for 4: plan again for 4"):
        compile_rank(training_cell(cell), *inputs, SENS, device_num=4, parallel=SYMTENSOR)


def test_cells_without_weights_are_left_alone(stored):
    x = ms.Tensor([[1.0] * 16] * 16)
    compile_rank(nn.ReLU(), x, device_num=8, parallel=SYMTENSOR)


@pytest.fixture
def user(monkeypatch):
    """What a user's program does in the search mode on 8 devices, compiled and not run: the network and its inputs."""
    monkeypatch.setenv("MS_DEV_PRECOMPILE_ONLY", "1")
    cell, inputs = network(num_layers=1)
    for weight in cell.get_parameters():
        weight.init_data = lambda *_, weight=weight, **__: weight
    with ascend_compiler(8), stand_alone_context():
        ms.set_auto_parallel_context(
            search_mode="symtensor", parallel_mode="auto_parallel", device_num=8, global_rank=0, full_batch=True
        )
        yield cell, tuple(ms.Tensor(np.zeros(x.shape), x.dtype) for x in inputs)


def functional_step(cell, forward):
    update = optimizer(cell.trainable_params())
    gradients = ms.value_and_grad(forward, None, update.parameters)

    def step(*inputs):
        loss, grads = gradients(*inputs)
        update(grads)
        return loss

    return step


NOT_PLANNED = r"RotaryDecoder is called in a function, and it has no plan.*ms_symtensor\.plan_network\(net, \*inputs\)"


@pytest.mark.parametrize("direct", [True, False])
def test_a_functional_step_goes_on_with_the_plan_of_its_network(stored, user, direct):
    cell, inputs = user

    def forward(*inputs):
        return cell(*inputs)

    step = ms.jit(functional_step(cell, cell if direct else forward))
    with pytest.raises(SymTensorError, match=NOT_PLANNED):
        step(*inputs)
    planning.plan_network(cell, *inputs)
    step(*inputs)
    assert ms.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"
    assert ms.get_auto_parallel_context("enable_parallel_optimizer")


def test_auto_parallel_around_a_function_goes_on_with_the_plan_of_its_network(stored, user):
    cell, inputs = user
    wrapper = AutoParallel(functional_step(cell, cell), parallel_mode="symtensor")
    wrapper.dataset_strategy("full_batch")
    with pytest.raises(SymTensorError, match=NOT_PLANNED):
        wrapper(*inputs)
    planning.plan_network(cell, *inputs, device_num=8)
    wrapper(*inputs)
    assert wrapper._enable_parallel_optimizer


def test_forward_functions_and_parts_of_a_network_compiled_in_pynative_mode(stored, user):
    cell, inputs = user
    ms.set_context(mode=ms.PYNATIVE_MODE)
    hidden = ms.Tensor(np.zeros((16, cell.norm.gamma.shape[0]), np.float32))

    @ms.jit
    def forward(*inputs):
        return cell(*inputs)

    @ms.jit
    def part(x):
        return cell.norm(x)

    for function, given in ((forward, inputs), (part, (hidden,))):
        with pytest.raises(SymTensorError, match="is called in a function, and it has no plan"):
            function(*given)
    planning.plan_network(cell, *inputs)
    forward(*inputs)
    part(hidden)
    assert ms.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"


def test_a_cell_compiled_in_pynative_mode_is_planned(stored, user):
    cell, inputs = user

    class Step(nn.Cell):
        def __init__(self):
            super().__init__(auto_prefix=False)
            self.network = cell
            self.optimizer = optimizer(cell.trainable_params())
            self.gradients = ms.value_and_grad(cell, None, self.optimizer.parameters)

        @ms.jit
        def construct(self, *inputs):
            loss, grads = self.gradients(*inputs)
            self.optimizer(grads)
            return loss

    ms.set_context(mode=ms.PYNATIVE_MODE)
    Step()(*inputs)
    assert planning.plan_on(cell).device_num == 8
    assert ms.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"


def test_the_rest_of_a_dataset_that_the_plan_does_not_divide_is_told(stored, user):
    cell, inputs = user
    step = nn.TrainOneStepCell(cell, optimizer(cell.trainable_params())).set_train()
    for weight in step.get_parameters():
        weight.init_data = lambda *_, weight=weight, **__: weight
    step.compile(*inputs)
    step.compile(*(ms.Tensor(x.asnumpy()[:2]) for x in inputs))  # two copies of the data: they divide two samples
    with pytest.raises(
        SymTensorError, match=r"\[3, .* do not fit the plan, which was made for \[8, .*drop_remainder=True"
    ):
        step.compile(*(ms.Tensor(x.asnumpy()[:3]) for x in inputs))


class WithLoss(nn.Cell):
    """Around a network, as MindSpore's Model puts its loss."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs):
        return self.network(*inputs)


def test_auto_parallel_around_a_network_without_its_loss_is_planned_with_it(user, monkeypatch):
    monkeypatch.delenv("SYMTENSOR_STRATEGY", raising=False)
    cell, inputs = user
    wrapper = AutoParallel(cell, parallel_mode="symtensor")
    wrapper.dataset_strategy("full_batch")
    with_loss = WithLoss(wrapper)
    nn.TrainOneStepCell(with_loss, optimizer(cell.trainable_params())).set_train()(*inputs)
    assert planning.plan_on(with_loss).device_num == 8


def test_functions_without_weights_are_left_alone(stored, user):
    @ms.jit
    def relu(x):
        return nn.ReLU()(x)

    relu(ms.Tensor(np.ones((16, 16), np.float32)))
    assert ms.get_auto_parallel_context("parallel_mode") == "auto_parallel"


def test_without_a_saved_plan_one_is_searched_and_compiles_as_predicted(monkeypatch):
    monkeypatch.delenv("SYMTENSOR_STRATEGY", raising=False)
    cell, inputs = network(num_layers=1)
    graph = capture(cell, *inputs)
    program = compile_rank(training_cell(cell), *inputs, SENS, device_num=8, parallel=SYMTENSOR)
    predicted = partition(graph, planning.plan_on(cell).stage).collectives()
    compiled = Counter((c.kind, c.ranks, max(c.input_B, c.output_B)) for c in collectives(program))
    assert compiled == Counter((c.kind, c.ranks, c.size_B) for c in predicted)


def test_every_rank_finds_the_same_plan(tmp_path):
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from planned import SENS, network
import ms_symtensor
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell, whole_batch
from ms_symtensor.bridge.apply.training import training_cell
cell, inputs = network(num_layers=1)
parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor")
compile_rank(training_cell(cell), *inputs, SENS, device_num=4, rank=int(sys.argv[1]), parallel=parallel)
"""
    environment = {name: value for name, value in os.environ.items() if name != "SYMTENSOR_STRATEGY"}
    for rank in (0, 3):
        own = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(rank), "SYMTENSOR_SAVE": str(tmp_path / str(rank))}
        subprocess.run([sys.executable, "-c", script, str(rank)], check=True, cwd=ROOT, env={**environment, **own})
    for name in ("plan.json", "graph.json"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()


def test_installing_does_not_import_mindspore_and_waits_for_its_import():
    script = """
import importlib.util, sys
from ms_symtensor.bridge.plugin.hook import install
install(); install()
assert "mindspore" not in sys.modules
assert importlib.util.find_spec("mindspore") is not None
import mindspore
from mindspore.parallel.auto_parallel import AutoParallel
mindspore.set_auto_parallel_context(search_mode="symtensor")
assert mindspore.get_auto_parallel_context("search_mode") == "symtensor"
assert hasattr(AutoParallel.__init__, "__wrapped__") and not hasattr(AutoParallel.__init__.__wrapped__, "__wrapped__")
install()
assert not hasattr(AutoParallel.__init__.__wrapped__, "__wrapped__")
assert not any("ms_symtensor" in type(finder).__module__ for finder in sys.meta_path)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_the_search_mode_plans_the_stages_of_a_pipeline_cell():
    cell, inputs = network()
    step = pipeline_training_cell(cell, Pipeline(runs_of((1, 1)), 3))
    parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor", pipeline_stages=2)
    program = compile_rank(step, *whole_batch(inputs, 3), SENS, device_num=4, rank=2, parallel=parallel)
    plan = planning.plan_on(cell)
    assert (plan.pipeline_stages, plan.micro_batch_num, plan.device_num) == (2, 3, 4)
    found = Counter(c.kind for c in collectives(program))
    assert found["Receive"] == found["Send"] == 3


def planned_as_predicted(cell, inputs, layers):
    """The plan that the search mode finds for `cell` in two stages and two micro-batches, compiled as it predicts."""
    graph = capture(cell, *inputs)
    step = pipeline_training_cell(cell, Pipeline(runs_of(layers), 2))
    parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor", pipeline_stages=2)
    for rank in (0, 2):
        compiled = compile_rank(step, *whole_batch(inputs, 2), SENS, device_num=4, rank=rank, parallel=parallel)
        plan = planning.plan_on(cell)
        (stage,) = (one for one in partition_stages(graph, plan.stages, plan.pipeline) if rank in one.ranks)
        found = compare(graph, stage, compiled)
        assert found.equal
        assert found.compiled_activations_B == pytest.approx(found.predicted_activations_B, rel=0.01)
    return plan


@pytest.mark.matrix
def test_blocks_of_a_pipeline_cell_are_recomputed_in_part(monkeypatch):
    monkeypatch.setenv("SYMTENSOR_MEMORY_LIMIT_GIB", "1.35")
    plan = planned_as_predicted(*network(num_layers=4, seq_length=1024), (2, 2))
    assert plan.settings.recompute and all(recomputation.in_part for recomputation in plan.settings.recompute.values())


@pytest.mark.matrix
def test_what_is_written_in_the_network_gives_way_to_the_plan(monkeypatch):
    monkeypatch.setattr(planning, "_configured", {"replace_shard": True})
    cell, inputs = network()
    for stage, layer in enumerate(cell.layers):
        layer.pipeline_stage = stage
        layer.recompute(mp_comm_recompute=False, parallel_optimizer_comm_recompute=True)
        layer.feed_forward.down.matmul.shard(((4, 1), (1, 1)))
    assert not planned_as_predicted(cell, inputs, (1, 1)).settings.recompute


def test_the_search_mode_plans_micro_batches_on_one_stage():
    cell, inputs = network()
    step = pipeline_training_cell(cell, Pipeline(runs_of((2,)), 2))
    parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor")
    compile_rank(step, *whole_batch(inputs, 2), SENS, device_num=4, rank=2, parallel=parallel)
    plan = planning.plan_on(cell)
    assert (plan.pipeline_stages, plan.micro_batch_num, plan.device_num) == (1, 2, 4)
    assert plan.pipeline.layer_num == 2


def test_a_saved_plan_in_micro_batches_wants_a_network_in_micro_batches(tmp_path, monkeypatch):
    cell, inputs = network()
    inputs = whole_batch(inputs, 4)
    planning.plan_network(cell, *inputs, device_num=4, micro_batch_num=4, save=tmp_path)
    planning.forget(cell)
    monkeypatch.setenv("SYMTENSOR_STRATEGY", str(tmp_path))
    parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor")
    with pytest.raises(SymTensorError, match=r"wrap the forward network in GradAccumulationCell\(network, 4\)"):
        compile_rank(training_cell(cell), *inputs, SENS, device_num=4, parallel=parallel)
    assert planning.plan_on(cell) is None


def test_stages_without_micro_batches_are_refused():
    cell, inputs = network()
    parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode="symtensor", pipeline_stages=2)
    with pytest.raises(SymTensorError, match="2 pipeline stages and 1 micro-batches"):
        compile_rank(training_cell(cell), *inputs, SENS, device_num=4, parallel=parallel)
