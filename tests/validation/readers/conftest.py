from collections.abc import Callable

import pytest

from ms_symtensor.validation.dataset import Dataset
from ms_symtensor.validation.reading import read


@pytest.fixture
def read_rows(tmp_path) -> Callable[..., Dataset]:
    """Reads rows, given as changes to a first row, as a file of that form."""

    def of(first: dict[str, object], *changes: dict[str, object]) -> Dataset:
        rows = [{**first, **change} for change in changes or ({},)]
        lines = [",".join(first), *(",".join(f'"{cell}"' for cell in row.values()) for row in rows)]
        path = tmp_path / "data.csv"
        path.write_text("\n".join(lines), encoding="utf-8")
        return read(path)

    return of
