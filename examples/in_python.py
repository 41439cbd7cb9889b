"""Capture, plan and apply in Python: prints the degrees of the plan and how long a step takes."""

import tempfile

import mindspore
from mlp import factory

import ms_symtensor

net, inputs = factory()
graph = ms_symtensor.capture(net, *inputs)
cluster = ms_symtensor.load_cluster("atlas_800t_a2")
plan = ms_symtensor.plan(graph, cluster, device_num=4, global_batch_size=64, seq_length=1)
print(f"data_parallel {plan.data_parallel}, model_parallel {plan.model_parallel}")
print(f"predicted step: {1e3 * plan.prediction.step_time_s:.3f} ms")

with tempfile.TemporaryDirectory() as folder:
    ms_symtensor.save_plan(plan, f"{folder}/mlp", graph)
    ms_symtensor.load_plan(f"{folder}/mlp").apply(net, *inputs)  # shard() and recompute()
settings = ms_symtensor.context_settings(plan.stage.settings)
mindspore.set_auto_parallel_context(device_num=4, **settings)
