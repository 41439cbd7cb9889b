"""Equal operators are one in a captured graph, which tells who reads which copy of those that gradients go through."""

import gc

import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from ms_symtensor.bridge.capture import merging
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.errors import InputError
from ms_symtensor.garbage_collection import has_frozen
from ms_symtensor.tensor.copies import COPIES
from ms_symtensor.tensor.graph_file import from_json, to_json


class Twice(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.drop = nn.Dense(8, 8), nn.Dropout(p=0.5)

    def construct(self, x):
        h = self.dense(x)
        free = ops.silu(x).sum() + ops.silu(x).mean()
        drawn = self.drop(h).sum() + self.drop(h).mean()
        return ops.silu(h).sum() + ops.silu(h).mean() + free + drawn


def test_who_reads_which_copy():
    cell, x = Twice(), Tensor(np.ones((4, 8), np.float32))
    graph = capture(cell, x)
    kinds = [op.type for op in graph.ops]
    assert kinds.count("SiLU") == 2  # of the layer's result and of the input, which needs no gradient
    assert kinds.count("Dropout") == 2  # each draws its own numbers
    ((_, copies),) = graph.attributes
    ((first, readers),) = copies
    (of_layer,) = (op.name for op in graph.ops if op.type == "SiLU" and "BiasAdd" in str(op.inputs))
    assert (first, len(readers)) == (of_layer, 1)
    assert graph.op_by_name[readers[0]].type in ("SumExt", "ReduceSum", "ReduceMean")
    assert capture(cell, x) == graph == from_json(to_json(graph))
    assert not any("side_effect" in name for op in graph.ops if op.type != "Dropout" for name, _ in op.attributes)


def test_primitives_that_are_frozen_are_found():
    x = Tensor(np.ones((4, 8), np.float32))
    merging._of_functions.cache_clear()
    gc.freeze()
    try:
        graph = capture(Twice(), x)
        assert has_frozen()
    finally:
        gc.unfreeze()
    assert [name for name, _ in graph.attributes] == [COPIES]
    merging._of_functions.cache_clear()
    assert capture(Twice(), x) == graph
    assert not has_frozen()


def test_damaged_copies_are_refused():
    data = to_json(capture(Twice(), Tensor(np.ones((4, 8), np.float32))))
    for damaged in (3, [[]], [[1]], [["a", "b"]], [["a", [1]]]):
        data["attributes"] = [[COPIES, damaged]]
        with pytest.raises(InputError, match="damaged graph"):
            from_json(data)
