"""Which meshes a representative stands for."""

from ms_symtensor.search.stages.families import stands_for


def test_sizes_that_axes_divide_alike():
    assert stands_for((4, 2), (4096, 48), (2, 2), (4096, 48))
    assert stands_for((4, 2), (4096, 25), (8, 8), (4096, 25))


def test_a_size_that_only_one_of_the_meshes_divides():
    assert not stands_for((4, 2), (4096, 6), (2, 2), (4096, 6))
    assert not stands_for((2,), (6,), (4,), (6,))


def test_what_goes_with_the_batch_is_left_out():
    assert stands_for((4, 2), (24 * 512, 4096), (2, 2), (2, 4096))
