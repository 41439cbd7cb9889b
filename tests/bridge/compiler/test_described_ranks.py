"""The ranks and groups of a described cluster, and the compiler's names for them."""

import pytest

from ms_symtensor.bridge.compiler.described_ranks import Cluster, group_name
from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.layout import DeviceGroup


def test_group_names_are_those_of_the_compiler():
    assert group_name((4, 5, 6, 7)) == "4-15700679239691767905"
    assert group_name((1, 5)) == "2-12944936785892925600"


@pytest.mark.parametrize(
    ("device_matrix", "axes"),
    [((2, 4), (0,)), ((2, 4), (1,)), ((3, 2, 4), (0, 2)), ((2, 2, 2, 2), (0, 2)), ((64, 64), (0,))],
)
def test_cluster_knows_the_members_of_every_group_of_a_device_matrix(device_matrix, axes):
    group = DeviceGroup(device_matrix, axes)
    device_num = DeviceGroup(device_matrix, tuple(range(len(device_matrix)))).size
    for rank in (0, 1, device_num - 1):
        cluster = Cluster(device_num, rank)
        name = group_name(group.ranks(rank))
        assert cluster.ranks(name) == group.ranks(rank)
        assert cluster.get_rank_size(name) == group.size
        assert cluster.get_rank_id(name) == group.ranks(rank).index(rank)
        assert cluster.get_world_rank_from_group_rank(name, group.size - 1) == group.ranks(rank)[-1]


def test_groups_made_by_the_network_are_recorded():
    cluster = Cluster(8, 5)
    cluster.create_group("mine", 3, [7, 5, 0])
    assert cluster.ranks("mine") == (0, 5, 7)
    assert cluster.get_rank_id("mine") == 1


def test_unknown_group_is_an_error():
    with pytest.raises(CompilerError, match="which nobody described"):
        Cluster(8, 0).ranks("4-123")
    with pytest.raises(CompilerError, match="'tensor-group', which was not created"):
        Cluster(8, 0).get_rank_size("tensor-group")


def test_groups_of_interleaved_stages_and_a_users_own_with_the_same_ending():
    cluster = Cluster(8, 1)
    cluster.create_group("mySend", 2, (1, 3))
    assert cluster.ranks(f"{group_name((1, 5))}Send") == (1, 5)
    assert cluster.ranks("mySend") == (1, 3)
