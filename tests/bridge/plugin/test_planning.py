import pytest
from planned import network, planned

from ms_symtensor.bridge.apply.apply import strategies_of
from ms_symtensor.bridge.apply.pipeline_network import whole_batch
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.judge.verify import verify
from ms_symtensor.bridge.plugin import planning
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.strategy.file import load, save
from ms_symtensor.strategy.primitives import context_settings


@pytest.fixture
def directory(tmp_path):
    _, _, graph, plan = planned("llama2_7b", 2, 4)
    save(plan, tmp_path, graph)
    return tmp_path


def test_a_stored_plan_applies_to_a_network(directory):
    cell, inputs = network()
    stored = planning.load_plan(directory)
    stored.apply(cell, *inputs)
    assert strategies_of(cell, capture(cell, *inputs)) == stored.plan.stage.strategies


def test_a_stored_plan_is_a_plan(directory, tmp_path):
    """As README has it: what goes on with the plan is given what was loaded."""
    stored = planning.load_plan(directory)
    assert stored.plan == load(directory)
    context = context_settings(stored.settings, stored.pipeline)
    assert context["parallel_mode"] == "semi_auto_parallel" and "pipeline_stages" not in context
    with pytest.raises(InputError, match="the plan is for graph"):  # its source says a model of another size
        verify(stored, stored.graph)
    save(stored, tmp_path / "copy", stored.graph)
    assert planning.load_plan(tmp_path / "copy") == stored


def test_what_is_no_plan_is_told():
    for use, told in (
        (planning.load_plan, "load_plan takes the path of a directory, and was given 3"),
        (verify, "found a int in place of a plan"),
        (context_settings, r"context_settings takes \(plan.settings, plan.pipeline\), and was given \(int, NoneType\)"),
    ):
        with pytest.raises(InputError, match=told):
            use(3)


def test_a_stored_plan_names_the_operator_that_differs(directory):
    cell, inputs = network(hidden_size=512)
    with pytest.raises(InputError, match="first difference: .*Gather-op0 gave"):
        planning.load_plan(directory).apply(cell, *inputs)


def test_a_saved_plan_that_was_changed_is_named_and_used_if_asked(directory, monkeypatch):
    monkeypatch.setattr(planning, "_configured", {})
    text = (directory / "plan.json").read_text()
    (directory / "plan.json").write_text(text.replace('"model_parallel": 4', '"model_parallel": 8'))
    cell, inputs = network()
    for use in (planning.load_plan, lambda path: planning.plan_network(cell, *inputs, device_num=8, strategy=path)):
        with pytest.raises(InputError, match="plan.json differs: .*edited=True"):
            use(directory)
    assert planning.load_plan(directory, edited=True).model_parallel == 8
    monkeypatch.setenv("SYMTENSOR_EDITED", "1")
    assert planning.plan_network(cell, *inputs, device_num=8, strategy=directory).model_parallel == 8
    monkeypatch.setenv("SYMTENSOR_EDITED", "0")
    planning.forget(cell)
    planning.plan_network(cell, *inputs, device_num=8, strategy=directory, edited=True)


def test_a_network_is_planned_from_a_file_and_the_plan_is_written(directory, tmp_path):
    cell, inputs = network()
    plan = planning.plan_network(cell, *inputs, device_num=8, strategy=directory, save=tmp_path / "copy")
    assert planning.plan_on(cell) == plan
    assert planning.load_plan(tmp_path / "copy") == planning.load_plan(directory)
    planning.forget(cell)
    assert planning.plan_on(cell) is None and strategies_of(cell, capture(cell, *inputs)) == {}


def test_options_come_from_the_environment_and_then_from_configure(monkeypatch):
    monkeypatch.setattr(planning, "_configured", {})
    monkeypatch.setenv("SYMTENSOR_CLUSTER", "ascend910a")
    monkeypatch.setenv("SYMTENSOR_MEMORY_LIMIT_GIB", "1.5")
    monkeypatch.setenv("SYMTENSOR_REPLACE_SHARD", "1")
    assert planning.current_options() == planning.Options("ascend910a", memory_limit_B=3 << 29, replace_shard=True)
    monkeypatch.setenv("SYMTENSOR_REPLACE_SHARD", "yes")
    with pytest.raises(InputError, match="SYMTENSOR_REPLACE_SHARD is 'yes': give 1, or 0"):
        planning.current_options()
    monkeypatch.setenv("SYMTENSOR_REPLACE_SHARD", "0")
    planning.configure(cluster="atlas_800t_a3", strategy="/a/plan")
    assert planning.current_options().cluster == "atlas_800t_a3"


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"clustre": "x"}, "unknown option 'clustre'; known: cluster"),
        ({"memory_limit_B": "56"}, "memory_limit_B is '56': give a number of bytes"),
        ({"fix": ["model_parallel=2"]}, "fix is .*: give a mapping"),
        ({"at_most": "model_parallel=2"}, "at_most is .*: give a mapping"),
        ({"fix": {"foo": 1}}, "foo cannot be pinned: known are pipeline_stages"),
        ({"cluster": 3}, "cluster is 3: give a name or a path"),
        ({"strategy": 3}, "strategy is 3: give a name or a path"),
        ({"save": 3}, "save is 3: give a name or a path"),
        ({"edited": "yes"}, "edited is 'yes': give True or False"),
        ({"replace_shard": "yes"}, "replace_shard is 'yes': give True or False"),
    ],
)
def test_what_is_no_option(option, told, monkeypatch):
    monkeypatch.setattr(planning, "_configured", {})
    with pytest.raises(InputError, match=told):
        planning.configure(**option)
    assert planning.current_options() == planning.Options()
    with pytest.raises(InputError, match=told):
        planning.plan_network(None, device_num=8, **option)


@pytest.mark.parametrize("wrong", [{"device_num": "4"}, {"pipeline_stages": 0}, {"micro_batch_num": 2.0}])
def test_numbers_that_are_none(wrong):
    cell, inputs = network()
    with pytest.raises(InputError, match="give a positive whole number"):
        planning.plan_network(cell, *inputs, **{"device_num": 8, **wrong})


@pytest.mark.parametrize("limit", ["much", "-1", "nan", "inf", "0"])
def test_a_memory_limit_must_be_a_number(limit, monkeypatch):
    monkeypatch.setenv("SYMTENSOR_MEMORY_LIMIT_GIB", limit)
    with pytest.raises(InputError, match="SYMTENSOR_MEMORY_LIMIT_GIB"):
        planning.current_options()


def test_stages_without_micro_batches_are_refused():
    cell, inputs = network()
    with pytest.raises(InputError, match="2 stages want at least as many micro-batches, not 1; nearest that work"):
        planning.plan_network(cell, *inputs, device_num=8, pipeline_stages=2)
    assert planning.plan_on(cell) is None


def test_what_fits_in_place_of_stages_that_do_not_is_told():
    cell, inputs = network(num_layers=6, seq_length=1024)
    with pytest.raises(InfeasibleError, match=r"a device of stage 0 needs 1\.2 GiB.*; what fits: 8 devices"):
        planning.plan_network(
            cell, *whole_batch(inputs, 4), device_num=4, pipeline_stages=2, micro_batch_num=4, memory_limit_B=1 << 30
        )
    assert planning.plan_on(cell) is None
