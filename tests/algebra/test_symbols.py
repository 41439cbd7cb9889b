import pytest

from ms_symtensor.algebra.symbols import bandwidth, definition, group_size, is_defined, latency, symbol


def test_the_same_definition_gives_the_same_symbol():
    first = symbol("test_width", "1", "a width")
    assert symbol("test_width", "1", "a width") is first
    assert first.is_positive
    assert definition(first).unit == "1" and definition(first).meaning == "a width"


@pytest.mark.parametrize(
    "unit, meaning, assumptions", [("B", "a height", {}), ("1", "a depth", {}), ("1", "a height", {"real": True})]
)
def test_a_second_definition_is_refused(unit, meaning, assumptions):
    symbol("test_height", "1", "a height")
    with pytest.raises(ValueError, match="'test_height' already means 'a height'"):
        symbol("test_height", unit, meaning, **assumptions)


def test_a_name_must_be_an_identifier():
    with pytest.raises(ValueError, match="not a Python identifier"):
        symbol("2p", "1", "twice p")


def test_symbols_of_levels():
    assert [f("node").name for f in (group_size, latency, bandwidth)] == ["p_node", "alpha_node", "B_node"]
    assert group_size("node").is_integer and group_size("node").is_positive
    assert definition(latency("node")).unit == "s"
    assert is_defined(bandwidth("node")) and not is_defined("B_node")
