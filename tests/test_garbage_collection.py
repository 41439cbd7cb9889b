import gc

import pytest

from ms_symtensor.garbage_collection import no_garbage_collection


def test_it_is_off_inside_and_on_again_afterwards_even_if_something_fails() -> None:
    with pytest.raises(ValueError, match="inside"), no_garbage_collection(), no_garbage_collection():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
