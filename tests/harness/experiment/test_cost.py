"""What a matrix costs before it starts: from its own runs where there are any, else from FLOPs and the card."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.config.run import from_plain
from harness.corpora.corpus import write_corpus
from harness.data.shards import write_shard
from harness.errors import UserError
from harness.experiment import cost
from harness.experiment.cost import Cost, check_limit, estimate, estimate_foreign, spent, with_price
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.node import slots
from harness.run.results import Result
from harness.run.spec import PlannedRun
from harness.training.flops import flops_per_token
from tests.fake_matrix import EXPERIMENT, Matrix
from tests.warm import forked_ablate


@pytest.fixture
def planned(tmp_path: Path) -> list[PlannedRun]:
    file = tmp_path / "fake.yaml"
    file.write_text(EXPERIMENT + "seeds: 3\n")
    return plan_runs(load_experiment(str(file), device="cpu"), need_data=False)


def test_finished_runs_price_their_own_kind_and_scale_the_others(
    planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    took = {"baseline": 10.0}
    done = {p.spec.run_id for p in planned if p.arm == "baseline" and p.spec.seed == 0}
    arm_of = {p.spec.run_id: p.arm for p in planned}

    def found(run: Path) -> Result:
        wall = {"total_s": took[arm_of[run.name]] + 3.0, "import_s": 3.0}
        return Result(status="finished", wall=wall)

    monkeypatch.setattr(cost, "read_result", found)
    monkeypatch.setattr(slots, "find_cpus", lambda: 2)
    got = estimate(planned, done, Path("nowhere"))
    assert (got.runs, got.source) == (5, "1 finished run")
    # the other arm computes nearly the same, so it is taken to be as slow
    assert got.slot_hours * 3600 == pytest.approx(50, rel=0.05)
    assert got.wall_hours == pytest.approx(got.slot_hours / 2)
    assert got.gpu_hours is None
    assert (
        f"to do: 5 runs, {got.tokens / 1e6:.1f}M training tokens, about {got.slot_hours:.2f} h of one slot, "
        f"{got.wall_hours:.2f} h on this machine (from 1 finished run)"
    ) in got.words


def test_without_runs_the_flops_and_the_card_give_the_time(
    planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "card", lambda: "H100")
    monkeypatch.setattr(slots, "list_gpus", lambda: [f"GPU {i}: H100" for i in range(8)])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    on_gpus = [replace(p, spec=replace(p.spec, device="cuda", world_size=2)) for p in planned]
    got = estimate(on_gpus, set(), Path("nowhere"))
    run_s = cost.by_flops(on_gpus[0].spec)
    assert got.gpu_hours * 3600 == pytest.approx(6 * 2 * run_s, rel=0.05)
    assert got.wall_hours == pytest.approx(got.slot_hours / 4)
    assert got.words.endswith(
        f" training tokens, about {got.gpu_hours:.2f} GPU-hours, {got.wall_hours:.2f} h on this machine "
        "(from FLOPs on an H100, to a factor of two or three)"
    )
    timing = [replace(p, spec=replace(p.spec, role="timing")) for p in on_gpus]
    alone = estimate(timing, set(), Path("nowhere"))
    assert alone.gpu_hours == pytest.approx(4 * got.gpu_hours)  # a run of two holds all eight
    assert alone.wall_hours == pytest.approx(got.slot_hours)
    twice = [replace(p, spec=replace(p.spec, budget=2 * p.spec.budget)) for p in on_gpus]
    assert estimate(twice, set(), Path("nowhere")).gpu_hours == pytest.approx(
        2 * got.gpu_hours, rel=0.15
    )


CARDS = {  # dense bf16 TFLOP/s by their makers' data sheets
    **{"NVIDIA B200": 2250, "NVIDIA H200 NVL": 990, "NVIDIA H100 80GB HBM3": 990},
    **{"NVIDIA GH200 480GB": 990, "NVIDIA A100-SXM4-80GB": 310, "NVIDIA L40S": 180},
    **{"NVIDIA GeForce RTX 4090": 165, "NVIDIA A10G": 125, "a card of another maker": 990},
}


@pytest.mark.parametrize("name", [*CARDS, None])
def test_a_run_costs_its_training_and_a_third_for_each_token_of_its_validations(
    name: str | None, planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "query_gpus", lambda _: [[name]] if name else [])
    cost.card.cache_clear()
    spec = planned[0].spec
    data, steps = spec.config["data"], spec.own_steps
    flops = flops_per_token(from_plain(spec.config), 257)
    training = (flops.model + flops.optimizer) * steps * data["batch_tokens"]
    for val_every, n_validations in ((steps + 1, 1), (steps, 2), (1, steps + 1)):
        at = replace(spec, config={**spec.config, "data": {**data, "val_every": val_every}})
        whole = training + n_validations * data["val_tokens"] * flops.model / 3
        assert cost.by_flops(at) == pytest.approx(whole / 2e10)
        four = replace(at, device="cuda", world_size=4)
        on_cards = whole / (4 * 0.35 * CARDS.get(name or "", 990) * 1e12)
        assert cost.by_flops(four) == pytest.approx(on_cards)
    cost.card.cache_clear()


def test_flops_count_the_vocabulary_of_the_corpus_itself(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    spec = planned[0].spec
    data = {**spec.config["data"], "corpus": "own"}
    own = replace(spec, config={**spec.config, "data": data})
    assert cost.by_flops(own) > 2 * cost.by_flops(spec)  # taken to be GPT-2's
    shards: dict[str, list[Path]] = {}
    for role in ("train", "val"):
        shards[role] = [tmp_path / "own" / f"own_{role}_000000.bin"]
        shards[role][0].parent.mkdir(exist_ok=True)
        write_shard(shards[role][0], np.array([256, 1]))
    write_corpus(
        tmp_path / "own", shards, vocab_size=257, separator=256, unit="nats per byte", source="me"
    )
    assert cost.by_flops(own) == cost.by_flops(spec)


def test_the_part_that_trains_or_validates_is_told_as_finished_runs_had_it(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = {"total_s": 100.0, "import_s": 10.0, "train_s": 40.0, "validate_s": 15.0, "idle_s": 10.0}
    monkeypatch.setattr(cost, "read_result", lambda run: Result(status="finished", wall=wall))
    got = estimate(planned, {planned[0].spec.run_id}, tmp_path)
    assert got.useful == pytest.approx(0.5)  # 55 of 100 and of 10 that its worker waited
    assert got.words.endswith("; of their time 50 % was training or validation")
    assert got.to_mapping()["useful"] == got.useful
    nothing_known = estimate(planned, (), tmp_path)
    assert "training or validation" not in nothing_known.words
    assert "useful" not in nothing_known.to_mapping()


def test_nothing_left_costs_nothing(
    planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cost, "read_result", lambda run: Result(status="finished", wall={"total_s": 1.0})
    )
    got = estimate(planned, {p.spec.run_id for p in planned}, Path("nowhere"))
    assert (got.runs, got.slot_hours, got.wall_hours) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("wall", "took_s"),
    [
        ({"total_s": 7.0}, [[7.0]]),
        ({"total_s": 7.0, "import_s": 3.0}, [[4.0]]),
        ({"total_s": 0.0}, []),
        (None, []),
    ],
)
def test_a_finished_run_took_what_it_took_after_its_imports(
    wall: dict[str, float] | None,
    took_s: list[list[float]],
    planned: list[PlannedRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "read_result", lambda run: Result(status="finished", wall=wall))
    done = {planned[0].spec.run_id}
    found = cost.measured(planned, done, Path("nowhere"))
    assert [*found.seconds.values()] == took_s
    assert [*found.walls] == ([wall] if took_s else [])
    hours = (wall or {}).get("total_s", 0.0) / 3600
    assert spent(planned[:1], Path("nowhere")) == pytest.approx(hours)


def test_of_a_single_run_everything_is_left_before_it_is_done(
    planned: list[PlannedRun], tmp_path: Path
) -> None:
    one, n_tokens = planned[:1], cost.training_tokens(planned[0].spec)
    got = estimate(one, (), tmp_path)
    assert (got.runs, got.tokens) == (1, n_tokens) == (1, 20 * 512)
    assert got.slot_hours == pytest.approx(cost.by_flops(one[0].spec) / 3600)
    assert spent(one, tmp_path) == 0.0
    foreign = [replace(one[0], spec=replace(one[0].spec, config={"trainer": {"gpus": 0}}))]
    at_most = estimate_foreign(foreign, tmp_path, wall_limit_s=900.0)
    assert (at_most.runs, at_most.slot_hours, at_most.gpu_hours) == (1, 0.25, None)
    assert at_most.words == "to do: 1 run, at most 0.25 h of one slot (from their wall limit)"
    nothing = estimate_foreign([], tmp_path, wall_limit_s=None)
    assert (nothing.slot_hours, nothing.gpu_hours, nothing.words) == (0.0, None, "to do: 0 runs")


def test_a_matrix_that_costs_more_than_allowed_is_refused(
    planned: list[PlannedRun], tmp_path: Path
) -> None:
    got = estimate(planned, set(), tmp_path)
    check_limit(got, None)
    check_limit(got, got.slot_hours * 1.01)
    check_limit(got, got.slot_hours)
    with pytest.raises(
        UserError, match=r"6 runs need about .* more than --max-gpu-hours .*: nothing was started"
    ):
        check_limit(got, got.slot_hours * 0.99)


@pytest.mark.parametrize(
    ("hours", "most", "already"),
    [
        ({"gpu_hours": 2.0, "slot_hours": 1.0}, 1.5, 0.0),
        ({"gpu_hours": None, "slot_hours": 1.2345}, 1.0, 0.0),
        ({"gpu_hours": 1.0, "slot_hours": 1.0}, 3.9, 3.04321),
        ({"gpu_hours": None, "slot_hours": None}, 1.0, 0.0),
    ],
)
def test_what_is_more_than_allowed_is_told_with_its_hours(
    hours: dict[str, float | None], most: float, already: float, kept_line: Callable[[str], None]
) -> None:
    got = Cost(runs=2, source="6 finished runs", words="to do: 2 runs", **hours)
    check_limit(got, None)
    with pytest.raises(UserError, match="--max-gpu-hours") as refused:
        check_limit(got, most, already=already)
    priced = [with_price(got, 2.5).words, with_price(got, 2.5, "20 an hour of 8").words]
    kept_line("\n".join([str(refused.value), *priced, with_price(got, None).words]))


def test_the_limit_stops_a_run_before_it_starts(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    code, out, err = matrix.run("--max-gpu-hours", "0.000000001")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not matrix.results.exists()
    assert "--max-gpu-hours 1e-09" in err


def test_what_is_done_costs_nothing_more(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, n_seeds=1)
    assert matrix.run()[0] == 0
    code, out, err = matrix.run("--max-gpu-hours", "0.000000001")
    assert (code, err) == (0, "")
    assert "everything is finished" in out


def test_what_follows_a_part_has_what_the_part_left(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cost, "read_result", lambda run: Result(status="finished", wall={"total_s": 1800.0})
    )
    assert spent(planned, tmp_path) == pytest.approx(3.0)
    assert spent(
        [replace(p, spec=replace(p.spec, device="cuda", world_size=4)) for p in planned], tmp_path
    ) == pytest.approx(12.0)
    got = Cost(runs=2, gpu_hours=1.0, slot_hours=1.0, source="6 finished runs", words="")
    check_limit(got, 4.0, already=3.0)
    with pytest.raises(
        UserError, match=r"2 runs need about 1 GPU-hours after 3 .*none of them was started"
    ):
        check_limit(got, 3.9, already=3.0)


@pytest.mark.slow
def test_an_adaptive_matrix_stops_where_the_limit_is_reached(tmp_path: Path) -> None:
    matrix = Matrix(
        tmp_path, FAKE_STEP_S="0.06"
    )  # hours are the subject: 1.2 s a run at least, more than the estimate says
    matrix.file.write_text(
        EXPERIMENT + "seeds: {min: 2, max: 6, stop: {half_width: 0.000000001}}\n"
    )
    hours = json.loads(plan_of(matrix))["cost"]["slot_hours"]
    code, _, err = matrix.run("--max-gpu-hours", f"{hours * 1.05:.12f}")
    assert (code, err.count("\n")) == (2, 1)
    assert "none of them was started" in err
    assert len(matrix.statuses()) == 4  # the first part, whole


def plan_of(matrix: Matrix) -> str:
    done = matrix.forked("plan", str(matrix.file), "--json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_foreign_trainers_are_priced_by_their_runs_or_their_wall_limit(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = [
        replace(p, spec=replace(p.spec, config={"trainer": {"gpus": 8}}, device="cuda"))
        for p in planned
    ]
    unknown = with_price(estimate_foreign(foreign, tmp_path, wall_limit_s=None), 2.0)
    assert unknown.price is None
    assert unknown.words.endswith("; price not known before a run is done")
    check_limit(unknown, None)
    with pytest.raises(UserError, match="add --wall-limit"):
        check_limit(unknown, 1.0)
    priced = with_price(estimate_foreign(foreign, tmp_path, wall_limit_s=600.0), 2.0)
    assert (
        priced.words
        == "to do: 6 runs, at most 8.00 GPU-hours (from their wall limit); price 16.00 at 2 per GPU-hour"
    )
    assert estimate_foreign(foreign, tmp_path, wall_limit_s=600.0).gpu_hours == pytest.approx(8.0)
    done = foreign[0].spec.run_id
    monkeypatch.setattr(
        cost,
        "read_result",
        lambda run: (
            Result(status="finished", wall={"total_s": 900.0}) if run.name == done else None
        ),
    )
    got = estimate_foreign(foreign, tmp_path, wall_limit_s=600.0)
    assert got.runs == sum(p.spec.run_id != done for p in foreign)
    assert got.gpu_hours == pytest.approx(got.runs * 8 * 900 / 3600)
    monkeypatch.setattr(
        cost, "read_result", lambda run: Result(status="finished", wall={"total_s": 900.0})
    )
    assert estimate_foreign(foreign, tmp_path, wall_limit_s=None).gpu_hours == 0.0


def test_two_scripts_start_nothing_past_the_limit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step:1/1 val_loss:3.0')\n")
    scripts = [
        "ab",
        "train.py",
        "train.py",
        "-n",
        "2",
        "--gpus-per-run",
        "0",
        "--max-gpu-hours",
        "0.5",
    ]
    for more, said in (
        ((), "add --wall-limit"),
        (("--wall-limit", "900"), "4 runs need about 1 hours of one slot"),
    ):
        done = forked_ablate(*scripts, *more, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert said in done.stderr
        assert not (tmp_path / "results").exists()
