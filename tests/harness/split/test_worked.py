"""Three bundles with known effects taken apart, run and attributed; a plain script's own record."""

import json
import re
from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from harness.split.arms import measured, mended, problems_of, without
from harness.split.check import Checker
from harness.split.groups import take_apart
from harness.split.source import normal
from reports.analysis.attribution import Attribution, attributions
from reports.inputs.load import load
from reports.verify.verify import verify
from tests.foreign_bench import TRAINERS, ablate

ROOT = Path(__file__).resolve().parents[3]


def split_pair(name: str, **keys: object) -> Path:
    """The experiment of a pair, here; keys: of its file."""
    sides = [TRAINERS / "worked" / f"{name}_{side}.py" for side in ("old", "new")]
    command = ("--command", "python {script}", "--gpus-per-run", 0)
    assert ablate("split", *sides, "-o", name, *command) == 0
    path = Path(name, "experiment.yaml")
    content = yaml.safe_load(path.read_text())
    content["trainer"]["env"] = {"SEED": "{seed}"}
    path.write_text(yaml.safe_dump(content | keys))
    return path


def attributed(path: Path) -> dict[str, Attribution]:
    """Run it; its tables by metric, the page verified."""
    assert ablate("run", path) == 0
    name = path.parent.name
    assert verify(Path("results/experiments", name, "report.html"), Path("results")) == []
    return {table.metric: table for table in attributions(load(name))}


def recovered(table: Attribution, column: str, truth: dict[str, float]) -> None:
    for change, value in truth.items():
        share = table.shares[change][column]
        assert share.low is not None and share.high is not None
        assert share.low <= value <= share.high, (table.metric, column, change, share)
        assert share.high - share.low < 0.02 * {"steps": 200, "seconds": 20}.get(table.metric, 1)


@pytest.mark.slow
def test_two_changes_that_only_help_together_in_loss_steps_and_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.02 nats of 0.1 per log step at 20 steps of 0.1 s: 4 steps, 0.4 s; NEW's 16 steps are no arm's but two."""
    monkeypatch.chdir(tmp_path)
    tables = attributed(split_pair("together", design="shapley", seeds=4))
    assert set(tables) == {"val_loss", "steps", "seconds"}
    for metric, worth in (("val_loss", -0.02), ("steps", -4.0), ("seconds", -0.4)):
        recovered(tables[metric], "alone", {"gate": 0.0, "scale": 0.0})
        recovered(tables[metric], "shapley", {"gate": worth / 2, "scale": worth / 2})
        recovered(tables[metric], "left_out", {"gate": worth, "scale": worth})
    steps = load("together").runs.groupby("arm")["budget"].first()
    assert set(steps[steps == 16].index) == {"steps", "all + steps"}
    page = Path("results/experiments/together/report.html")
    text = page.read_text()
    for metric in ("val_loss", "steps", "seconds"):
        value = tables[metric].shares["gate"]["left_out"]
        for number in (value.value, value.low):
            start = text.index(f'data-table="attribution-{metric}"')
            carried = next(c for c in carried_in(text[start:]) if near_any(c, number))
            wrong = ",".join(str(float(part) * 1.01) for part in carried.split(","))
            forged = text[:start] + text[start:].replace(f'"{carried}"', f'"{wrong}"', 1)
            Path("forged.html").write_text(forged)
            said = verify(Path("forged.html"))
            assert any(f"attribution-{metric}, gate" in line for line in said), (metric, said)


@pytest.mark.slow
@pytest.mark.parametrize("design", ["add-one", "ladder"])
def test_every_design_tells_the_parts_in_loss_steps_and_seconds(
    design: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone both do nothing; on top of the gate the scale brings all of it."""
    monkeypatch.chdir(tmp_path)
    tables = attributed(split_pair("together", design=design, seeds=4))
    assert set(tables) == {"val_loss", "steps", "seconds"}
    for metric, worth in (("val_loss", -0.02), ("steps", -4.0), ("seconds", -0.4)):
        of_scale = worth if design == "ladder" else 0.0
        column = "in_order" if design == "ladder" else "alone"
        recovered(tables[metric], column, {"gate": 0.0, "scale": of_scale})
        whole = tables[metric].total
        assert (whole is None) == (design == "add-one")
        if whole is not None:
            assert whole.low is not None and whole.high is not None
            assert whole.low <= worth <= whole.high
    page = Path("results/experiments/together/report.html").read_text()
    assert (
        "All parts but the length together" in page
        if design == "ladder"
        else "Contributions in steps" in page
    )
    said = page.split('class="headline"')[-1][:3000]
    assert "all + steps (" not in said.split("All parts but the length together")[-1][:80]
    for metric in tables:
        start = page.index(f'data-table="attribution-{metric}"')
        carried = carried_in(page[start:])[0]
        wrong = ",".join(str(float(part) + 0.01) for part in carried.split(","))
        Path("forged.html").write_text(
            page[:start] + page[start:].replace(f'"{carried}"', f'"{wrong}"', 1)
        )
        assert any(f"attribution-{metric}, gate" in line for line in verify(Path("forged.html")))


def carried_in(text: str) -> list[str]:
    return [piece.split('"')[0] for piece in text.split('data-v="')[1:]]


def near_any(carried: str, number: float | None) -> bool:
    parts = [float(part) for part in carried.split(",") if part]
    return number is not None and any(abs(part - number) < 1e-4 * abs(number) for part in parts)


@pytest.mark.slow
def test_a_rate_that_belongs_to_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = attributed(split_pair("rate", design="shapley", seeds=4))["val_loss"]
    without_it = 0.04 - 0.02 * 1.39794  # the new rule at the old rate
    recovered(table, "alone", {"rate": 0.048, "rule": 0.01 - without_it})
    recovered(table, "left_out", {"rate": without_it - 0.04, "rule": -0.078})
    path = Path("rate", "changes.yaml")
    content = yaml.safe_load(path.read_text())
    content["groups"]["rule"]["atoms"] += content["groups"].pop("rate")["atoms"]
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    assert ablate("split", "--check", "rate") == 0


@pytest.mark.slow
def test_a_part_that_hurts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = attributed(split_pair("hurts", seeds=4))["val_loss"]
    recovered(table, "left_out", {"warm": -0.02, "dropped": 0.01, "depth": 0.0})
    assert table.total is not None and abs(table.total.value + 0.01) < 0.002
    hurting = table.shares["dropped"]["left_out"]
    assert hurting.low is not None and hurting.low > 0
    prune = ("split", "--prune", "hurts", "--margin", "0.003")
    capsys.readouterr()
    assert ablate(*prune, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["smoke"] is None and {row["group"] for row in told["groups"]} >= {"warm", "depth"}
    may_go = {row["group"]: row["may_go"] for row in told["prune"]["groups"]}
    assert may_go == {"warm": False, "depth": True, "dropped": True}
    assert told["prune"]["experiment"] == "hurts/prune.yaml" and told["prune"]["written"] is None
    assert ablate("run", "hurts/prune.yaml", "--no-report") == 0
    capsys.readouterr()
    assert ablate(*prune, "--json") == 0
    told = json.loads(capsys.readouterr().out)["prune"]
    assert told["written"] == "hurts/pruned/hurts_new.py"
    assert told["scripts"][0]["passes"] and told["scripts"][0]["at_most"] < 0.003
    text = Path("hurts/pruned/hurts_new.py").read_text()
    assert "warm = 0.02" in text and "depth = 12" in text and "gain -= dropped" not in text
    page = Path("hurts/split.html").read_text()
    [given] = re.findall(r'download="pruned_hurts_new.py" href="data:[^,]*,([^"]*)"', page)
    assert b64decode(given).decode() == text


# ---------------------------------------------------------------- a plain script of our own

KNOWN = {  # what records 9 to 18 changed in the plain script -> words of its atoms
    "softcap": ("torch.tanh",),
    "shortcuts across the middle": ("skip_weights",),
    "momentum warm-up": ("momentum_warmup",),
    "windows": ("window_tokens",),
    "cooldown": ("cooldown_frac",),
    "embedding's rate": ("Hyperparameters.embed_lr",),
    "head's rate": ("Hyperparameters.head_lr",),
    "Muon's rate": ("Hyperparameters.muon_lr",),
    "steps": ("Hyperparameters.steps",),
}


@pytest.mark.slow
def test_the_changes_of_our_own_records_are_found_as_groups_of_their_own() -> None:
    texts = [
        normal((ROOT / "benchmarks" / f"{name}_plain.py").read_text(), where=name)
        for name in ("r08", "r18")
    ]
    checker = Checker(*texts)
    parts = mended(take_apart(*texts), checker)
    said = {atom.number: f"{atom.place}: {atom.what}" for atom in parts.atoms}
    places: dict[str, set[str]] = {}
    for change, words in KNOWN.items():
        for group in parts.groups:
            if any(word in said[number] for word in words for number in group.atoms):
                places.setdefault(change, set()).add(group.name)
    assert set(places) == set(KNOWN)
    assert all(len(names) == 1 for names in places.values()), places
    assert len(set().union(*places.values())) == len(KNOWN)
    judged = [group.name for group in measured(parts.groups)]
    passing = [not problems_of(parts, checker, without(parts.groups, name)) for name in judged]
    assert sum(passing) >= 0.9 * len(judged)
