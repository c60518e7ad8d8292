"""The technique cards are whole and true: every change has one, its figures are the published ones, its commands run."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.cli.lookup import parse_overrides
from harness.config.run import flat, toggles
from harness.corpora.text import prepare_text
from harness.corpora.tokenizers import TokenizerChoice
from harness.experiment.experiment import load_experiment
from harness.experiment.file import in_folder
from harness.experiment.plan import plan_runs
from reports.inputs.published import read_table
from tests import techniques
from tests.technique_cards import FOLDER, Card, all_cards, sources, text_of
from tests.technique_figures import figures

HISTORY = Path(__file__).resolve().parents[2] / "results" / "published" / "history"
CARDS = {card.name: card for card in all_cards()}
# experiment -> what its card's command sets
TRIED = {words[2]: words[4::2] for card in all_cards() for words in techniques.commands(card)}
FRONTIER = [name for name in in_folder("claims") if name.removeprefix("claims/") in CARDS]
FIGURE = re.compile(
    r"record (\d+) as a whole, ([+-][\d.]+) % \[[^]]*\] (steps|time) at equal loss \((\d+) and (\d+) runs\)"
)
SIGNED = str.maketrans({"\N{MINUS SIGN}": "-"})


def text(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------- whole


def test_every_toggle_since_record_19_and_every_change_of_a_preset_has_a_card() -> None:
    assert not list(techniques.uncovered()), (
        "add a card, or a toggle to one, in docs/techniques/cards"
    )


def test_a_preset_that_sets_what_a_card_is_about_is_among_its_records() -> None:
    assert not list(techniques.unlisted()), "add the record to one of these cards"


def test_every_record_has_a_card() -> None:
    assert {record for card in all_cards() for record in card.records} == set(techniques.RECORDS)


def test_there_is_a_page_for_each_card_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*CARDS, "README"}
    index = text("README")
    for name, card in CARDS.items():
        assert f"| [{card.title}]({name}.md) |" in index


def test_a_value_that_no_card_names_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    without = tuple(card for card in all_cards() if card.name != "attn_gate")
    monkeypatch.setattr(techniques, "all_cards", lambda: without)
    assert "model.attn_gate=sigmoid12 (r28)" in list(techniques.uncovered())


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_a_card_says_where_it_stands_and_what_it_says_of_others_has_a_source(card: Card) -> None:
    assert bool(card.toggles) != bool(card.here and not card.toggles)
    assert bool(card.experiments) == bool(card.toggles), "what has a toggle can be tried"
    known = {name for name, _ in toggles()}
    for toggle in card.toggles:
        field = toggle.partition("=")[0]
        assert field in known or techniques.matching(field), toggle
    for found in card.elsewhere:
        assert re.search(r"\[[a-z0-9_]+\]", found), f"say who found it: {found}"
    assert card.does.endswith(".")
    assert "\n" not in card.does
    assert list(card.records) == sorted(card.records)


def test_every_source_is_known_and_used() -> None:
    said = " ".join(line for card in all_cards() for line in (card.origin, *card.elsewhere))
    assert set(re.findall(r"\[([a-z0-9_]+)\]", said)) == set(sources())


def test_a_card_of_a_value_is_of_the_record_that_took_it() -> None:
    declared = dict(toggles())
    for card in all_cards():
        for toggle in card.toggles:
            field, _, value = toggle.partition("=")
            for choice, record in (
                declared[field].metadata.get("choices", {}).items() if value else ()
            ):
                number = re.search(r"\d+", record)
                if text_of(choice) == value and number:
                    assert int(number[0]) in card.records, toggle


# ---------------------------------------------------------------- figures


@cache
def runs_of(arm: str) -> list[dict[str, str]]:
    """The finished runs of an arm of the short track."""
    rows = read_table(HISTORY / "runs.csv")
    return [row for row in rows if (row["track"], row["arm"]) == ("short", arm) and row["val_loss"]]


@cache
def links() -> dict[int, dict[str, str]]:
    """Record -> its row, the first of those published more than once."""
    rows = [row for row in read_table(HISTORY / "records.csv") if row["track"] == "short"]
    return {int(row["record"]): row for row in reversed(rows)}


def mean(rows: list[dict[str, str]], key: str) -> float:
    return sum(float(row[key]) for row in rows) / len(rows)


def first_number(cell: str) -> float:
    return float(cell.translate(SIGNED).split()[0])


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_a_cards_figures_are_those_of_the_published_runs(card: Card) -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", text(card.name), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(card.records)
    for number, rest in rows:
        with_, steps, loss, _learning, _ms, total, n = (cell.strip() for cell in rest.split("|"))
        link = links()[int(number)]
        arm, parent = runs_of(link["arm"]), runs_of(link["parent"])
        others = {c.title for c in all_cards() if int(number) in c.records} - {card.title}
        assert set(re.findall(r"\[([^]]*)\]", with_)) == others
        if not arm or not parent:
            assert not loss
            assert total
            continue
        assert n.removesuffix(" †") == f"{len(arm)} and {len(parent)}"
        assert steps == f"{parent[0]['steps']} to {arm[0]['steps']}"
        difference = mean(arm, "val_loss") - mean(parent, "val_loss")
        assert first_number(loss) == pytest.approx(difference, abs=5.1e-5)
        if "[" in loss:
            low, high = map(float, re.findall(r"[+-][\d.]+", loss.translate(SIGNED))[1:])
            assert low - 1e-4 <= difference <= high + 1e-4
            assert high > low
            assert " †" in n or min(len(arm), len(parent)) >= 3


def test_a_rung_is_that_of_record_9s_ladder() -> None:
    losses = {
        row["change"]: float(row["val_loss"])
        for row in read_table(HISTORY.parent / "r09_ladder.csv")
    }
    order = list(losses)
    for card in all_cards():
        for rung in card.ladder:
            before = losses[order[order.index(rung) - 1]]
            assert f"`{rung}` at 3200 steps: {before:.4f} to {losses[rung]:.4f}" in text(card.name)


@pytest.mark.parametrize("name", FRONTIER)
def test_a_claims_published_figure_is_the_cards(name: str) -> None:
    source = (FOLDER.parents[1] / "experiments" / f"{name}.yaml").read_text(encoding="utf-8")
    head = " ".join(line.removeprefix("# ") for line in source.split("name:")[0].splitlines())
    stated = FIGURE.findall(head)
    for number, percent, of, n_arm, n_parent in stated:
        figure = figures()[int(number)]
        shown = figure.shown["learning" if of == "steps" else "total"]
        assert first_number(shown) == float(percent)
        assert figure.shown["n"] == f"{n_arm} against {n_parent}"
    of_card = CARDS[name.removeprefix("claims/")].records
    assert {int(number) for number, *_ in stated} <= set(of_card)
    if of_card[0] >= 19:
        assert stated, "say what the record as a whole brought"


# ---------------------------------------------------------------- commands


def test_a_card_shows_the_commands_that_try_it() -> None:
    for card in all_cards():
        shown = re.findall(
            r"^ablate run (\S+) --set scale=tiny --set data\.corpus=mine$",
            text(card.name),
            re.MULTILINE,
        )
        assert tuple(shown) == card.experiments


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_what_a_card_lets_try_changes_what_the_card_is_about(card: Card) -> None:
    if not card.experiments:
        return
    arms: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for name in card.experiments:
        e = load_experiment(name, device="cuda", overrides={"scale": "gpt2"})
        arms += [(flat(e.baseline.config), flat(arm.config)) for arm in e.arms]
    fields = [toggle.partition("=")[0] for toggle in card.toggles]
    named = {name for field in fields for name in techniques.matching(field)}
    assert any(base[name] != of_arm[name] for base, of_arm in arms for name in named)


@pytest.fixture(scope="module")
def own_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a corpus of one's own, `mine`, whose tokens are of several bytes."""
    root = tmp_path_factory.mktemp("data")
    code = FOLDER.parents[1] / "harness"
    prepare_text([code], name="mine", root=root, tokenizer=TokenizerChoice(name="bpe", vocab=512))
    return root


@pytest.mark.parametrize("name", sorted(TRIED))
def test_a_cards_command_plans_on_ones_own_text(
    name: str, own_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(own_text))
    e = load_experiment(name, device="cpu", overrides=parse_overrides(TRIED[name], None))
    planned = plan_runs(e)
    assert {run.spec.config["data"]["corpus"] for run in planned} == {"mine"}
    assert len({run.spec.run_id for run in planned}) > len(e.seeds) or e.left_out
