"""Small parts of commands: which options go together, where an experiment's name leads, what confirms an arm, which seeds follow."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest
import typer
import yaml
from typer.testing import CliRunner

from harness.cli import adaptive
from harness.cli.ab_name import is_of_these, with_own_name
from harness.cli.command import takes
from harness.cli.confirm_arms import chosen_arms, factor_between, points_named
from harness.cli.devices import refuse_other_device, sets_device
from harness.cli.executors import EXECUTORS
from harness.cli.margin import margin_note
from harness.cli.plan_options import PlanOptions
from harness.cli.rerun import check_source, plugins_of
from harness.cli.run import PlannedPart, following_part, hours_of
from harness.cli.run_options import RunOptions
from harness.cli.said import give_json
from harness.cli.where import Placement, chosen_executor
from harness.config.run import plain_value, toggles
from harness.errors import UserError
from harness.run.foreign import TrainerSpec
from harness.run.plan import Plan, PlanArm, SeedsRule
from harness.runner.executor import ExecutorOptions, Summary
from harness.store.plans import save_plan
from harness.store.store import Store
from reports.stats.sequential import Continue
from tests.one_run import SPEC

# ---------------------------------------------------------------- which options go together


def test_an_executor_takes_its_own_options_and_those_that_all_have() -> None:
    assert chosen_executor(Placement()) is EXECUTORS["local"]
    assert chosen_executor(Placement(executor="slurm", cluster=Path("c"))) is EXECUTORS["slurm"]
    assert chosen_executor(Placement(executor="ray", address="auto")) is EXECUTORS["ray"]
    assert chosen_executor(Placement(push="box:x", pull=True)) is EXECUTORS["local"]
    assert Placement().is_here and not Placement(executor="ray").is_here


REFUSED_PLACES = {
    "--executor slrum: must be local or slurm or ray": Placement(executor="slrum"),
    "are for --executor slurm: add that, or leave them out": Placement(cluster=Path("c")),
    "are for --executor ray: add that": Placement(executor="slurm", address="auto"),
    "say with --push DEST where that is": Placement(pull=True),
}


@pytest.mark.parametrize("message", REFUSED_PLACES)
def test_options_that_do_not_fit_are_refused(
    message: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=message) as error:
        chosen_executor(REFUSED_PLACES[message])
    kept_line(str(error.value))


def test_a_price_is_of_this_machine_or_of_the_one_that_is_named() -> None:
    def machine(**options: Any) -> Any:
        return PlanOptions(experiments=["x"], **options).machine

    assert machine() is None and machine(price=2.0) is None
    named = machine(on="8xH100", price_node=24.0)
    assert (str(named), named.gpus, named.price_per_hour) == ("8xH100", 8, 24.0)
    with pytest.raises(UserError, match="with --on say --price-node"):
        machine(on="8xH100", price=2.0)
    with pytest.raises(UserError, match="is of the machine that --on names"):
        machine(price_node=24.0)


@pytest.mark.parametrize(
    ("gpus", "nodes", "processes"), [(None, 1, None), (4, 1, 4), (None, 2, 2), (4, 3, 12)]
)
def test_a_run_has_the_processes_of_all_its_nodes(
    gpus: int | None, nodes: int, processes: int | None
) -> None:
    asked = RunOptions(experiment="x", gpus_per_run=gpus, nodes_per_run=nodes)
    assert asked.world_size == processes
    assert asked.for_some_executors() == ["--nodes-per-run"] * (nodes > 1)


def test_without_ray_its_executor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cluster is asked for its device, and where runs are made."""
    monkeypatch.setattr("harness.cli.executors.find_spec", lambda name: None)
    options: Any = SimpleNamespace(address="auto")
    ray = EXECUTORS["ray"]
    for ask in (ray.device, lambda asked: ray.make([], Store(Path()), asked)):
        with pytest.raises(UserError, match=r"^--executor ray needs Ray: pip install '"):
            ask(options)
    modules: dict[str, Any] = {
        "executor": SimpleNamespace(RayRunner=lambda runs, store, asked: store.root),
        "nodes": SimpleNamespace(device_of_nodes=lambda address: f"cuda at {address}"),
    }  # those that import it
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"harness.runner.ray.{name}", module)
    monkeypatch.setattr("harness.cli.executors.find_spec", lambda name: name == "ray" or None)
    assert ray.device(options) == "cuda at auto"
    assert cast("Any", ray.make([], Store(Path("r")), options)) == Path("r")


def test_without_slurm_no_job_is_made_and_no_script_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm, options = EXECUTORS["slurm"], ExecutorOptions(experiment="x")
    for ask in (
        lambda: slurm.make([], Store(tmp_path), options),
        lambda: slurm.scripts([], tmp_path, options),
    ):
        with pytest.raises(UserError, match=r"^--executor slurm: no sbatch here: run this on a"):
            ask()
    asked: Any = SimpleNamespace(cluster=SimpleNamespace(device="cuda"))
    assert slurm.device(asked) == "cuda" and slurm.device(options) is None


def test_what_is_not_sent_elsewhere_has_no_scripts_and_no_jobs() -> None:
    options: Any = SimpleNamespace()
    for name in ("local", "ray"):
        assert EXECUTORS[name].scripts([], Path(), options) == []
        assert EXECUTORS[name].cancel(Path(), "x") == 0
    assert EXECUTORS["local"].device(options) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (None, False),
        ([], False),
        (["seeds=2", "device=cpu"], True),
        (["device =cpu"], True),
        (["device.x=1", "devices=3"], False),
    ],
)
def test_a_device_is_said_by_its_own_key(settings: list[str] | None, said: bool) -> None:
    assert sets_device(settings) == said


@pytest.mark.parametrize(
    ("planned", "here", "cure"),
    [
        ("cuda", "cpu", "see why nvidia-smi shows no GPU here"),
        ("cpu", "cuda", "hide the GPUs (CUDA_VISIBLE_DEVICES=)"),
        ("cpu", "cpu", None),
        (None, "cpu", None),
    ],
)
def test_another_device_than_the_planned_one_is_taken_where_it_is_asked_for(
    planned: str | None, here: str, cure: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned_for(device: str | None, name: str) -> None:
        monkeypatch.setattr(
            "harness.cli.devices.planned_device", lambda of, _: device if of == name else None
        )

    e: Any = SimpleNamespace(name="x", grid=SimpleNamespace(name="x.grid"), device=here)
    for name in ("x", "x.grid"):
        planned_for(planned, name)
        refuse_other_device(e, Path(), [f" device ={here}"])
        if cure is None:
            refuse_other_device(e, Path(), None)
            continue
        with pytest.raises(UserError) as refused:
            refuse_other_device(e, Path(), ["seeds=3"])
        assert str(refused.value) == (
            f"experiment '{name}' was planned on {planned}, and this call would plan it anew on"
            f" {here}: {cure}, or ask for it with --set device={here}"
        )


def test_the_hours_of_a_part_are_those_of_the_runs_that_this_call_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planned(name: str, trunk: Any = None) -> Any:
        return SimpleNamespace(spec=SimpleNamespace(run_id=name, trunk=trunk))

    of_trunk: Any = planned("trunk")
    runs = [planned("before"), planned("now"), planned("failed")]
    monkeypatch.setattr("harness.run.spec.trunks_of", lambda of: [of_trunk] if of == runs else [])
    monkeypatch.setattr(
        "harness.experiment.cost.spent",
        lambda ran, results: float("".join(str(len(run.spec.run_id)) for run in ran)),
    )
    part = PlannedPart(experiment=cast("Any", None), runs=runs)
    made = Summary(
        had_result={"before": "finished"},
        statuses={"trunk": "finished", "now": "finished", "failed": "failed"},
    )
    asked = RunOptions(experiment="x", max_gpu_hours=9.0)
    assert hours_of(part, made, asked) == 536.0
    assert hours_of(part, made, replace(asked, max_gpu_hours=None)) == 0.0


def test_nothing_follows_a_part_that_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cli.run.next_part", lambda *_, world_size: world_size)
    part: Any = SimpleNamespace(experiment=None)
    asked = RunOptions(experiment="x", gpus_per_run=3)
    assert following_part(cast("Any", None), part, Summary(), asked) == 3
    assert following_part(cast("Any", None), part, Summary(stopped="interrupted"), asked) is None


@dataclass(frozen=True, kw_only=True)
class Asked:
    name: Annotated[str, typer.Argument()]
    n: Annotated[int, typer.Option("--n")] = 3


def test_a_command_hands_its_options_on_whole() -> None:
    seen: list[Asked] = []
    app = typer.Typer()

    @app.command()
    @takes(Asked)
    def command(asked: Asked) -> None:
        """What it does."""
        seen.append(asked)

    runner = CliRunner()
    assert runner.invoke(app, ["x"]).exit_code == 0
    assert runner.invoke(app, ["x", "--n", "4"]).exit_code == 0
    assert seen == [Asked(name="x"), Asked(name="x", n=4)]
    assert runner.invoke(app, []).exit_code == 2, "what has no default is required"


def test_what_a_command_says_on_its_way_to_json_is_there_at_once(tmp_path: Path) -> None:
    """In a file, too, which is written when it is closed unless somebody asks."""
    told, app, seen = tmp_path / "told", typer.Typer(), list[str]()

    @app.command()
    def command() -> None:
        """What it does."""
        print("it has begun", flush=True)
        seen.append(told.read_text())

    give_json(app)
    with told.open("w") as file, redirect_stderr(file), redirect_stdout(io.StringIO()):
        app(["--json"], standalone_mode=False)
    assert seen == ["it has begun\n"]


# ---------------------------------------------------------------- the name of `ab`


def script(path: Path | None, **more: Any) -> TrainerSpec:
    return TrainerSpec(file=path, script="", command="c", env={}, data={}, environment={}, **more)


def arms(**written: TrainerSpec) -> Any:
    """An experiment of scripts that are there."""
    return [SimpleNamespace(name=name, written=spec) for name, spec in written.items()]


def kept(root: Path, name: str, **sides: TrainerSpec) -> None:
    planned = tuple(PlanArm(name=arm, of=arm, side=side) for arm, side in sides.items())
    save_plan(root, Plan(name=name, foreign=True, baseline=planned[0].name, arms=planned))


@dataclass(frozen=True)
class Scripts:
    name: str
    arms: Any


def test_other_scripts_of_a_name_that_is_taken_get_the_next_one_and_find_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        (tmp_path / f"{name}.py").touch()
    a, b, c = (script(tmp_path / f"{name}.py") for name in "abc")
    ours: Any = Scripts("x", arms(old=a, new=b))
    assert with_own_name(ours, tmp_path).name == "x"
    kept(tmp_path, "x", old=a, new=c)
    assert capsys.readouterr().err == ""
    assert with_own_name(ours, tmp_path).name == "x-2"
    assert capsys.readouterr().err == (
        "experiment 'x' holds other scripts (old, new): this one is named 'x-2'\n"
    )
    kept(tmp_path, "x-2", old=a, new=b)
    kept(tmp_path, "x-3", old=c)
    assert with_own_name(ours, tmp_path).name == "x-2"


def test_an_experiment_of_the_same_scripts_may_have_more_arms_or_fewer(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.py").touch()
    a, b, c = (script(tmp_path / f"{name}.py") for name in "abc")

    def plan(**sides: TrainerSpec) -> Plan:
        planned = tuple(PlanArm(name=arm, of=arm, side=side) for arm, side in sides.items())
        return Plan(name="x", foreign=True, arms=planned)

    def is_same(before: Plan, **written: TrainerSpec) -> bool:
        e: Any = Scripts("x", arms(**written))
        return is_of_these(before, e)

    assert is_same(plan(old=a), old=a, new=b)
    assert is_same(plan(old=a, new=b), old=a)
    assert not is_same(plan(old=a, new=b), old=a, other=c)
    assert not is_same(plan(old=a), old=b)
    assert not is_same(plan(old=a), old=script(tmp_path / "a.py", patches=(Path("p"),)))
    moved = script(tmp_path / "gone.py")
    assert is_same(plan(old=moved), old=b), "a script that is gone was moved"
    of_repo = script(None, repo=Path("r"), ref="HEAD")
    assert not is_same(plan(old=of_repo), old=a)


# ---------------------------------------------------------------- what confirms an arm


def point(name: str, of: str, fields: dict[str, Any], **more: Any) -> PlanArm:
    return PlanArm(name=name, of=of, fields=fields, **more)


def grid(*more: PlanArm) -> Plan:
    base = PlanArm(name="baseline", of="baseline")
    return Plan(
        name="x",
        baseline="baseline",
        baseline_config={"optim": {"lr": 0.02, "betas": None}},
        arms=(base, *more),
    )


def test_a_point_of_an_axis_is_confirmed_by_its_values() -> None:
    plan = grid(
        point("lr=0.03", "baseline", {"optim.lr": 0.03}, point={"optim.lr": "0.03"}),
        point("b, lr=0.03", "b", {"optim.lr": 0.03}, point={"optim.lr": "0.03"}, alters_noise=True),
        point("b", "b", {"optim.x": 1}),
    )
    assert points_named(plan, ["lr=0.03"], {}) == {"changes": {"lr 0.03": {"optim.lr": 0.03}}}
    both = points_named(plan, ["lr=0.03", "b, lr=0.03"], {})
    assert [*both["changes"]] == ["lr 0.03", "b, lr 0.03"]
    assert both["alters_noise"] == ["b, lr 0.03"]
    assert points_named(plan, ["b"], {}) == {}, "off the axes: confirmed as it is named"
    of_adam = {"optim.adam_lr": 0.1}
    adam = grid(point("adam_lr=0.1", "baseline", of_adam, point={"optim.adam_lr": "0.1"}))
    assert points_named(adam, ["adam_lr=0.1"], {}) == {"changes": {"adam_lr 0.1": of_adam}}
    assert points_named(plan, ["lr=0.03", "unknown"], {}) == {}


def test_what_set_gives_is_confirmed_by_a_factor_of_it() -> None:
    plan = grid(point("lr=0.03", "baseline", {"optim.lr": 0.03}, point={"optim.lr": "0.03"}))
    made = points_named(plan, ["lr=0.03"], {"optim.lr": 0.02})
    assert made == {"changes": {"lr 0.03": {"optim.lr": "x1.5"}}}
    none = grid(point("p", "baseline", {"optim.betas": 0.5}, point={"optim.betas": "0.5"}))
    with pytest.raises(UserError, match=r"no factor makes optim\.betas of what `set` gives"):
        points_named(none, ["p"], {"optim.betas": 0.1})


def test_a_point_that_no_values_make_is_confirmed_with_its_whole_experiment() -> None:
    bare = grid(point("p", "baseline", {}, point={"code.x": "1"}))
    of_environment = grid(
        point("p", "baseline", {"optim.lr": 1}, point={"a.b": "1"}, environment_effect="torch")
    )
    for plan in (bare, of_environment):
        with pytest.raises(UserError, match="no values alone make it: confirm the whole"):
            points_named(plan, ["p"], {})


def test_a_factor_makes_the_value_to_the_last_bit() -> None:
    for before in (0.02, 0.0031, 3e-4, 7.0):
        for value in (0.03, 0.1, 1 / 3, 2.1):
            factor = factor_between(before, value)
            assert factor is None or before * factor == value
            assert factor is None or abs(factor - value / before) < 1e-12 * factor
    assert factor_between(0.02, 0.04) == 2.0
    assert [factor_between(*pair) for pair in ((0, 1.0), (None, 1.0), (1.0, 0), (1.0, -1.0))] == [
        None
    ] * 4


def test_arms_off_the_axes_are_confirmed_by_their_names() -> None:
    plan = grid(
        PlanArm(name="b", of="b", changes=("b", "c")),
        point("lr=0.03", "baseline", {"optim.lr": 0.03}),
    )
    assert chosen_arms(plan, ["b"]) == {"b": ["b", "c"]}
    assert chosen_arms(plan, []) == {}
    for name in ("baseline", "lr=0.03", "bb"):
        with pytest.raises(UserError, match=f"--arm {name}: no arm of 'x'"):
            chosen_arms(plan, [name])


# ---------------------------------------------------------------- which seeds follow


@pytest.mark.usefixtures("said_at_once")
@pytest.mark.parametrize(
    ("asked", "most", "expected"), [(4, 99, 4), (4, 5, 2), (4, 3, 0), (4, 2, 0)]
)
def test_seeds_that_follow_come_after_the_largest_and_never_more_than_the_rule_allows(
    asked: int,
    most: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("harness.cli.lookup.load_for_report", lambda *a, **k: None)
    decision = Continue(n=asked, reason="undecided")
    monkeypatch.setattr("reports.analysis.adaptive.decide", lambda loaded: decision)
    e: Any = SimpleNamespace(name="x", seeds=(0, 7, 2))
    assert adaptive.next_seeds(e, most, Path()) == tuple(range(8, 8 + expected))
    assert capsys.readouterr().out == (f"undecided: {expected} more\n" if expected else "")


def test_no_seeds_follow_what_is_decided_or_has_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cli.lookup.load_for_report", lambda *a, **k: None)
    monkeypatch.setattr("reports.analysis.adaptive.decide", lambda loaded: None)
    e: Any = SimpleNamespace(name="x", seeds=(0,), seeds_rule=None)
    assert adaptive.next_seeds(e, 9, Path()) == ()
    assert adaptive.next_part(e, e, Path()) is None


RULE = SeedsRule(least=2, most=9, stop={})


@dataclass(frozen=True)
class Part:
    name: str
    seeds: tuple[int, ...] = (0, 1)
    seeds_rule: Any = RULE
    halving: Any = None
    budgets: tuple[int, ...] = (20,)
    arms: Any = ()


@pytest.mark.usefixtures("said_at_once")
def test_a_part_is_followed_by_the_next_one_or_by_more_seeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: Any = Part("x")
    grid: Any = Part("x.grid")
    rung: Any = Part("x.rung2", halving=SimpleNamespace(words="rung 2 of 3"))
    rung = replace(rung, arms=[SimpleNamespace(name=name) for name in ("base", "lr=1", "lr=2")])
    asked = []

    def followed_by(following: Any) -> Any:
        monkeypatch.setattr(adaptive, "current_part", lambda *_, world_size: following)
        return adaptive.next_part(whole, grid, Path(), world_size=2)

    assert followed_by(replace(grid, seeds=(5,))) is None, "the same part: it is not complete"
    assert followed_by(whole) is whole
    assert capsys.readouterr().out == ""
    assert followed_by(rung) is rung
    assert capsys.readouterr().out == "rung 2 of 3, 20 steps: lr=1, lr=2\n"
    follow: list[tuple[int, ...]] = [(), (2, 3)]
    monkeypatch.setattr(adaptive, "with_more", lambda e, seeds: (e, seeds))
    monkeypatch.setattr(adaptive, "next_seeds", lambda e, most, _: asked.append(most) or follow[0])
    assert adaptive.next_part(whole, whole, Path()) is None
    del follow[0]
    assert cast("Any", adaptive.next_part(whole, whole, Path())) == (whole, (2, 3))
    assert asked == [9, 9]


def test_a_margin_of_another_text_is_told_with_the_unit_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = SimpleNamespace(data=SimpleNamespace(corpus="docs"))
    baseline = SimpleNamespace(config=config)
    e: Any = SimpleNamespace(margin_of=None, margin=0.05, baseline=baseline)
    assert margin_note(e) is None
    e.margin_of = "fineweb10B"
    corpus = SimpleNamespace(unit="nats per byte")
    monkeypatch.setattr("harness.corpora.index.open_corpus", lambda name: corpus)
    assert margin_note(e) == (
        "margin 0.05: chosen for fineweb10B, taken as it is on docs, in nats per byte; "
        "--set margin=X chooses another"
    )

    def missing(name: str) -> None:
        raise UserError("not prepared")

    monkeypatch.setattr("harness.corpora.index.open_corpus", missing)
    told = margin_note(e)
    assert told is not None and "on docs; --set" in told


# ---------------------------------------------------------------- what a run needs to be done again


def test_a_run_of_a_plug_in_that_is_gone_is_not_done_again(tmp_path: Path) -> None:
    gone = tmp_path / "idea.py"
    with pytest.raises(UserError, match=r"run r was made with plug-in .*idea\.py: bring that file"):
        check_source("r", SPEC, [Path(__file__), gone], tmp_path)


def test_the_table_of_toggles_has_each_once_in_values_that_can_be_typed(ablate: Any) -> None:
    head, *rows = ablate("toggles").out.splitlines()
    assert [row.split()[0] for row in rows] == [name for name, _ in toggles()]
    place = head.index("default")
    shown = {row.split()[0]: row[place:].split("  ")[0] for row in rows}
    for name, f in toggles():
        if not isinstance(f.default, float):  # numbers to four digits
            assert yaml.safe_load(shown[name]) == plain_value(f.default)


def test_a_run_that_no_experiment_names_any_more_has_no_plug_in() -> None:
    assert plugins_of(SPEC, []) == []
