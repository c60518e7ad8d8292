"""A drawing of the page as a matplotlib figure: the same marks at the same places.

A Figure (reports/figures/base.py) declares what is drawn once, as SVG markup for a width; here that
markup is read and drawn again, so that a paper's figure can show nothing that the page does not.
A CSS pixel is 1/96 inch. No text is taken for mathematics.
"""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib.figure
from matplotlib.colors import to_rgba
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from reports.figures.base import CHAR_PX, Figure, shorten
from reports.format import visible
from reports.paper.style import Properties, Style, page_style

PX_PER_INCH, PT_PER_PX = 96.0, 0.75
MARGIN = 6  # px around a drawing, whose letters may reach beyond it
LEGEND_ROW, SWATCH, GAP = 19.0, 17.0, 16.0  # px: a row's height, before a name, after one
SWATCH_OF = {"class": "center", "r": "4"}
ANCHORS = {"start": "left", "middle": "center", "end": "right"}
ANYWHERE = "DejaVu Sans"  # comes with matplotlib
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TOKEN = re.compile(r"[MLHVAZmlhvaz]|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
N_NUMBERS = {"M": 2, "L": 2, "H": 1, "V": 1, "A": 7, "Z": 0}  # that a command takes
SHAPE_NUMBERS = ("x", "y", "x1", "y1", "x2", "y2", "width", "height", "cx", "cy", "r")
OUTSIDE = {"tick", "axis"}  # texts beside what is drawn, which need no halo
CODES = {"M": int(Path.MOVETO), "Z": int(Path.CLOSEPOLY)}
Spot = tuple[float, float]


def paper_figure(figure: Figure, width: int) -> matplotlib.figure.Figure:
    """The figure as wide as that, in pixels, its legend above the drawing."""
    inner, height = figure.draw(width)
    legend = legend_markup(figure, width)
    room = LEGEND_ROW * legend.n_rows
    drawn = matplotlib.figure.Figure(
        figsize=(
            (width + 2 * MARGIN) / PX_PER_INCH,
            (height + room + 2 * MARGIN) / PX_PER_INCH,
        ),
        facecolor="white",
    )
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, width + MARGIN)
    axes.set_ylim(height + MARGIN, -room - MARGIN)
    pen = Pen(axes=axes, style=page_style(), fonts=fonts_here(page_style().fonts))
    for markup in (inner, legend.markup):
        root = ET.fromstring(f"<svg>{NOT_XML.sub(chr(0xFFFD), markup)}</svg>")
        pen.draw_below(root, page_style().root, None, 1.0)
    return drawn


def fonts_here(fonts: tuple[str, ...]) -> list[str]:
    """Of the page's fonts those that this machine has, then one that every machine has."""
    there = {entry.name for entry in fontManager.ttflist}
    return [*(name for name in fonts if name in there), ANYWHERE]


@dataclass(frozen=True, kw_only=True)
class Legend:
    """The names of arms as markup above the drawing, and how many rows they take."""

    markup: str = ""
    n_rows: int = 0


def legend_markup(figure: Figure, width: int) -> Legend:
    """Swatches and names in rows that fit the width; an arm's colour is its class."""
    if not figure.legend:
        return Legend()
    places, x, row = [], 0.0, 0
    for _, css, whole in figure.legend:
        name = shorten(visible(whole), width - SWATCH)
        taken = SWATCH + len(name) * CHAR_PX + GAP
        if x and x + taken - GAP > width:
            x, row = 0.0, row + 1
        places.append((x, row, name, css))
        x += taken
    root = ET.Element("g")
    for x, of_row, name, css in places:
        y = LEGEND_ROW * (of_row - row) - 8
        group = ET.SubElement(root, "g", {"class": css})
        ET.SubElement(group, "circle", {**SWATCH_OF, "cx": f"{x + 6}", "cy": f"{y - 4}"})
        ET.SubElement(group, "text", {"x": f"{x + SWATCH}", "y": f"{y}"}).text = name
    return Legend(markup=ET.tostring(root, encoding="unicode"), n_rows=row + 1)


@dataclass(frozen=True, kw_only=True)
class Pen:
    """Draws SVG elements on axes whose data are the drawing's pixels."""

    axes: Any
    style: Style
    fonts: list[str]

    def draw_below(
        self, parent: ET.Element, inherited: Properties, box: Rectangle | None, opacity: float
    ) -> None:
        """Everything in an element, in its order; box: what cuts it; opacity: of the element."""
        for element in parent:
            classes = element.get("class", "").split()
            properties = self.style.of(element.tag, classes, inherited)
            shown = opacity * float(properties.get("opacity", "1"))
            if element.tag in ("g", "svg"):
                inside = box
                if element.tag == "svg":
                    inside = self.cut(element)
                self.draw_below(element, properties, inside, shown)
            elif element.tag == "text":
                self.write(element, properties)
            else:
                self.trace(element, properties, box, shown)

    def cut(self, element: ET.Element) -> Rectangle:
        """The box of a nested svg, beyond which nothing of it is seen."""
        x, y, width, height = (float(element.get(k, "0")) for k in ("x", "y", "width", "height"))
        return Rectangle((x, y), width, height, transform=self.axes.transData)

    def trace(
        self, element: ET.Element, properties: Properties, box: Rectangle | None, opacity: float
    ) -> None:
        """A shape: its fill and its stroke."""
        path = shape_of(element)
        if path is None:
            return
        dashes = element.get("stroke-dasharray") or properties.get("stroke-dasharray")
        width = pixels(properties.get("stroke-width", "1"))
        fill_opacity = element.get("fill-opacity") or properties.get("fill-opacity", "1")
        patch = PathPatch(
            path,
            facecolor=colour(properties["fill"], opacity * float(fill_opacity)),
            edgecolor=colour(properties["stroke"], opacity),
            linewidth=width * PT_PER_PX,
            linestyle=dashes_of(dashes, width),
            capstyle="butt",
            joinstyle=properties.get("stroke-linejoin", "miter"),
        )
        patch.set_zorder(1)  # of equals the later one lies above
        self.axes.add_patch(patch)
        if box is not None:
            patch.set_clip_path(box)

    def write(self, element: ET.Element, properties: Properties) -> None:
        """A text on the halo that keeps it apart from what it lies on."""
        content = element.text or ""
        if not content.strip():  # of which matplotlib makes no outlines
            return
        x, y = float(element.get("x", "0")), float(element.get("y", "0"))
        anchor = ANCHORS[element.get("text-anchor", "start")]
        font = FontProperties(family=self.fonts, weight=properties.get("font-weight", "normal"))
        halo = properties.get("stroke", "none")
        if halo != "none" and not OUTSIDE & {*element.get("class", "").split()}:
            outline = letters(content, (x, y), anchor, font, size=pixels(properties["font-size"]))
            width = pixels(properties["stroke-width"]) * PT_PER_PX
            around = PathPatch(outline, facecolor=halo, edgecolor=halo, linewidth=width)
            around.set_joinstyle("round")
            around.set_zorder(1)
            self.axes.add_patch(around)
        self.axes.text(
            *(x, y, content),
            ha=anchor,
            va="baseline",
            size=pixels(properties["font-size"]) * PT_PER_PX,
            fontproperties=font,
            color=properties["fill"],
            parse_math=False,
            zorder=1,
        )


def letters(content: str, spot: Spot, anchor: str, font: FontProperties, *, size: float) -> Path:
    """The outlines of a text.

    content: what it says; spot: where; anchor: which end of it stands there; font, and size: in
    pixels.
    """
    plain = content.replace("$", r"\$")  # no mathematics
    path = TextPath((0, 0), plain, size=size, prop=font)
    width = float(path.vertices[:, 0].max())
    shift = {"left": 0.0, "center": width / 2, "right": width}[anchor]
    place = Affine2D().scale(1, -1).translate(spot[0] - shift, spot[1])
    return place.transform_path(path)


def colour(value: str, opacity: float) -> Any:
    """A CSS colour with its opacity, as matplotlib has it."""
    if value == "none":
        return "none"
    return to_rgba(value, opacity)


def pixels(value: str) -> float:
    return float(value.removesuffix("px"))


def dashes_of(value: str | None, width: float) -> Any:
    """A stroke-dasharray as matplotlib's, which has dashes in widths of their line.

    width: of the line, in pixels.
    """
    if not value:
        return "solid"
    return 0, [float(length) / width for length in value.split()]


def shape_of(element: ET.Element) -> Path | None:
    """The outline of a shape; None of an element that is none."""
    of = {name: float(element.get(name, "0")) for name in SHAPE_NUMBERS}
    if element.tag == "line":
        return Path([(of["x1"], of["y1"]), (of["x2"], of["y2"])])
    if element.tag == "rect":
        x, y, right, bottom = of["x"], of["y"], of["x"] + of["width"], of["y"] + of["height"]
        corners = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)]
        return Path(corners, closed=True)
    if element.tag == "circle":
        return Path.circle((of["cx"], of["cy"]), of["r"])
    if element.tag == "path":
        return path_through(element.get("d", ""))
    return None


def path_through(d: str) -> Path | None:
    """The path that SVG's commands of lines and circular arcs describe; None of no command."""
    vertices: list[Spot] = []
    codes: list[int] = []
    at, start = (0.0, 0.0), (0.0, 0.0)
    for command, numbers in commands_of(d):
        to = target_of(command, numbers, at, start)
        kind = command.upper()
        if kind == "M":
            start = to
        if kind == "A":
            curve = arc(at, to, sweep=bool(numbers[4]))
            vertices += curve
            codes += [int(Path.CURVE4)] * len(curve)
        else:
            vertices.append(to)
            codes.append(CODES.get(kind, int(Path.LINETO)))
        at = to
    if not vertices:
        return None
    return Path(vertices, codes)


def commands_of(d: str) -> Iterator[tuple[str, list[float]]]:
    """The commands of a path with their numbers; one that is repeated is named again."""
    command = ""
    numbers: list[float] = []
    for token in TOKEN.findall(d):
        if token.isalpha():
            command, numbers = token, []
            if N_NUMBERS[token.upper()] == 0:
                yield command, []
            continue
        numbers.append(float(token))
        if len(numbers) == N_NUMBERS[command.upper()]:
            yield command, numbers
            numbers = []
            command = {"M": "L", "m": "l"}.get(command, command)


def target_of(command: str, numbers: list[float], at: Spot, start: Spot) -> Spot:
    """Where a command ends; at: where it begins; start: of this part of the path."""
    base = (0.0, 0.0)
    if command.islower():
        base = at
    kind = command.upper()
    if kind == "Z":
        return start
    if kind == "H":
        return base[0] + numbers[0], at[1]
    if kind == "V":
        return at[0], base[1] + numbers[0]
    return base[0] + numbers[-2], base[1] + numbers[-1]


def arc(at: Spot, to: Spot, *, sweep: bool) -> list[Spot]:
    """Half a circle from a place to another, as Bezier curves without their first point.

    sweep: clockwise, as it is seen.
    """
    centre = (at[0] + to[0]) / 2, (at[1] + to[1]) / 2
    radius = math.dist(at, to) / 2
    begins = math.degrees(math.atan2(at[1] - centre[1], at[0] - centre[0]))
    half = Path.arc(0, 180)
    turn = Affine2D()
    if not sweep:
        turn = turn.scale(1, -1)
    turn = turn.scale(radius).rotate_deg(begins).translate(*centre)
    return [(float(x), float(y)) for x, y in turn.transform(half.vertices)[1:]]
