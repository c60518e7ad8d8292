"""Scales: what differs for bases from a record on, where rates are from; 'modern', and what of both is told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.plan import print_notes
from harness.config.presets import load_preset, names, newest, preset_values
from harness.config.scales import ScaleNoise, load_scale
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from tests.golden import SCALES

BEFORE = "factor: {optim.muon_lr: 2, data.max_doc_len: 1/2}\nrates: tuned on record 7\n"
SINCE = "since: {r58: {rates: tuned on record 58, factor: {optim.muon_lr: 3}}}\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scale of the working directory, still without a word in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments" / "scales").mkdir(parents=True)
    return tmp_path / "experiments" / "scales" / "mine.yaml"


@pytest.mark.parametrize(("base", "factor"), [("r57", 2), ("r58", 3), ("r63", 3)])
def test_from_a_record_on_its_factors_replace_those_of_the_scale(
    base: str, factor: int, mine: Path
) -> None:
    mine.write_text(BEFORE + SINCE)
    values, _ = preset_values(base)
    scaled = load_scale("mine", base).apply(values)
    assert scaled["optim.muon_lr"] == pytest.approx(factor * values["optim.muon_lr"])
    assert scaled["data.max_doc_len"] == tuple(n // 2 for n in values["data.max_doc_len"])
    assert load_scale("mine", base).era.rates == f"tuned on record {7 if factor == 2 else 58}"


def test_of_two_records_on_the_way_the_later_one_has_the_word(mine: Path) -> None:
    mine.write_text("since: {r58: {factor: {optim.muon_lr: 3}}, r61: {factor: {optim.muon_lr: 5}}}")
    factors = {base: load_scale("mine", base).era.factors for base in ("r60", "r61")}
    assert [factors[base]["optim.muon_lr"] for base in ("r60", "r61")] == [3, 5]


def test_a_record_of_ones_own_has_what_its_base_has(mine: Path) -> None:
    mine.write_text(SINCE)
    records = mine.parent.parent / "records"
    records.mkdir()
    (records / "ours.yaml").write_text("base: r63\nchanges: {eps: {optim.adam_eps: 1.0e-9}}\n")
    assert load_scale("mine", "ours").era.rates == "tuned on record 58"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "base: r63\nchange: {}\n",
            r"ours\.yaml:2: unknown key 'change'; did you mean 'changes'\?",
        ),
        ("changes:\n  eps: 3\n", r"ours\.yaml:2: change 'eps' must be a mapping of dotted fields"),
        ("changes:\n  eps:\n    optim.gone: 3\n", r"ours\.yaml:3: .*optim\.gone: there is none"),
        (
            "changes:\n  m:\n    optim.gate_lr_multiplier: 3\n",
            r"ours\.yaml:3: .*what moves gate reads no lr_multiplier; there is optim\.gate_",
        ),
    ],
)
def test_what_a_record_of_ones_own_cannot_say_is_refused_with_its_line(
    text: str, said: str, mine: Path, kept_line: Callable[[str], None]
) -> None:
    records = mine.parent.parent / "records"
    records.mkdir()
    (records / "ours.yaml").write_text(text)
    with pytest.raises(UserError, match=said) as refused:
        load_preset("ours")
    kept_line(str(refused.value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("since: {r5: {rates: tuned}}", r"unknown record 'r5'; did you mean"),
        ("since: {r58: {set: {}}}", r"unknown key 'set', there may be rates, factor, noise"),
        ("since: {r58: {factor: {optim.muon_rate: 2}}}", r"optim\.muon_rate is not a field"),
        ("since: {r58: {noise: {sd: 1}}}", r"noise needs sd > 0, df >= 1 and source"),
        ("noise: {sd: 0, df: 1, source: runs}", r"noise needs sd > 0"),
        ("noise: {sd: 1, df: 0, source: runs}", r"noise needs .* df >= 1 and source, the baseline"),
        ("noise: {sd: 1, df: 1, source: runs, seen: 3}", r"noise needs"),
        (
            "factors: {optim.muon_lr: 2}",
            r"unknown key 'factors', there may be .*; did you mean 'factor'",
        ),
    ],
)
def test_what_a_scale_cannot_say_is_refused_with_its_line(
    text: str, said: str, mine: Path, kept_line: Callable[[str], None]
) -> None:
    mine.write_text(f"# a scale\n{text}\n")
    with pytest.raises(UserError, match=rf"mine\.yaml:2: {said}") as refused:
        load_scale("mine", "r07")  # of a base that has none of those records, too
    kept_line(str(refused.value))


@pytest.mark.parametrize("corpus", [None, "text"])
def test_noise_of_one_degree_of_freedom_is_taken_with_or_without_its_corpus(
    corpus: str | None, mine: Path
) -> None:
    more = f", corpus: {corpus}" if corpus else ""
    mine.write_text(f"noise: {{sd: 0.1, df: 1, source: runs{more}}}")
    noise = ScaleNoise(sd=0.1, df=1, source="runs", corpus=corpus)
    assert load_scale("mine", "r07").era.noise == noise


def test_what_counts_is_scaled_to_a_whole_number_and_never_to_none(mine: Path) -> None:
    mine.write_text(
        "set: {schedule.steps: 10}\nfactor: {model.n_layer: 0.01, optim.muon_momentum: 0.5}\n"
    )
    values, _ = preset_values("r18")
    before = {
        **values,
        **{"schedule.steps": 100, "schedule.warmup_steps": 1, "schedule.cooldown_steps": 0},
        **{"optim.muon_momentum_warmup_steps": 60, "optim.scalar_freeze_steps": 0},
    }
    at = load_scale("mine", "r18").apply(before)
    assert at["model.n_layer"] == 1
    assert at["optim.muon_momentum"] == pytest.approx(values["optim.muon_momentum"] / 2)
    assert (at["schedule.warmup_steps"], at["schedule.cooldown_steps"]) == (1, 0)
    assert (at["optim.muon_momentum_warmup_steps"], at["optim.scalar_freeze_steps"]) == (6, 0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("base", ["r07", "r18", "r58"])
def test_every_scale_says_where_its_rates_are_from(scale: str, base: str) -> None:
    assert load_scale(scale, base).era.rates


def test_modern_is_the_newest_record(mine: Path) -> None:
    ours = [name for name in names("records") if name[1:].isdigit()]
    assert newest() == max(ours, key=lambda name: int(name[1:])) == load_preset("modern").name
    assert preset_values("modern") == preset_values(newest())
    records = mine.parent.parent / "records"
    records.mkdir()
    (records / "r99.yaml").write_text("base: r07\nchanges: {}\n")  # somebody's own is none of ours
    assert load_preset("modern").name == newest() != "r99"
    (records / "modern.yaml").write_text("base: r07\nchanges: {}\n")
    assert load_preset("modern").name == "modern"


def test_an_experiment_from_modern_names_the_record_and_its_rates(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = mine.parent.parent / "ablation.yaml"
    file.write_text(
        "name: ablation\nbase: modern\nscale: tiny\nchanges: {eps: {optim.adam_eps: 1.0e-9}}\n"
    )
    e = load_experiment(str(file), device="cpu")
    assert (e.base, e.scale_rates) == (newest(), load_scale("tiny", "r58").era.rates)
    assert e.departures == {}
    print_notes(e)
    said = capsys.readouterr().out
    assert f"learning rates: {newest()}'s at scale tiny, {e.scale_rates}" in said
    own = load_experiment(str(file), device="cpu", overrides={"optim.muon_lr": "x2"})
    print_notes(own)
    assert "learning rates" not in capsys.readouterr().out
