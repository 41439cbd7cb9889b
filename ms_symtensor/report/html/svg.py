"""Drawings: marks of an axis, bars, rectangles in one path."""

import math
from collections.abc import Iterable, Iterator, Sequence

from ms_symtensor.report.html.markup import Html, element, html
from ms_symtensor.report.text import seconds

WIDTH = 1000
"""Units of a drawing's width; it is scaled to the page."""


def drawing(width: float, height: float, *inside: Html, label: str, class_: str = "") -> Html:
    """An SVG of so many units; `label` for those who cannot see it."""
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html(label)}" class="{class_}"'
        f' style="max-width:{max(width, WIDTH):g}px">'
    )
    return Html(head + "".join(part.text for part in inside) + "</svg>")


def slices(name: str, width: float, height: float, each: float, class_: str) -> Html:
    """The group `name` of a drawing again, in strips of that height: paper has no room for it as a whole."""
    strips = (
        f'<svg viewBox="0 {top:g} {width:g} {min(each, height - top):g}" class="{class_}" aria-hidden="true">'
        f'<use href="#{name}"/></svg>'
        for top in (each * n for n in range(math.ceil(height / each)))
    )
    return Html("".join(strips))


def text(x: float, y: float, what: str, class_: str = "", anchor: str = "start") -> Html:
    """Words whose base line begins, ends or is centred at a point."""
    return element("text", what, x=f"{x:.1f}", y=f"{y:.1f}", class_=class_, text_anchor=anchor)


def rectangle(x: float, y: float, width: float, height: float, class_: str, title: str = "", radius: float = 0) -> Html:
    """A filled box; `title` is shown where the pointer rests."""
    inside = [element("title", title)] if title else []
    place = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{max(width, 0):.2f}", "height": f"{height:.2f}"}
    return element("rect", *inside, **place, **({"rx": f"{radius:g}"} if radius else {}), class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    """A straight line."""
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=class_)


def boxes(of: Iterable[tuple[float, float, float, float]], class_: str) -> Html:
    """Many boxes (x, y, width, height) in one path."""
    parts = [f"M{x:.2f} {y:.1f}h{width:.2f}v{height:.1f}h{-width:.2f}z" for x, y, width, height in of]
    return element("path", d="".join(parts), class_=class_)


def marks(most: float, number: int = 6) -> Sequence[float]:
    """Round numbers from 0 to `most`, about so many: 1, 2 or 5 times a power of ten apart."""
    if most <= 0:
        return (0.0,)
    rough = most / number
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return tuple(step * i for i in range(math.floor(most / step * (1 + 1e-9)) + 1))


def time_axis(left: float, right: float, top: float, bottom: float, most_s: float) -> Iterator[Html]:
    """Marks of seconds with thin lines up through the drawing."""
    for at_s in marks(most_s):
        x = left + (right - left) * at_s / most_s
        yield line(x, top, x, bottom, "grid")
        yield text(x, bottom + 15, "0" if at_s == 0 else seconds(at_s), "axis", "middle" if at_s else "start")


def stacked_bar(parts: Sequence[tuple[str, float, str]], whole: float, label: str) -> Html:
    """One bar of `parts` (class, value, title) of `whole`."""
    x, found = 0.0, []
    for class_, value, title in parts:
        width = WIDTH * value / whole if whole else 0.0
        found.append(rectangle(x, 0, width, 26, f"fill {class_}", title))
        x += width
    return drawing(WIDTH, 26, rectangle(0, 0, WIDTH, 26, "track"), *found, label=label, class_="bar")
