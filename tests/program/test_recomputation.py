"""Which operators of a recomputed block are computed again."""

import pytest

from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute
from tests.program.zoo import collectives, program, small_graph

ALL = Recompute()
PRODUCTS = tuple(f"attention.{name}.matmul" for name in ("query", "key", "value", "output")) + tuple(
    f"feed_forward.{name}.matmul" for name in ("gate", "up")
)


def _again(found, role=Role.WORK):
    return {
        n.op.rsplit("/", 2)[-2].rsplit("-", 1)[-1] + "/" + n.kind for n in found.nodes if _is_copy(n) and n.role is role
    }


def _is_copy(node):
    return node.phase is Phase.RECOMPUTE


def test_operators_are_named_within_their_block():
    names = {name_in_block(op) for op in small_graph("llama2_7b").ops if op.block == "layers.1" and is_selectable(op)}
    assert {*PRODUCTS, "attention_norm.norm", "feed_forward.silu"} <= names
    outside = next(op for op in small_graph("llama2_7b").ops if op.block is None)
    assert name_in_block(outside) == outside.name


def test_what_is_kept_has_no_copy():
    again = dict.fromkeys(("layers.0", "layers.1"), Recompute(kept=PRODUCTS))
    found = program("llama2_7b", 8, 1, recompute=again)
    assert not any(kind.endswith("/MatMul") for kind in _again(found))
    assert {kind.rsplit("/")[-1] for kind in _again(found)} >= {"RmsNorm", "SiLU", "Mul"}


def test_a_selection_keeps_more_than_the_whole_block_and_less_than_nothing():
    blocks = ("layers.0", "layers.1")
    peaks = [
        activation_peak_B(program("llama2_7b", 2, 1, recompute=again))
        for again in (dict.fromkeys(blocks, ALL), dict.fromkeys(blocks, Recompute(kept=PRODUCTS)), {})
    ]
    assert peaks == sorted(peaks) and len({*peaks}) == 3


@pytest.mark.parametrize(("kept", "sums"), [((), 1), (("attention.output.matmul",), 0)])
def test_the_sum_behind_an_operator_can_be_kept(kept, sums):
    """The sum behind attention has a copy because the norm behind it has; that behind the feed-forward delivers the result."""
    found = program("llama2_7b", 2, 4, recompute={"layers.1": Recompute(kept_communication=kept)})
    assert (
        collectives(found, phase=Phase.RECOMPUTE) == {"AllReduce": sums}
        if sums
        else not collectives(found, phase=Phase.RECOMPUTE)
    )


def test_equal_selections_make_equal_blocks():
    again = dict.fromkeys(("layers.0", "layers.1"), Recompute(kept=PRODUCTS[:3]))
    found = program("llama2_7b", 2, 4, sequence=True, recompute=again)
    first, second = (
        [n.kind for n in found.nodes if n.phase is Phase.RECOMPUTE and n.block == b and n.role is Role.WORK]
        for b in again
    )
    assert sorted(first) == sorted(second)
