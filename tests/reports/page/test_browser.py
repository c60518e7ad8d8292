"""The page in a real browser: silent, offline, no wider than a phone, sortable and filterable, readable in both themes.

ABLATE_SHOTS names a folder for screenshots of the pages."""

import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.inputs.load import load
from reports.inputs.published_experiments import published_experiment
from reports.page.write import write_report
from tests.report_arms import FACTORIAL, HOSTILE, LADDER, Arm, many_arms
from tests.report_browser import Browser, chromium
from tests.report_fixtures import write_experiment

HISTORY = Path(__file__).parents[3] / "docs" / "findings" / "history" / "history.html"
pytestmark = [pytest.mark.browser, pytest.mark.slow]

FORMULAS = tuple(
    Arm(name=n, loss_effect=e, fields=(("model.f", n),))
    for n, e in (("base", 0.0), ("=1+1", -0.1), ("@SUM(A1)", -0.1))
)
CASES = {
    "ladder": {"arms": LADDER, "n_seeds": 5, "published": "r08"},
    "budgets": {"arms": LADDER, "n_seeds": 3, "budgets": (200, 300, 400), "target": 1.57},
    "small": {"arms": LADDER[:2], "n_seeds": 3, "design": "add-one"},
    "hostile": {"arms": HOSTILE, "n_seeds": 3, "design": "add-one"},
    "factorial": {"arms": FACTORIAL, "n_seeds": 5, "design": "factorial"},
    "many": {"arms": many_arms(40), "n_seeds": 3, "design": "add-one", "n_nodes": 2},
    "formulas": {"arms": FORMULAS, "n_seeds": 2, "design": "add-one"},
    "waiting": {
        "arms": LADDER[:2],
        "n_seeds": 1,
        "outcome": {("r07", 0): "pending", ("untied_head", 0): "failed"},
    },
}

# Contrast (WCAG 2.2, 1.4.3): every text node against the background behind it, transparent backgrounds looked through.
CONTRAST = """(() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  const low = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode()); ) {
    const e = node.parentElement;
    if (!node.textContent.trim() || e.closest("script, title, desc") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(e.closest("svg") ? style.fill : style.color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${e.tagName} ${e.className.baseVal ?? e.className}: ${node.textContent.trim().slice(0, 30)}`);
  }
  return [...new Set(low)];
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        if os.environ.get("ABLATE_REQUIRE_BROWSER") == "1":
            pytest.fail(
                "no Chromium on PATH, and ABLATE_REQUIRE_BROWSER=1 asks for one: apt-get install chromium"
            )
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    with Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    made = {}
    for name, case in CASES.items():
        write_experiment(root, name=name, **case)
        made[name] = write_report([load(name, results=root)], root / f"{name}.html")
    made["published"] = write_report([published_experiment("ladder")], root / "published.html")
    made["two"] = write_report(
        [load(n, results=root) for n in ("small", "ladder")], root / "two.html"
    )
    return made


@pytest.mark.parametrize("name", [*CASES, "two", "published"])
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False)])
def test_a_page_is_silent_offline_and_no_wider_than_its_window(browser, pages, name, width, dark):
    browser.open(pages[name], width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.evaluate("performance.getEntriesByType('resource').length") == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["ladder", "many", "published"])
def test_cards_of_a_phone_show_no_scroll_cue(browser, pages, name):
    browser.open(pages[name], width=360)
    cards = (
        "[...document.querySelectorAll('.scroll:has(> .cards)')].map((e) => getComputedStyle(e))"
    )
    assert set(browser.evaluate(f"{cards}.map((s) => s.backgroundImage)")) == {"none"}
    over = "[...document.querySelectorAll('.scroll:has(> .cards)')].filter((e) => e.scrollHeight > e.clientHeight + 2).length"
    assert browser.evaluate(over) == 0, "a table lies over the next section"
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["ladder", "factorial", "waiting", "published"])
def test_all_text_has_enough_contrast(browser, pages, name, dark):
    browser.open(pages[name], dark=dark)
    assert browser.evaluate(CONTRAST) == []


def test_hostile_names_run_nothing(browser, pages):
    browser.open(pages["hostile"])
    assert not [e for e in browser.events if e["method"] == "Page.javascriptDialogOpening"]
    assert browser.evaluate("document.querySelectorAll('main script, main b, main i').length") == 0


COLUMN = "Array.from(document.querySelectorAll('table.runs tbody tr:not([hidden])'), (r) => r.querySelectorAll('td')[{}].dataset.v ?? '')"


def test_tables_sort_by_a_click_and_again_the_other_way(browser, pages):
    browser.open(pages["ladder"])
    place = browser.evaluate(
        "Array.from(document.querySelectorAll('table.runs th[data-key]')).findIndex((t) => t.dataset.key === 'val_loss')"
    )
    press = "document.querySelector('table.runs th[data-key=val_loss] button').click()"
    browser.evaluate(press)
    up = [float(v) for v in browser.evaluate(COLUMN.format(place - 1))]
    assert up == sorted(up)
    assert len(up) == 25
    assert (
        browser.evaluate(
            "document.querySelector('th[data-key=val_loss]').getAttribute('aria-sort')"
        )
        == "ascending"
    )
    browser.evaluate(press)
    assert [float(v) for v in browser.evaluate(COLUMN.format(place - 1))] == sorted(
        up, reverse=True
    )


def test_the_verdict_table_sorts_by_its_numbers(browser, pages):
    browser.open(pages["many"])
    shown = "Array.from(document.querySelectorAll('table.verdicts tbody tr'), (r) => r.querySelector('[data-key=\"val_loss.mean\"]').dataset.v)"
    browser.evaluate("document.querySelectorAll('table.verdicts thead button')[2].click()")
    values = [float(v) for v in browser.evaluate(shown)]
    assert len(values) == 40
    assert values == sorted(values)


def test_many_arms_can_be_filtered_by_name_and_verdict(browser, pages):
    browser.open(pages["many"])
    browser.evaluate(
        "(() => { const i = document.querySelector('input[data-what=arms]'); i.value = 'change_0'; i.dispatchEvent(new Event('input')); })()"
    )
    assert (
        browser.evaluate(
            "document.querySelectorAll('table.verdicts tbody tr:not([hidden])').length"
        )
        == 10
    )
    assert (
        browser.evaluate("document.querySelector('[role=status]').textContent") == "10 of 40 arms"
    )


def test_screenshots_show_something(browser, pages, tmp_path):
    folder = Path(os.environ.get("ABLATE_SHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ladder", "factorial", "many", "published"):
        for kind, width, dark in (
            ("desktop", 1280, False),
            ("dark", 1280, True),
            ("phone", 390, False),
        ):
            browser.open(pages[name], width=width, dark=dark)
            shot = folder / f"{name}-{kind}.png"
            browser.screenshot(shot)
            assert shot.stat().st_size > 50_000
        browser.pdf(folder / f"{name}-print.pdf")


def test_on_a_phone_the_name_of_an_arm_stands_in_one_line(browser):
    browser.open(HISTORY.parents[1] / "quickstart" / "r08_ladder.html", width=360)
    cells = "table.cards[aria-labelledby=differences-0] td"
    heights = browser.evaluate(
        f"Array.from(document.querySelectorAll('{cells}'), (cell) => cell.offsetHeight)"
    )
    assert len(heights) > 20 and max(heights) < 34, "one line, not two"


def test_a_grid_is_printed_on_few_sheets(browser, tmp_path):
    """Of two experiments, one with sixteen arms of eleven figures; a sheet more for other fonts."""
    browser.open(HISTORY.parents[1] / "record-08" / "r08_retuned_tiny.html")
    browser.pdf(tmp_path / "grid.pdf")
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "grid.pdf").read_bytes())) <= 20


KEPT_TOGETHER = """Array.from(document.querySelectorAll('h2, .lead, .facts, tbody tr:first-child'), (e) => {
  const { breakAfter, breakBefore } = getComputedStyle(e); return e.localName === 'tr' ? breakBefore : breakAfter; })"""


def test_in_print_title_head_and_first_row_of_a_table_stay_together(browser, pages):
    """Without these rules Chromium left a table's head alone at the foot of a sheet."""
    browser.open(pages["small"])
    browser.send("Emulation.setEmulatedMedia", media="print")
    breaks = browser.evaluate(KEPT_TOGETHER)
    browser.send("Emulation.setEmulatedMedia", media="")
    assert len(breaks) > 10 and set(breaks) == {"avoid"}


def test_many_arms_are_printed_without_names_that_no_colour_tells_apart(browser, pages):
    """A legend by arm, which picks one out, is of use on a screen alone."""
    browser.open(pages["many"])
    shown = "Array.from(document.querySelectorAll('.legend'), (e) => getComputedStyle(e).display)"
    assert "none" not in browser.evaluate(shown)
    browser.send("Emulation.setEmulatedMedia", media="print")
    printed = browser.evaluate(shown)
    browser.send("Emulation.setEmulatedMedia", media="")
    assert set(printed) == {"none"}


def test_sorting_works_from_the_keyboard(browser, pages):
    browser.open(pages["ladder"])
    browser.evaluate("document.querySelector('table.runs th[data-key=step_ms] button').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.send(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            windowsVirtualKeyCode=13,
            text="\r" if kind == "keyDown" else "",
        )
    assert (
        browser.evaluate("document.querySelector('th[data-key=step_ms]').getAttribute('aria-sort')")
        == "ascending"
    )


def test_the_filter_keeps_rows_with_every_word_and_says_how_many(browser, pages):
    browser.open(pages["ladder"])
    browser.evaluate(
        "(() => { const i = document.querySelector('input[data-filter]'); i.value = 'zero_head FINISHED'; i.dispatchEvent(new Event('input')); })()"
    )
    assert (
        browser.evaluate("document.querySelectorAll('table.runs tbody tr:not([hidden])').length")
        == 5
    )
    assert browser.evaluate("document.querySelector('[role=status]').textContent") == "5 of 25 runs"


def test_an_address_keeps_a_view(browser, pages):
    browser.open(pages["ladder"], hash="#sort=val_loss:descending&filter=r08")
    assert (
        browser.evaluate(
            "document.querySelector('th[data-key=val_loss]').getAttribute('aria-sort')"
        )
        == "descending"
    )
    assert (
        browser.evaluate("document.querySelectorAll('table.runs tbody tr:not([hidden])').length")
        == 5
    )


def test_a_mark_leads_to_its_run(browser, pages):
    browser.open(pages["ladder"])
    run = browser.evaluate(
        "(() => { const m = document.querySelector('svg.wide [data-run]'); m.dispatchEvent(new MouseEvent('click', {bubbles: true})); return m.dataset.run; })()"
    )
    assert browser.evaluate("document.querySelector('tr.found').dataset.run") == run


# The middle of the third dot of a path of dots, in the window; and the run it stands for.
DOT = """(() => { const m = document.querySelector('#scatter-0 svg.wide .dots');
  m.scrollIntoView({block: 'center'});
  const [, x, y, r] = [...m.getAttribute('d').matchAll(/M(\\S+) (\\S+?)a(\\d+)/g)][2].map(Number);
  const at = new DOMPoint(x + r, y).matrixTransform(m.getScreenCTM());
  const e = JSON.parse(document.getElementById('data').textContent).experiments[0];
  const own = e.runs.columns.filter((c) => !(c in e.runs.same)), row = e.runs.rows[Number(m.dataset.rows.split(' ')[2])];
  return [at.x, at.y, row[own.indexOf('run_id')], row[own.indexOf('arm')], row[own.indexOf('seed')]]; })()"""


def test_a_dot_leads_to_the_run_under_the_pointer(browser, pages):
    browser.open(pages["ladder"])
    x, y, run, arm, seed = browser.evaluate(DOT)
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert browser.evaluate("document.getElementById('tip').textContent").startswith(
        f"{arm}, seed {seed}: loss "
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert browser.evaluate("document.querySelector('tr.found').dataset.run") == run


def test_a_mark_tells_its_run_on_hover(browser, pages):
    browser.open(pages["ladder"])
    said = browser.evaluate("""(() => { const m = document.querySelector('#loss_by_step-0 svg.wide [data-run]');
      m.dispatchEvent(new PointerEvent('pointermove', {bubbles: true})); return document.getElementById('tip').textContent; })()""")
    assert re.fullmatch(r"r07, seed \d: loss \d\.\d{4}, \d\d\.\d\d ms a step", said)


def test_the_link_at_a_heading_shows_at_the_keyboards_focus_and_leads_there(browser, pages):
    browser.open(pages["small"])
    sign = "document.querySelector('#runs-0 .anchor')"
    assert browser.evaluate(f"getComputedStyle({sign}).opacity") == "0"
    for kind in ("keyDown", "keyUp"):  # so that focus is the keyboard's
        browser.send(
            "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
        )
    browser.evaluate(f"{sign}.focus()")
    assert browser.evaluate(f"getComputedStyle({sign}).opacity") == "1"
    for kind in ("keyDown", "keyUp"):
        facts = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        browser.send("Input.dispatchKeyEvent", type=kind, **facts)
    assert browser.evaluate("location.hash") == "#runs-0"
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(f"getComputedStyle({sign}).display") == "none"
    browser.send("Emulation.setEmulatedMedia", media="")


def test_print_from_a_dark_screen_is_dark_ink_on_white(browser, pages):
    browser.open(pages["ladder"], dark=True)
    browser.send(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    low = browser.evaluate(CONTRAST)
    browser.send("Emulation.setEmulatedMedia", media="")
    assert low == []


def test_the_legend_picks_one_arm_out(browser, pages):
    browser.open(pages["ladder"])
    state = browser.evaluate("""(() => {
      const figure = document.querySelector('#loss_by_step-0'), button = figure.querySelectorAll('.legend button')[1];
      const dimmed = () => figure.querySelectorAll('svg.wide .series.dim').length;
      button.click(); const on = dimmed(); button.click();
      return [on, dimmed()];
    })()""")
    assert state == [4, 0]


def test_figures_and_tables_download_as_csv(browser, pages):
    browser.open(pages["ladder"])
    text = browser.evaluate("""(async () => {
      let blob; const original = URL.createObjectURL;
      URL.createObjectURL = (b) => { blob = b; return original(b); };
      HTMLAnchorElement.prototype.click = () => {};
      document.querySelector('button[data-csv=forest_val_loss]').click(); const figure = await blob.text();
      document.querySelector('button[data-csv=curves]').click(); const curves = await blob.text();
      document.querySelector('button[data-csv=scatter]').click(); const scatter = await blob.text();
      document.querySelector('button[data-csv=runs]').click(); const runs = await blob.text();
      return [figure, curves, scatter, runs];
    })()""")
    figure, curves, scatter, runs = (t.strip().split("\r\n") for t in text)
    whole = [dict(zip(runs[0].split(","), row.split(","), strict=True)) for row in runs[1:]]
    names = scatter[0].split(",")
    assert scatter[1:] == [",".join(r[c] for c in names) for r in whole]
    assert {r["experiment"] for r in whole} == {"ladder"}
    assert figure[0].startswith("arm,estimate,low,high")
    assert len(figure) == 1 + 4
    assert len(curves) == 1 + 25 * 16


def test_a_download_holds_no_formula(browser, pages):
    browser.open(pages["formulas"])
    text = browser.evaluate("""(async () => {
      let blob; const original = URL.createObjectURL;
      URL.createObjectURL = (b) => { blob = b; return original(b); };
      HTMLAnchorElement.prototype.click = () => {};
      document.querySelector('button[data-csv=forest_val_loss]').click(); return await blob.text();
    })()""")
    rows = list(csv.reader(io.StringIO(text)))
    assert sorted(row[0] for row in rows[1:]) == ["'=1+1", "'@SUM(A1)"]
    assert all(float(row[1]) < 0 for row in rows[1:])


def test_every_figure_and_control_has_a_name_for_assistive_technology(browser, pages):
    browser.open(pages["ladder"])
    browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.send("Accessibility.enable")
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    asked = ("button", "image", "img", "searchbox", "link", "table", "region")
    nameless = [
        n["role"]["value"]
        for n in nodes
        if not n.get("ignored")
        and n.get("role", {}).get("value") in asked
        and not n.get("name", {}).get("value")
    ]
    shown = [
        n
        for n in nodes
        if not n.get("ignored") and n.get("role", {}).get("value") in ("image", "img")
    ]
    assert len(shown) >= 10
    assert nameless == []


@pytest.mark.parametrize("name", ["ladder", "many", "published"])
def test_the_page_prints_with_its_tables_whole(browser, pages, tmp_path, name):
    browser.open(pages[name])
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    browser.send("Emulation.setEmulatedMedia", media="print")
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=703,
        height=1000,
        deviceScaleFactor=1,
        mobile=False,
    )  # A4 less its margins
    cut = browser.evaluate(
        "Array.from(document.querySelectorAll('.scroll')).filter((s) => s.scrollWidth > s.clientWidth + 1).map((s) => s.querySelector('table').className)"
    )
    beside = browser.evaluate(
        "getComputedStyle(document.querySelector('.figures')).columnCount + getComputedStyle(document.querySelector('td.words')).columnCount"
    )
    shown = browser.evaluate(
        "Array.from(document.querySelectorAll('.figures > figure svg.narrow')).filter((s) => s.getClientRects().length && s.getBoundingClientRect().width < 300).length"
    )
    kept = browser.evaluate(
        "Array.from(document.querySelectorAll('th button')).filter((b) => getComputedStyle(b).display !== 'contents').length"
    )
    browser.send("Emulation.setEmulatedMedia", media="")
    assert cut == []
    assert (beside, shown) == ("2auto", 0), (
        "figures stand two beside one another, their text in its size"
    )
    assert kept == 0, "Chromium repeats no table head with a button in it"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)])
def test_the_history_fits_its_window_and_finds_a_record(browser, width, dark):
    browser.open(HISTORY, width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(CONTRAST) == []
    overlapping = """[...document.querySelectorAll(".history i")].filter((i) => i.offsetParent
      && i.getBoundingClientRect().right > i.closest("td").getBoundingClientRect().right).length"""
    assert browser.evaluate(overlapping) == 0
    counts = """[...document.querySelectorAll(".counts")].filter((p) => p.offsetParent).length"""
    look_for = """(() => { const find = document.getElementById("find"); find.value = "WORD";
      find.dispatchEvent(new Event("input")); })()"""
    in_all = browser.evaluate(counts)
    browser.evaluate(look_for.replace("WORD", "smear"))
    shown = """[...document.querySelectorAll(".history tbody tr")].filter((r) => r.offsetParent)
      .map((r) => r.id)"""
    assert "short-34" in browser.evaluate(shown)
    assert len(browser.evaluate(shown)) <= 3
    assert browser.evaluate(counts) == 0, "they are of all the rows"
    top = 'document.getElementById("short-34").getBoundingClientRect().top'
    assert browser.evaluate(top) < 900
    browser.evaluate(look_for.replace("WORD", ""))
    assert browser.evaluate(counts) == in_all == 3  # of every track


def test_the_history_is_printed_whole(browser):
    """On A4 less its margins no column is cut off."""
    browser.open(HISTORY)
    browser.send("Emulation.setEmulatedMedia", media="print")
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=703,
        height=1000,
        deviceScaleFactor=1,
        mobile=False,
    )
    widest = browser.evaluate(
        "Math.max(...Array.from(document.querySelectorAll('td, th'), (e) => e.getBoundingClientRect().left + e.scrollWidth))"
    )
    browser.send("Emulation.setEmulatedMedia", media="")
    assert widest < 704
