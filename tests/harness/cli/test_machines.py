"""What an experiment takes on a machine that is not this one, and from which step times that is known."""

import json
import re
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli import bench
from harness.cli.machines import (
    Machine,
    StepTime,
    cost_on,
    known_on,
    makespan,
    save_step,
    saved_steps,
)
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from reports.analysis.assumptions import nearest_known, published_step_ms
from tests.foreign_bench import ablate

FINEWEB = ("--set", "data.corpus=fineweb10B")
TINY = (
    "plan",
    "r08_split",
    "--set",
    "scale=tiny",
    "--set",
    "data.corpus=fineweb10B",
    "--on",
    "8xH100",
    "--gpus-per-run",
    "1",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    def plan(*words: object) -> dict[str, Any]:
        assert ablate(*words, "--json") == 0
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return said

    return plan


def row(machine: str = "1xH100", scale: str = "tiny", vocabulary: int = 50257) -> StepTime:
    return StepTime(
        machine=machine,
        preset="r07",
        scale=scale,
        vocabulary=vocabulary,
        step_ms=36.0,
        source="measured",
    )


def test_seeds_runs_hours_and_money_come_from_the_published_steps(told: Any) -> None:
    plan = told(
        *("plan", "r08_split", "--on", "8xH100", "--price-node", 20, "--detect", 0.005),
        *("--seeds", 2),
    )
    steps = sum(arm["runs"] // 2 * sum(arm["steps"]) for arm in plan["arms"])
    hours = steps * published_step_ms("r07") / 3.6e6
    cost, power = plan["cost"], plan["power"]
    assert cost["wall_hours"] == pytest.approx(hours)
    assert cost["gpu_hours"] == pytest.approx(8 * hours)
    assert cost["price"] == pytest.approx(20 * hours)
    assert power["step_ms"] == pytest.approx(published_step_ms("r07"))
    share = power["needed"]["runs"] / plan["runs"]
    assert power["needed"]["runs"] == power["seeds_needed"] * plan["runs"] / 2
    assert power["needed"]["price"] == pytest.approx(share * 20 * hours)
    assert f"on 8xH100 that is {share * hours:.2f} h, {share * 20 * hours:.2f} at 20" in str(power)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--on", "8xH200"), "no step of r07 at scale gpt2 was timed on 8xH200"),
        (("--on", "4xH100"), "no step of r07 at scale gpt2 was timed on 4xH100"),
        (("--on", "8xH100", "--set", "scale=tiny", *FINEWEB), "at scale tiny was timed on 8xH100"),
        (("--on", "8xH100", "--set", "model.n_layer=6"), "it sets model.n_layer"),
    ],
)
def test_a_step_of_another_machine_scale_network_or_vocabulary_gives_no_hours(
    told: Any, words: tuple[str, ...], why: str
) -> None:
    cost = told("plan", "r08_split", "--seeds", 2, *words)["cost"]
    assert (cost["gpu_hours"], cost["price"]) == (None, None)
    assert why in cost["words"]


def test_a_step_is_saved_where_no_folder_is(tmp_path: Path) -> None:
    results = tmp_path / "no" / "such" / "folder"
    save_step(results, row())
    assert saved_steps(results) == [row()]


def test_a_saved_step_prices_runs_side_by_side_of_its_own_kind_alone(told: Any) -> None:
    results = Path("results")
    for other in (row(machine="1xA100"), row(scale="small"), row(vocabulary=257)):
        save_step(results, other)
    assert told(*TINY)["cost"]["gpu_hours"] is None
    save_step(results, row())
    save_step(results, row())
    assert len(saved_steps(results)) == 4
    plan = told(*TINY, "--price-node", 8)
    steps = sum(arm["runs"] * arm["steps"] for arm in plan["arms"])
    one = steps / plan["runs"] * 36.0 / 3.6e6
    hours = ceil(plan["runs"] / 8) * one  # all of them take the same steps
    cost = plan["cost"]
    assert (cost["gpu_hours"], cost["wall_hours"], cost["price"]) == pytest.approx(
        (8 * hours, hours, 8 * hours)
    )


@pytest.mark.parametrize(
    ("runs", "hours"), [([3], 3), ([1, 1, 1], 2), ([1, 1, 2], 2), ([1] * 4, 2)], ids=str
)
def test_a_run_is_not_shorter_on_more_gpus_than_it_uses(runs: list[float], hours: float) -> None:
    assert makespan(runs, at_once=2) == hours


def test_trunks_end_before_what_goes_on_from_them_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at a time: the trunk alone for 100 h, then 30 h beside 20 h, then 20 h."""

    def run(hours: int) -> Any:
        spec = SimpleNamespace(world_size=1, own_steps=3600 * hours, alone=False)
        return SimpleNamespace(spec=spec)

    runs = [run(hours) for hours in (30, 20, 20)]
    step: Any = StepTime(machine="", preset="", scale="", vocabulary=1, step_ms=1e3, source="x")
    monkeypatch.setattr("harness.run.spec.trunks_of", lambda planned: [run(100)])
    monkeypatch.setattr("harness.run.spec.is_exclusive", lambda spec: spec.alone)
    monkeypatch.setattr("harness.experiment.cost.training_tokens", lambda spec: 500_000)
    monkeypatch.setattr("harness.cli.machines.step_time", lambda *_: step)
    e: Any = None
    cost = cost_on(Machine.of("2xH100", None), e, runs, tmp_path)
    assert (cost.runs, cost.tokens, cost.wall_hours, cost.gpu_hours) == (3, 2_000_000, 140, 280)
    assert cost.words.startswith(
        "on 2xH100: 3 runs, 2.0M training tokens, about 140.00 h of it, 28"
    )
    runs[0].spec.alone = True
    assert cost_on(Machine.of("2xH100", None), e, runs, tmp_path).wall_hours == 100 + 30 + 20
    runs[0].spec.world_size = 3
    with pytest.raises(UserError, match=r"^--on 2xH100: a run takes 3 GPUs: --gpus-per-run 2$"):
        cost_on(Machine.of("2xH100", None), e, runs, tmp_path)


def test_hours_and_prices_have_their_unit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--on", "8xH100", "--price-node", 20, "--detect", 0.005, "--seeds", 2)
    assert ablate("plan", "r08_split", *words) == 0
    said = capsys.readouterr().out
    assert said.count("at 20 per hour of 8xH100") == 2
    assert re.search(r"runs in all, about \d+\.\d\d GPU-hours, about", said)


def test_what_was_measured_here_is_no_step_of_there() -> None:
    e = load_experiment("r08_split", device="cuda")
    planned = plan_runs(e, world_size=8, need_data=False)
    known = nearest_known(None, base="r07", scale="gpt2", steps=100)
    vars(known).update(step_ms=1e6, step_source="measured in 9 runs of the baseline")
    there = known_on(Machine.of("8xH100", None), e, planned, known, Path("results"))
    assert there.step_ms == published_step_ms("r07")
    nowhere = known_on(Machine.of("8xA100", None), e, planned, known, Path("results"))
    assert nowhere.step_ms is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (
                "plan",
                "r08_split",
                "--on",
                "8xH100",
                "--set",
                "scale=small",
                *FINEWEB,
                "--detect",
                0.01,
            ),
            "nothing is known of the noise at scale small",
        ),
        (("plan", "r08_split", "--on", "H100"), "is no machine: GPUs and their card"),
        (("plan", "r08_split", "--price-node", 20), "is of the machine that --on names"),
        (("plan", "r08_split", "--on", "8xH100", "--price", 2), "say --price-node"),
        (
            ("plan", "r08_split", "--on", "4xH100", "--gpus-per-run", 8),
            "a run takes 8 GPUs: --gpus-per-run 4",
        ),
        (
            ("plan", "quickstart", "--on", "8xH100", *FINEWEB),
            "quickstart has data.ranks=1, which 8 GPUs cannot share: --gpus-per-run 1 plans runs",
        ),
        (("bench", "r07", "--save-machine"), "there is no GPU here"),
        (("bench", "r07", "--save-machine", "--set", "model.n_layer=2"), "leave out model.n_layer"),
        (
            ("bench", "r07", "--save-machine", "--traffic"),
            "--save-machine: is of a preset as it is",
        ),
        (("bench", "--save-machine", "--compare", "r07", "r08"), "leave out --compare, --traffic"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "bench" in words and not message.startswith("leave"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("harness.node.slots.find_device", lambda: "cpu")
            assert ablate(*words) == 2
    else:
        assert ablate(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("change", [{"machine": 8}, {"step_ms": 0}, {"else": 1}])
def test_a_damaged_table_is_named(
    change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("results").mkdir()
    Path("results/machines.json").write_text(json.dumps([vars(row()) | change]))
    assert ablate(*TINY) == 2
    assert "machines.json: is no table of machines" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpu", "card"), [("NVIDIA H100 80GB HBM3", "H100"), ("Quadro RTX 9 (x)", "Quadro-RTX-9-x")]
)
def test_a_card_has_its_short_name(gpu: str, card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: gpu)
    assert bench.card_here() == card
    assert str(Machine.of(f"1x{card}", None)) == f"1x{card}"


@dataclass(frozen=True)
class Measured:
    step_ms_median: float = 36.0
    mfu: float = 0.25


@dataclass(frozen=True)
class Part:
    part: str = "forward"
    ms: float = 9.0
    share: float = 0.25


def test_a_bench_is_told_with_the_parts_of_a_step_and_kept_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = SimpleNamespace(text=SimpleNamespace(name="mine", vocab_size=300))
    asked: list[Any] = []
    monkeypatch.setattr(bench, "candidate", lambda *of, **how: asked.append((of, how)) or one)
    monkeypatch.setattr(bench, "card_here", lambda: "H100")
    monkeypatch.setattr("harness.bench.steps.measure", lambda side, steps: Measured())
    monkeypatch.setattr("harness.bench.breakdown.breakdown", lambda side: [Part()])
    for device, scale in (("cpu", "tiny"), ("cuda", "gpt2")):
        monkeypatch.setattr("harness.node.slots.find_device", lambda device=device: device)
        assert ablate("bench", "r07", "--json") == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["scale"], result["device"]) == (scale, device)
        assert (result["preset"], result["corpus"], result["mfu"]) == ("r07", "mine", 0.25)
        assert result["breakdown"] == [{"part": "forward", "ms": 9.0, "share": 0.25}]
        assert asked.pop() == (("r07", {}), {"scale": scale, "device": device})
        assert bool(result["substituted"]) == (device == "cpu")
    assert not Path("results").exists()
    assert ablate("bench", "r07", "--save-machine", "--scale", "tiny", "--steps", 3) == 0
    assert "25.0 %" in capsys.readouterr().out
    [kept] = saved_steps(Path("results"))
    assert kept == replace(row(vocabulary=300), source=kept.source)
    assert kept.source.startswith("median of 3 steps, torch ")
    assert ablate("bench", "r07", "--steps", 0) == 2


@pytest.mark.parametrize(
    ("corpus", "is_there", "prepared"),
    [("stdlib", False, ["stdlib"]), ("stdlib", True, []), ("mine", False, [])],
)
def test_a_bench_prepares_the_text_that_comes_with_the_program(
    corpus: str, is_there: bool, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    folder = Path("data/stdlib").absolute()
    monkeypatch.setenv("ABLATE_DATA", str(folder.parent))
    if is_there:
        folder.mkdir(parents=True)
        (folder / "corpus.json").touch()
    text = SimpleNamespace(train=(), vocab_size=300, separator=None)
    monkeypatch.setattr("harness.corpora.index.prepare", seen.append)
    monkeypatch.setattr("harness.corpora.index.open_corpus", lambda name: text)
    made = bench.candidate("r07", {"data.corpus": corpus}, scale="tiny", device="cpu")
    assert (seen, made.text.name, made.text.vocab_size) == (prepared, corpus, 300)


def test_hours_that_are_not_known_are_no_hours_of_the_machine() -> None:
    machine = Machine.of("8xH100", 20.0)
    assert machine.words_on(None) == []
    [said] = machine.words_on(16.0)
    assert said.startswith("on 8xH100 that is 2.00 h, 40.00 at ")
    assert Machine.of("8xH100", None).words_on(16.0) == ["on 8xH100 that is 2.00 h"]
