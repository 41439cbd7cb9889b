"""A stand-in for hyper-parallel 1.0, of which MindFormers imports its meshes, sharding, pipelines and context parallelism.

Used only where the package itself is not installed (it is not on PyPI). It has the classes that MindFormers calls; what they
would send is recorded as *modelled*, each kind with the file of hyper-parallel that it follows (`SOURCES`).
"""

SOURCES = {
    "fully_shard": "hyper_parallel/platform/mindspore/fully_shard/state.py and param.py: one all-gather per parameter, "
    "one reduce-scatter per parameter in float32, an all-reduce over replicas",
    "context_parallel": "hyper_parallel/core/context_parallel/context_parallel.py: colossal gathers K and V, "
    "ulysses sends Q, K, V and the output by all-to-all, hybrid does both",
    "pipeline": "hyper_parallel/core/pipeline_parallel/stage.py: one send and one receive per border and micro-batch",
}
