"""ms_symtensor finds the sharding strategy of a large model for MindSpore, and has MindSpore's own compiler check it.

Importing it makes `search_mode="symtensor"` and `AutoParallel(net, parallel_mode="symtensor")` known to MindSpore, which
is not imported by that. Names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ms_symtensor.bridge.plugin.hook import install
from ms_symtensor.version import VERSION

if TYPE_CHECKING:
    from ms_symtensor.bridge.capture.capture import capture
    from ms_symtensor.bridge.compiler.host import described_cluster
    from ms_symtensor.bridge.judge.audit import audit
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.bridge.plugin.planning import configure, count_over_batch, load_plan, plan_network
    from ms_symtensor.cluster.load import load as load_cluster
    from ms_symtensor.ops.registry import register
    from ms_symtensor.search.plan import plan
    from ms_symtensor.strategy.file import save as save_plan
    from ms_symtensor.strategy.primitives import context_settings
    from ms_symtensor.tensor.graph_file import load as load_graph
    from ms_symtensor.tensor.graph_file import save as save_graph

__version__ = VERSION
__all__ = [
    "audit",
    "capture",
    "configure",
    "context_settings",
    "count_over_batch",
    "described_cluster",
    "load_cluster",
    "load_graph",
    "load_plan",
    "plan",
    "plan_network",
    "register",
    "save_graph",
    "save_plan",
    "verify",
]

_HOME = {
    "audit": "bridge.judge.audit:audit",
    "capture": "bridge.capture.capture:capture",
    "configure": "bridge.plugin.planning:configure",
    "context_settings": "strategy.primitives:context_settings",
    "count_over_batch": "bridge.plugin.planning:count_over_batch",
    "described_cluster": "bridge.compiler.host:described_cluster",
    "load_cluster": "cluster.load:load",
    "load_graph": "tensor.graph_file:load",
    "load_plan": "bridge.plugin.planning:load_plan",
    "plan": "search.plan:plan",
    "plan_network": "bridge.plugin.planning:plan_network",
    "register": "ops.registry:register",
    "save_graph": "tensor.graph_file:save",
    "save_plan": "strategy.file:save",
    "verify": "bridge.judge.verify:verify",
}

install()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, member = _HOME[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), member)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
