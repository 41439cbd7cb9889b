from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.algebra import symbols
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import group_sizes, lattice_sizes
from ms_symtensor.errors import InputError

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize(
    "cluster, ranks, sizes",
    [
        ("atlas_800t_a2", (5,), (1, 1)),
        ("atlas_800t_a2", tuple(range(8)), (8, 1)),
        ("atlas_800t_a2", tuple(range(16)), (8, 2)),
        ("atlas_800t_a2", tuple(range(0, 64, 8)), (1, 8)),
        ("atlas_800t_a2", (0, 2, 8, 10), (2, 2)),
        ("atlas_800t_a2", (7, 8), (1, 2)),
        ("atlas_800t_a2", (0, 1, 2, 8), (1, 4)),  # uneven: flat over the nodes
        ("ascend910a", tuple(range(16)), (4, 2, 2)),
        ("ascend910a", (0, 4), (1, 2, 1)),
        ("ascend910a", (0, 4, 8), (1, 1, 3)),  # uneven at the middle level
        ("atlas_800t_a3", tuple(range(768)), (2, 192, 2)),
        ("cloudmatrix384", tuple(range(768)), (2, 384, 1)),
    ],
)
def test_members_per_level(cluster, ranks, sizes):
    assert group_sizes(load(cluster), ranks) == sizes


@given(st.sets(st.integers(0, 63), min_size=1), st.sampled_from(["atlas_800t_a2", "ascend910a", "atlas_800t_a3"]))
def test_the_product_is_the_number_of_ranks(ranks, name):
    product = 1
    for size in group_sizes(load(name), tuple(ranks)):
        product *= size
    assert product == len(ranks)


@pytest.mark.parametrize("ranks", [(), (1, 1), (-1, 0)])
def test_impossible_groups(ranks):
    with pytest.raises(InputError, match="distinct and not negative"):
        group_sizes(A2, ranks)


@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 3, 4, 5, 8, 16)), st.sampled_from((1, 2, 3, 4))), max_size=3),
    st.sampled_from(("atlas_800t_a2", "atlas_800t_a3", "cloudmatrix384")),
)
def test_a_lattice_has_the_sizes_of_its_ranks(steps, name):
    """Axes with strides that grow by whole factors, as those of a device matrix."""
    cluster, axes, stride = load(name), [], 1
    for count, factor in steps:
        stride *= factor
        axes.append((count, stride))
        stride *= count
    ranks = [0]
    for count, distance in axes:
        ranks = [rank + i * distance for i in range(count) for rank in ranks]
    if cluster.max_ranks is None or max(ranks) < cluster.max_ranks:
        assert lattice_sizes(cluster, tuple(axes)) == group_sizes(cluster, tuple(sorted(ranks)))


def test_a_lattice_may_lie_beyond_the_devices():
    """The outermost level has no bound there; the groups of a plan are those of `group_sizes`."""
    node = replace(A2, levels=A2.levels[:1])
    assert lattice_sizes(node, ((4, 4),)) == (4,)
    assert lattice_sizes(load("cloudmatrix384"), ((2, 1), (4, 1024))) == (2, 1, 4)
    with pytest.raises(InputError, match="rank 12 is beyond cluster"):
        group_sizes(node, (0, 4, 8, 12))


def test_values_cover_the_symbols_of_device_and_levels():
    assert A2.values[symbols.bandwidth("node")] == pytest.approx(18.2e9)
    assert A2.values[symbols.F_cube] == A2.device.cube_peak_FLOPs
    assert A2.arguments["alpha_roce"] == A2.levels[1].latency_s
