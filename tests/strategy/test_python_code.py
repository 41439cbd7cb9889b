"""The code is run on a stand-in for the network: objects that remember what they were given."""

from dataclasses import replace

import pytest
from plans import hand_written, plan_of, small_graph

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Recompute
from ms_symtensor.strategy.primitives import context_settings
from ms_symtensor.strategy.python_code import python_code


class Recorder:
    """Any attribute or index is a further recorder; a call is noted with the path that it was made on."""

    def __init__(self, calls, path=()):
        self._calls, self._path = calls, path

    def __getattr__(self, name):
        return Recorder(self._calls, (*self._path, name))

    def __getitem__(self, index):
        return Recorder(self._calls, (*self._path, str(index)))

    def __call__(self, *arguments, **settings):
        *path, method = self._path
        self._calls[(method, *path)] = (arguments, settings)


def run(code):
    names, calls = {}, {}
    exec(compile(code, "plan", "exec"), names)
    names["shard"](Recorder(calls))
    return names["SETTINGS"], calls


@pytest.mark.parametrize("name", ["llama2_7b", "gpt2_xl", "bert_large"])
@pytest.mark.parametrize("sequence", [False, True])
def test_running_the_code_gives_the_strategies_of_the_plan(name, sequence):
    graph, plan = hand_written(name, 2, 4, sequence, level=2, recompute=True, attention="self")
    settings, calls = run(python_code(graph, plan))
    assert settings == {"device_num": 8} | context_settings(plan.stage.settings)
    for op in graph.ops:
        strategy = plan.stage.strategies.get(op.name)
        given = calls.pop(("shard", *op.cell, op.primitive), None)
        if strategy is None:
            assert given is None
        else:
            assert OpStrategy(*given[0]) == strategy
    assert calls.pop(("recompute", "layers", "0")) == ((), {"mp_comm_recompute": True})
    assert list(calls) == [("recompute", "layers", "1")]


def test_equal_blocks_become_one_loop():
    graph, plan = hand_written("llama2_7b", 2, 4, attention="self", num_layers=6)
    code = python_code(graph, plan)
    assert code.count("for index in range(6):") == 1 and code.count("attention.query.matmul.shard") == 1


def test_blocks_that_differ_are_told_apart():
    graph, plan = hand_written("llama2_7b", 2, 4, attention="self", num_layers=6)
    settings = replace(plan.stage.settings, recompute={"layers.1": Recompute(), "layers.4": Recompute(False)})
    code = python_code(graph, replace(plan, stages=(replace(plan.stage, settings=settings),)))
    assert "for index in (0, 2, 3, 5):" in code
    assert "net.layers[1].recompute(mp_comm_recompute=True)" in code
    assert "net.layers[4].recompute(mp_comm_recompute=False)" in code


def on_the_fly(strategy):
    """A graph in which the last operator of the first norm has no primitive, and a plan for it."""
    graph = small_graph("llama2_7b", attention="self")
    name = "Default/norm-Norm/RmsNorm-op0"
    ops = tuple(replace(op, cell=(), primitive="") if op.name == name else op for op in graph.ops)
    changed = replace(graph, ops=ops)
    return changed, plan_of(changed, {name: strategy}, 8)


def test_an_operator_made_on_the_fly_cannot_be_given_a_strategy():
    with pytest.raises(InvalidStrategyError, match="RmsNorm-op0.*functional.*primitive of its cell"):
        python_code(*on_the_fly(OpStrategy(((4, 1), (1,)))))
    assert "norm" not in python_code(*on_the_fly(OpStrategy(((8, 1), (1,))))).split("def shard")[1]


def test_operators_of_one_primitive_must_agree():
    graph, plan = hand_written("llama2_7b", 2, 4, attention="self")
    first, second = (f"Default/layers-CellList/{i}-TransformerBlock/attention_norm-Norm/RmsNorm-op0" for i in (0, 1))
    shared = graph.op_by_name[first]
    ops = tuple(replace(op, cell=shared.cell, block=shared.block) if op.name == second else op for op in graph.ops)
    strategies = dict(plan.stage.strategies) | {second: OpStrategy(((8, 1), (1,)))}
    changed = replace(graph, ops=ops)
    with pytest.raises(InvalidStrategyError, match="layers.0.attention_norm.norm, but need different strategies"):
        python_code(changed, plan_of(changed, strategies, 8))


def test_what_a_block_keeps_is_written_on_its_primitives():
    graph, plan = hand_written("llama2_7b", 2, 4)
    chosen = Recompute(True, ("attention.query.matmul",), ("attention.output.matmul",))
    settings = replace(plan.stage.settings, recompute=dict.fromkeys(("layers.0", "layers.1"), chosen))
    code = python_code(graph, replace(plan, stages=(replace(plan.stage, settings=settings),)))
    lines = [line.strip() for line in code.splitlines()]
    first = lines.index("block.recompute(mp_comm_recompute=True)")
    assert lines[first + 1 : first + 3] == [
        "block.attention.query.matmul.recompute(False)",
        'block.attention.output.matmul.add_prim_attr("recompute_comm_op", False)',
    ]


INJECTED = (
    '"""\nraise SystemExit("run")\n"""',
    "'\nraise SystemExit('run')\n'",
    "x)\nraise SystemExit(1)#",
    "layers[0]; raise SystemExit",
    "a\x00b\u202e",
    "\\",
    "lambda",
    "²",
    "000",
    "9" * 5000,
)


@pytest.mark.parametrize("name", INJECTED)
def test_names_are_text_or_attributes_and_never_code(name):
    """Wherever a name of a graph, a plan or a cluster goes, the code does the same as with any other."""
    graph, plan = hand_written("llama2_7b", 2, 4)
    of_block = [op for op in graph.ops if op.cell[:2] == ("layers", "1")]
    renamed = {
        op.name: replace(op, cell=("blocks", name, *op.cell[2:]), block=f"blocks.{name}", primitive=f"{name}{number}")
        for number, op in enumerate(of_block)
    }
    changed = replace(graph, name=name, ops=tuple(renamed.get(op.name, op) for op in graph.ops))
    recompute = {f"blocks.{name}": Recompute(only=(name,))}
    stage = replace(plan.stage, settings=replace(plan.stage.settings, recompute=recompute))
    settings, calls = run(python_code(changed, replace(plan, model=name, cluster=name, stages=(stage,))))
    assert settings["device_num"] == 8
    assert ("recompute", "blocks", name, name) in calls
    for op in renamed.values():
        assert (("shard", *op.cell, op.primitive) in calls) == (op.name in plan.stage.strategies)


def test_operators_that_are_recomputed_alone_are_marked_and_not_their_block():
    graph, plan = hand_written("llama2_7b", 2, 4)
    chosen = Recompute(only=("feed_forward.silu", "feed_forward.mul"))
    settings = replace(plan.stage.settings, recompute={"layers.1": chosen})
    code = python_code(graph, replace(plan, stages=(replace(plan.stage, settings=settings),)))
    lines = [line.strip() for line in code.splitlines() if "recompute" in line and "SETTINGS" not in line]
    assert lines[-2:] == [f"net.layers[1].feed_forward.{name}.recompute()" for name in ("silu", "mul")]
    assert not any("mp_comm_recompute" in line for line in lines)
