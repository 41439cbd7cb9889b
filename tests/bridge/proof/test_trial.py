"""The network that ranks are compared with, kept for the next proof."""

from collections.abc import Hashable, Iterator
from dataclasses import replace

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.bridge.proof.programs import Executable
from ms_symtensor.bridge.proof.trial import References

PROGRAM = Executable(0, b"", (), (), {}, {})


def numbered() -> Iterator[Executable]:
    while True:
        yield replace(PROGRAM)


def taken(references: References, identity: Hashable, steps: bool, programs: Iterator[Executable]) -> Executable:
    return references.get(identity, steps, lambda: next(programs))


def test_a_network_is_compiled_once() -> None:
    references, programs = References(), numbered()
    first = taken(references, "one", False, programs)
    assert taken(references, "one", False, programs) is first
    assert taken(references, "one", True, programs) is not first
    assert taken(references, "one", False, programs) is first
    assert taken(references, "two", False, programs) is not first


def test_networks_that_differ_in_a_constant_have_one_graph_but_not_one_program() -> None:
    """Llama 2 and 3 differ in the base of their rotary angles, whose values no graph holds."""
    config = dimensions_of("llama2_7b", num_layers=1)
    other = replace(config, rotary_base=500000.0)
    assert build_graph(config).hash == build_graph(other).hash
    references, programs = References(), numbered()
    assert taken(references, config, False, programs) is not taken(references, other, False, programs)
