"""Pieces of HTML: text, numbers with their exact values, tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ms_symtensor.report.text import seconds, size


@dataclass(frozen=True)
class Html:
    """Text that is HTML already."""

    text: str

    def __str__(self) -> str:
        return self.text


Cell = str | Html
"""What stands in an element: plain text is escaped."""


def html(cell: Cell) -> str:
    """`cell` as HTML."""
    return cell.text if isinstance(cell, Html) else escape(cell)


def element(name: str, *inside: Cell, **attributes: str) -> Html:
    """`<name attributes>inside</name>`; `class_` stands for class, `data_key` for data-key."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{said}>{''.join(map(html, inside))}</{name}>")


def joined(parts: Iterable[Html]) -> Html:
    """One after the other."""
    return Html("\n".join(part.text for part in parts))


def number(value: float, text: str, key: str = "") -> Html:
    """`text` for people, with the exact `value`; `key`: where plan.json, or `symtensor plan --json`, has it."""
    exact = repr(value)
    return element("data", text, value=exact, **({"data_key": key} if key else {}))


def count(value: int, key: str = "") -> Html:
    """A whole number."""
    return number(value, f"{value:,}", key)


def time_s(value: float, key: str = "") -> Html:
    """Seconds."""
    return number(value, seconds(value), key)


def bytes_B(value: int, key: str = "") -> Html:
    """Bytes."""
    return number(value, size(value), key)


def percent(value: float, key: str = "", digits: int = 1) -> Html:
    """A share."""
    return number(value, f"{100 * value:.{digits}f} %", key)


def key_value(name: str, text: str) -> Html:
    """A colour's key and what it stands for."""
    return element("span", element("i", class_=f"key {name}"), " ", text, class_="legend")


@dataclass(frozen=True)
class Row:
    """Cells of a table's row; `class_` of its element."""

    cells: Sequence[Cell]
    class_: str = ""


def table(head: Sequence[str], rows: Iterable[Row | Sequence[Cell]], sortable: bool = False, left: int = 1) -> Html:
    """A table whose first `left` columns are text, all others numbers; `sortable`: by a click on its head."""
    titles = [element("th", title, scope="col", class_="" if i < left else "n") for i, title in enumerate(head)]
    body = []
    for row in rows:
        one = row if isinstance(row, Row) else Row(row)
        cells = [element("td", cell, class_="" if i < left else "n") for i, cell in enumerate(one.cells)]
        body.append(element("tr", *cells, **({"class_": one.class_} if one.class_ else {})))
    whole = element(
        "table",
        element("thead", element("tr", *titles)),
        element("tbody", *body),
        class_="sortable" if sortable else "",
    )
    return element("div", whole, class_="scroll")


def copied(text: str, label: str = "copy") -> Html:
    """A button that copies `text`."""
    return element("button", label, type="button", class_="copy", data_copy=text)


def section(name: str, title: str, lead: Cell, *inside: Html) -> Html:
    """A part of the page."""
    head = element("h2", title)
    return element("section", head, *([element("p", lead, class_="lead")] if lead else []), *inside, id=name)


def folded(title: Cell, *inside: Html, on_paper: bool = True) -> Html:
    """What is shown by a click, and on paper if so."""
    attributes = {} if on_paper else {"class_": "screen"}
    return element("details", element("summary", title), *inside, **attributes)
