import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json


def test_a_text_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "graph.json").write_text('{"name": "\\ud800"}')
    with pytest.raises(InputError, match="half of a pair of surrogates"):
        read_json(tmp_path / "graph.json", "a saved graph", "give another file")
    (tmp_path / "graph.json").write_text('{"name": "\\ud83d\\ude00"}')
    assert read_json(tmp_path / "graph.json", "a saved graph", "give another file") == {"name": "\U0001f600"}
