"""The page's figures as files: the same marks at the same places, in the page's colours, its texts as texts."""

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch
from matplotlib.path import Path as DrawnPath
from matplotlib.text import Text

from harness.__main__ import main
from reports.analysis.compare import compare_all
from reports.figures.base import (
    CHAR_PX,
    NARROW,
    WIDE,
    ArmKey,
    Figure,
    dot,
    dots,
    line,
    path_of,
    text,
)
from reports.inputs.load import load
from reports.page.by_design import ByDesign
from reports.page.draw import draw_all
from reports.paper import figures as written
from reports.paper.drawing import (
    LEGEND_ROW,
    MARGIN,
    PX_PER_INCH,
    arc,
    fonts_here,
    paper_figure,
    path_through,
    shape_of,
)
from reports.paper.style import page_style
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

STRANGERS = (
    "text.usetex: True\nfont.size: 3\nsavefig.bbox: tight\n"  # what the working folder may hold
)
SHAPES = ("path", "line", "rect", "circle")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An experiment, what was judged of it, and the page's figures."""
    folder = write_experiment(tmp_path_factory.mktemp("r"), arms=LADDER[:3], n_seeds=2, n_points=8)
    experiment = load("split", folder)
    outcome = compare_all(experiment)
    return experiment, outcome, draw_all(experiment, outcome, ByDesign.of(experiment, outcome))


def figure_of(inner: str, **facts) -> Figure:
    """A figure of this markup."""
    return Figure(
        **{"key": "k", "title": "t", "caption": "c", "alt": "a", "columns": (), "rows": ()},
        draw=lambda width: (inner, 100.0),
        **facts,
    )


def patches(drawn) -> list[PathPatch]:
    return [p for p in drawn.axes[0].patches if isinstance(p, PathPatch)]


@pytest.mark.parametrize("width", [WIDE, pytest.param(NARROW, marks=pytest.mark.slow)])
def test_every_figure_of_the_page_has_all_its_texts_and_marks_in_the_papers(made, width):
    for figure in made[2]:
        inner, height = figure.draw(width)
        root = ET.fromstring(f"<svg>{inner}</svg>")
        drawn = paper_figure(figure, width)
        texts = [t.text or "" for t in root.iter("text")]
        assert [t.get_text() for t in drawn.axes[0].texts][: len(texts)] == texts, figure.key
        named = [arm for _, _, arm in figure.legend]
        assert len(drawn.axes[0].texts) == len(texts) + len(named)
        shapes = sum(len([*root.iter(tag)]) for tag in SHAPES)
        haloes = sum(
            not {"tick", "axis"} & {*t.get("class", "").split()} for t in root.iter("text")
        )
        assert len(patches(drawn)) == shapes + haloes + 2 * len(named), figure.key
        size = drawn.get_size_inches() * PX_PER_INCH
        assert size[0] == pytest.approx(width + 2 * MARGIN)
        assert size[1] >= height


def test_marks_lie_where_the_page_has_them_in_its_colours():
    inner = (
        f'<g class="series c2">{dot(30, 40, r=5, css="center")}{dots([(10, 20, 0), (50, 60, 1)], r=3)}</g>'
        + line(1, 2, 3, 4, "grid")
        + f'<path class="mean" d="{path_of([(0, 1), (2, 3), (4, 5)])}" stroke-dasharray="7 3"/>'
    )
    ring, runs, grid, mean = patches(paper_figure(figure_of(inner), WIDE))
    box = ring.get_path().get_extents()
    assert (box.x0, box.y0, box.x1, box.y1) == pytest.approx((25, 35, 35, 45))
    assert to_hex(ring.get_facecolor()) == "#c2500c"
    box = runs.get_path().get_extents()
    assert (box.x0, box.y0, box.x1, box.y1) == pytest.approx((7, 17, 53, 63), abs=0.01)
    assert runs.get_facecolor()[3] == pytest.approx(0.55)
    assert grid.get_path().vertices.tolist() == [[1, 2], [3, 4]]
    assert to_hex(grid.get_edgecolor()) == "#e8ebee"
    assert mean.get_path().vertices.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert mean.get_linewidth() == pytest.approx(1.5)  # 2 px
    assert dashes_in_px(mean) == pytest.approx([7, 3])


KINDS_OF_MARKS = (
    '<g class="series c1"><path class="mean" d="M1 2h3v-4H20V9m5 6 7 8L9 9z"/>'
    '<rect class="bar" x="5" y="6" width="7" height="8"/><circle class="center" cx="9" r="2"/>'
    '<rect class="hist" x="1" y="2" width="3" height="4" fill-opacity="0.2"/></g>'
    '<g class="own c2"><path class="run" d="M0 0L.5 1e1a2 2 0 0 1 4 0"/></g>'
    '<svg x="10" y="20"><line class="target" x1="1" y1="2" x2="3" y2="4"/></svg>'
    '<line class="zero" x2="3" stroke-dasharray="2 1"/><rect class="w3 wall" width="2" height="1"/>'
    '<path class="band c4" d=""/><desc>no mark</desc>'
    '<text class="tick" x="4" y="5" text-anchor="end">0.5</text><text class="axis">step</text>'
    '<text class="value tight" x="7.5" text-anchor="middle">1.5</text>'
    '<text class="own c3" y="3">a</text>'
)


COMMANDS = {DrawnPath.MOVETO: "M", DrawnPath.LINETO: "L", DrawnPath.CLOSEPOLY: "Z"}


def spot(at) -> str:
    return ",".join(f"{number + 0.0:g}" for number in np.round(at, 3))


def outline(path: DrawnPath) -> str:
    """As SVG has it; of a curve, in how many parts ever, the end alone: C."""
    words = []
    codes = [DrawnPath.MOVETO, *[DrawnPath.LINETO] * (len(path.vertices) - 1)]
    for code, at in zip(codes if path.codes is None else path.codes, path.vertices, strict=True):
        command = COMMANDS.get(code, "C")
        if command == "C" and words[-1][0] == "C":
            words.pop()
        words.append(f"{command}{spot(at)}")
    return " ".join(words)


def in_words(drawn: matplotlib.figure.Figure) -> str:
    """Marks and texts, the lowest first; of curves and letters the outlines only where they are short."""
    lines = []
    for child in drawn.axes[0].get_children():
        if isinstance(child, PathPatch):
            fill, stroke = child.get_facecolor(), child.get_edgecolor()
            colours = f"{to_hex(fill, keep_alpha=True)} {to_hex(stroke, keep_alpha=True)}"
            dashes = child.get_linestyle()
            if dashes != "solid":
                dashes = " ".join(f"{length:g}" for length in dashes_in_px(child))
            pen = f"{child.get_linewidth():g} {dashes} {child.get_joinstyle()}"
            path = child.get_path()
            at = outline(path) if len(path.vertices) < 15 else ""
            lines.append(f"{colours} {pen} {at}".rstrip())
        elif isinstance(child, Text) and child.get_text():
            font = f"{child.get_size():g} {child.get_weight()} {child.get_color()}"
            place = f"{spot(child.get_position())} {child.get_ha()}"
            lines.append(f"'{child.get_text()}' {place} {font}")
    return "\n".join(lines)


def test_every_kind_of_mark_and_of_text_is_drawn_as_the_style_sheet_has_it(kept_line):
    legend = ArmKey("a", "c1", "a"), ArmKey("b", "c2", "b" * 60)
    kept_line(in_words(paper_figure(figure_of(KINDS_OF_MARKS, legend=legend), 300)))


def test_half_a_circle_ends_where_it_should_and_turns_the_way_it_is_told():
    for sweep, side in ((True, -1), (False, 1)):
        points = arc((2.0, 7.0), (12.0, 7.0), sweep=sweep)
        assert points[-1] == pytest.approx((12, 7))
        assert all(side * (y - 7) > -1e-9 for _, y in points)
        assert any((x, y) == pytest.approx((7, 7 + 5 * side)) for x, y in points)
    assert arc((3.0, 1.0), (3.0, 5.0), sweep=True)[-1] == pytest.approx((3, 5))


def test_nothing_of_a_drawing_within_is_seen_beyond_its_box():
    cut = f'<svg x="10" y="20" width="30" height="40"><g>{line(0, 0, 99, 99, "grid")}</g></svg>'
    drawn = paper_figure(figure_of(cut + line(1, 2, 3, 4, "grid")), WIDE)
    inside, outside = patches(drawn)
    seen = drawn.axes[0].transData.inverted().transform_bbox(inside.get_clip_box())
    assert (seen.xmin, seen.ymin, seen.xmax, seen.ymax) == pytest.approx((10, 20, 40, 60))
    of_axes = outside.get_clip_box()
    assert of_axes is None or of_axes.width > inside.get_clip_box().width


def test_dashes_are_as_long_as_on_the_page_whatever_their_line_is_wide():
    drawn = paper_figure(figure_of(line(1, 2, 30, 4, "target")), WIDE)
    (target,) = patches(drawn)
    assert target.get_linewidth() == pytest.approx(0.75)  # 1 px
    assert dashes_in_px(target) == pytest.approx([4, 3])


def dashes_in_px(patch: PathPatch) -> list[float]:
    """The lengths of a stroke's dashes and gaps as they are written."""
    figure, file = matplotlib.figure.Figure(), io.StringIO()
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    drawn = PathPatch(
        patch.get_path(), linewidth=patch.get_linewidth(), linestyle=patch.get_linestyle()
    )
    axes.add_patch(drawn)
    figure.savefig(file, format="svg")
    found = re.search(r"stroke-dasharray: ([\d., ]+)", file.getvalue())
    assert found is not None
    return [float(length) / 0.75 for length in found[1].split(",")]


def test_colours_of_arms_are_those_of_the_style_sheet_on_white_paper():
    css = (Path(__file__).parents[3] / "reports/page/templates/report.css").read_text()
    for name in (f"c{n}" for n in range(9)):
        declared = re.search(rf"--{name}: (#\w+)", css)
        found = page_style().of("circle", [name, "center"], page_style().root)
        assert declared is not None
        assert found["fill"] == declared[1]
    assert page_style().of("path", ["band", "c1"], page_style().root)["opacity"] == "0.14"
    dimmed = page_style().of("g", ["series"], page_style().root)
    assert "opacity" not in dimmed  # as it is under a touch alone


def test_no_text_is_taken_for_mathematics_or_for_markup():
    hostile = "$\\frac{a}$ <b> \ufffe & \u202e中"
    drawn = paper_figure(figure_of(text(5, 6, hostile), legend=((hostile, "c1", hostile),)), WIDE)
    found = [t.get_text() for t in drawn.axes[0].texts]
    assert all(t.startswith("$\\frac{a}$ <b>") and "\u202e" not in t for t in found)
    assert not any(t.get_parse_math() for t in drawn.axes[0].texts)


@pytest.mark.parametrize("blank", ["", " "])
def test_a_text_of_blanks_has_neither_letters_nor_a_halo(blank: str) -> None:
    drawn = paper_figure(figure_of(text(100, 50, blank)), WIDE)
    assert not patches(drawn) and not drawn.axes[0].texts


@pytest.mark.parametrize(("anchor", "share"), [("start", 0.0), ("middle", 0.5), ("end", 1.0)])
def test_a_halo_lies_below_its_text_and_where_that_is_anchored(anchor: str, share: float) -> None:
    drawn = paper_figure(figure_of(text(100, 50, "HHHH", anchor=anchor)), WIDE)
    (halo,), (written_text,) = patches(drawn), drawn.axes[0].texts
    box = halo.get_path().get_extents()
    assert box.x0 + share * (box.x1 - box.x0) == pytest.approx(100, abs=1.5)
    assert box.y1 == pytest.approx(50, abs=0.5) and 6 < box.height < 12
    assert written_text.get_position() == (100, 50)
    assert written_text.get_zorder() == halo.get_zorder()  # of equals the later one lies above
    drawn.draw_without_rendering()
    children = drawn.axes[0].get_children()
    assert children.index(halo) < children.index(written_text)


def test_a_pixel_of_the_page_is_one_of_the_drawing_counted_from_the_top_below_the_legend() -> None:
    for legend, rows in (((), 0), ((("a", "c1", "a"),), 1)):
        drawn = paper_figure(figure_of("", legend=legend), WIDE)
        height = drawn.get_size_inches()[1] * PX_PER_INCH
        assert height == pytest.approx(100 + rows * LEGEND_ROW + 2 * MARGIN)
        to_px = PX_PER_INCH / drawn.dpi
        for x, y in ((0, 0), (WIDE, 100), (10, 20)):
            at_x, at_y = drawn.axes[0].transData.transform((x, y)) * to_px
            assert at_x == pytest.approx(x + MARGIN)
            assert height - at_y == pytest.approx(y + MARGIN + rows * LEGEND_ROW)


def test_what_is_faint_on_the_page_is_as_faint_here_and_within_what_is_faint_more_so() -> None:
    band = f'<path class="band c1" d="{path_of([(0, 1), (2, 3), (4, 1)])}"/>'
    for markup, opacity in ((band, 0.14), (f'<g class="band">{band}</g>', 0.14**2)):
        (shape,) = patches(paper_figure(figure_of(f'<g class="series">{markup}</g>'), WIDE))
        assert shape.get_facecolor()[3] == pytest.approx(opacity)


def test_a_legend_has_the_rows_that_its_names_take():
    names = [(letter * 40, "c1", letter * 40) for letter in "abc"]
    heights = []
    for n in range(4):
        drawn = paper_figure(figure_of("", legend=tuple(names[:n])), NARROW)
        heights.append(drawn.get_size_inches()[1] * PX_PER_INCH)
        assert [t.get_position()[1] for t in drawn.axes[0].texts] == sorted(
            -8 - LEGEND_ROW * row for row in range(n)
        )
    assert np.diff(heights) == pytest.approx([LEGEND_ROW] * 3)


@pytest.mark.parametrize(("n_letters", "n_rows"), [(19, 1), (20, 2)])
def test_names_share_a_row_of_the_legend_up_to_its_last_pixel(n_letters: int, n_rows: int) -> None:
    names = [letter * n_letters for letter in "ab"]
    legend = tuple(ArmKey(name, "c1", name) for name in names)
    drawn = paper_figure(figure_of("", legend=legend), NARROW)
    places = [t.get_position() for t in drawn.axes[0].texts]
    second = 17.0 if n_rows == 2 else 17 + CHAR_PX * n_letters + 16 + 17
    assert [x for x, _ in places] == pytest.approx([17.0, second])
    assert [y for _, y in places] == [-8 - LEGEND_ROW * (n_rows - 1), -8]


def test_what_comes_later_lies_above_be_it_a_mark_or_a_text() -> None:
    inner = line(1, 2, 3, 4, "grid") + text(5, 6, "a", css="tick") + line(1, 2, 3, 4, "zero")
    drawn = paper_figure(figure_of(inner), WIDE).axes[0]
    kinds = [type(c) for c in drawn.get_children() if isinstance(c, PathPatch | Text) and c.get_zorder() == 1]  # fmt: skip
    assert kinds == [PathPatch, Text, PathPatch]


def test_of_the_pages_fonts_those_are_taken_that_are_here_then_one_that_always_is() -> None:
    assert fonts_here(("Nowhere", "DejaVu Serif", "Neither")) == ["DejaVu Serif", "DejaVu Sans"]
    assert fonts_here(()) == ["DejaVu Sans"]


def test_files_of_every_kind_are_written_and_are_the_same_again(made, tmp_path, monkeypatch):
    experiment, outcome, figures = made
    few = [figure for figure in figures if figure.key in ("forest_val_loss", "loss_by_step")]
    monkeypatch.setattr(written, "draw_all", lambda *_: few)
    folders = []
    for name in ("one", "two"):
        folder = tmp_path / name
        paths = written.write_figures(
            experiment, outcome, folder, narrow=name == "two", results=tmp_path
        )
        assert len(paths) == 2 * 3 + 1
        folders.append(folder)
    again = tmp_path / "again"
    (tmp_path / "matplotlibrc").write_text(STRANGERS)
    with matplotlib.rc_context(fname=tmp_path / "matplotlibrc"):
        written.write_figures(experiment, outcome, again, narrow=False, results=tmp_path)
    for path in folders[0].iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    svg = (folders[0] / "forest_val_loss.svg").read_text()
    assert "untied_head" in "".join(ET.fromstring(svg).itertext())
    assert (folders[0] / "forest_val_loss.pdf").read_bytes().startswith(b"%PDF")
    png = (folders[0] / "loss_by_step.png").read_bytes()
    assert int.from_bytes(png[16:20]) == int((WIDE + 2 * MARGIN) / PX_PER_INCH * 300)
    wide, narrow = (ET.parse(f / "loss_by_step.svg").getroot().get("width", "") for f in folders)
    assert float(wide.removesuffix("pt")) == pytest.approx(0.75 * (WIDE + 2 * MARGIN))
    assert float(narrow.removesuffix("pt")) == pytest.approx(0.75 * (NARROW + 2 * MARGIN))
    assert "Effect on the loss" in (folders[0] / "captions.md").read_text()


def test_a_file_where_the_folder_should_be_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as end:
        main(["figures", "split", "-o", str(tmp_path / "file")])
    assert end.value.code == 2
    assert "a file lies there" in capsys.readouterr().err


def test_what_is_no_shape_has_no_path() -> None:
    assert path_through("") is None and shape_of(ET.Element("path", {"d": ""})) is None
    assert shape_of(ET.Element("text")) is None
    square = shape_of(ET.Element("rect", {"x": "1", "y": "2", "width": "3", "height": "4"}))
    assert square is not None and square.vertices.tolist() == [
        *([1.0, 2.0], [4.0, 2.0], [4.0, 6.0], [1.0, 6.0], [1.0, 2.0]),
    ]
    line_ = shape_of(ET.Element("line", {"x1": "1", "y2": "2"}))
    assert line_ is not None and line_.vertices.tolist() == [[1.0, 0.0], [0.0, 2.0]]
