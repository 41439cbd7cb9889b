"""What a model of the zoo is built from is kept in the plan, so that `verify` builds the same network."""

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.bridge.apply.load_network import zoo_options
from ms_symtensor.models import resolve


def test_the_room_of_experts_is_part_of_the_source():
    size = {"num_layers": 1}
    for asked in ({"experts": "dropless"}, {"load_imbalance": 1.5}):
        model = resolve("mixtral_8x7b", 2, 64, size | asked)
        assert model.source.items() >= {name: str(value) for name, value in asked.items()}.items()
        assert build_graph(dimensions_of("mixtral_8x7b", **zoo_options(model.source))) == model.graph
        assert model.graph_at(1, 1) == build_graph(dimensions_of("mixtral_8x7b", 1, 64, 1, **asked))
    assert {"experts", "load_imbalance"}.isdisjoint(resolve("mixtral_8x7b", 2, 64, size).source)
