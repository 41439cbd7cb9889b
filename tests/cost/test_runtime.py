"""Run-times as data."""

import pytest
import yaml

from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.runtime import DEFAULT, FOLDER, known_runtimes, load, runtime_of
from ms_symtensor.errors import InputError


@pytest.mark.parametrize("name", known_runtimes())
def test_every_number_has_a_source(name: str) -> None:
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert load(name).name == data["name"] == name
    entries = [data[key] for key in ("is_eager", "fuses", "fragments")]
    entries += [one for part in data["hides"].values() for one in part.values()]
    assert all(len(entry["source"]) > 10 for entry in entries)


def test_mindspore_hides_nothing_by_default() -> None:
    assert load(DEFAULT).hides == {} and not load(DEFAULT).is_eager


def test_what_is_hidden_is_an_assumption_of_the_user() -> None:
    assert set(runtime_of(DEFAULT, "gradients, weights").hides) == {Part.GRADIENTS, Part.WEIGHTS}
    assert runtime_of("nanotron", "none").hides == {}
    assert set(runtime_of("nanotron").hides) == {Part.GRADIENTS, Part.TENSOR}


@pytest.mark.parametrize(("name", "hide"), [("mine", ""), (DEFAULT, "compute"), (DEFAULT, "gradient")])
def test_mistakes_name_what_is_known(name: str, hide: str) -> None:
    with pytest.raises(InputError, match="known are|give some of"):
        runtime_of(name, hide)
