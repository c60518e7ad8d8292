"""The page of a bundle taken apart: its difference coloured by group, and what needs what."""

from collections.abc import Sequence
from functools import cache

import jinja2
from markupsafe import Markup, escape

from harness.run.document import Content, Document
from reports.page.write import asset, code, printable

GRAPH_ROW, GUTTER, PER_ROW, WIDEST = 26, 8, 5, 96  # of the graph, in its units
HUE_TURN = 137.508  # degrees between the colours of neighbouring groups
MOST_OPEN = 300  # changed lines that are shown unfolded


def parts_page(content: Content) -> str:
    """The page's text.

    content: what harness.split.shown.shown says of a folder."""
    groups = content["groups"]
    n_changed = sum(hunk["n_changed"] for hunk in content["hunks"])
    return _parts_template().render(
        **content,
        css=Markup(asset("report.css")),
        graph=needs_graph(groups),
        styles=group_styles(groups),
        arms=[g for g in groups if g["kind"] not in ("always on", "neutral", "support")],
        n_changed=n_changed,
        is_open=n_changed <= MOST_OPEN,
    )


@cache
def _parts_template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=printable
    )
    environment.filters["code"] = code
    return environment.from_string(asset("parts.html.j2"))


def group_styles(groups: Sequence[Document]) -> dict[str, str]:
    """Each group's colour; grey for those that are no arms."""
    colours = {}
    for n, group in enumerate(groups):
        is_arm = group["kind"] not in ("always on", "neutral", "support")
        colours[group["name"]] = f"--h:{n * HUE_TURN % 360:.0f};--s:{60 if is_arm else 0}%"
    return colours


def needs_graph(groups: Sequence[Document]) -> Markup:
    """A row for each group that needs another or is needed, an arc to each that it needs directly.

    Empty where no group needs another."""
    needed = {name for group in groups for name in group["direct"]}
    rows = [group["name"] for group in groups if group["direct"] or group["name"] in needed]
    if not rows:
        return Markup("")
    place = {name: GRAPH_ROW * n + GRAPH_ROW / 2 for n, name in enumerate(rows)}
    left = GUTTER + WIDEST
    colours = group_styles(groups)
    drawn = Markup("")
    for group in groups:
        for name in group["direct"]:
            drawn += _needs_arc(place[group["name"]], place[name], left, colours[group["name"]])
    for name in rows:
        drawn += Markup(
            '<a href="#g-{0}"><circle class="center" style="{1}" cx="{2}" cy="{3}" r="5"/>'
            '<text x="{4}" y="{5}">{0}</text></a>'
        ).format(name, colours[name], left, place[name], left + 12, place[name] + 4)
    width = left + 12 + 8 * max(map(len, rows))
    return Markup(
        '<svg class="graph" role="img" width="{0}" height="{1}" viewBox="0 0 {0} {1}">'
        "<title>What each group needs</title>{2}</svg>"
    ).format(width, GRAPH_ROW * len(rows), drawn)


def _needs_arc(start: float, end: float, x: float, colour: str) -> Markup:
    """From a group to what it needs, with a point at that end."""
    reach = min(WIDEST, 16 + PER_ROW * abs(end - start) / GRAPH_ROW)
    path = f"M{x - 6} {start} C{x - reach} {start} {x - reach} {end} {x - 8} {end}"
    return Markup(
        '<path class="needs" style="{}" d="{}"/><path class="tip" style="{}" d="M{} {}l-7 -4v8z"/>'
    ).format(colour, escape(path), colour, x - 5, end)
