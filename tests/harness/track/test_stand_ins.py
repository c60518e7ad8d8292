"""What each tracker's client is told, by clients that write down what they hear: the libraries themselves have slow tests."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserError
from harness.track.follow import Ending, Follower, TrackedRun
from harness.track.trackers import TRACKERS, TrackerRow, tracker_row

RUN = TrackedRun(
    key="k1",
    arm="untied",
    label="untied/x, seed 1",
    facts={"role": "arm", "seed": "1"},
    config={f"config.{n}": n for n in range(150)},
)
WELL = Ending(status="finished", reason=None, numbers={"val_loss": 3.25})
BADLY = Ending(status="failed", reason="no memory", numbers={})


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A library of that name, and our module of it imported anew."""
    library = ModuleType(name)
    vars(library).update(members)
    monkeypatch.setitem(sys.modules, name, library)


def made(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> Any:
    module = TRACKERS[name].module
    monkeypatch.delitem(sys.modules, module, raising=False)
    tracker = getattr(importlib.import_module(module), TRACKERS[name].kind)("split", folder)
    monkeypatch.delitem(sys.modules, module)
    return tracker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment's, in a results folder."""
    place = tmp_path / "results" / "experiments" / "split"
    place.mkdir(parents=True)
    return place


# ---------------------------------------------------------------- MLflow


class MlflowClient:
    """Keeps every call; runs are found again by their key."""

    tracking_uri = "file:runs"

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, Any] = {}
        self.metrics: list[tuple[str, list[Any]]] = []
        self.params: list[int] = []
        self.tags: dict[str, str] = {}
        self.ended: dict[str, str] = {}

    def get_experiment_by_name(self, name: str) -> Any:
        known = self.experiments.get(name)
        return known and SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = f"e{len(self.experiments)}"
        return self.experiments[name]

    def search_runs(self, experiments: list[str], query: str, max_results: int) -> list[Any]:
        assert experiments == ["e0"]
        return [run for key, run in self.runs.items() if query == f"tags.`ablate.key` = '{key}'"]

    def create_run(self, experiment: str, tags: dict[str, str], run_name: str) -> Any:
        run = SimpleNamespace(info=SimpleNamespace(run_id=f"m{len(self.runs)}"), name=run_name)
        self.runs[tags["ablate.key"]] = run
        self.tags |= tags
        return run

    def log_batch(self, run_id: str, metrics: Any = None, params: Any = None) -> None:
        if params is not None:
            self.params.append(len(params))
        else:
            self.metrics.append((run_id, list(metrics)))

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        self.tags[name] = value

    def set_terminated(self, run_id: str, status: str) -> None:
        self.ended[run_id] = status


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    heard = MlflowClient()
    entities = SimpleNamespace(
        Param=lambda name, value: (name, value),
        Metric=lambda name, value, at, step: (name, value, at, step),
    )
    fake(monkeypatch, "mlflow", MlflowClient=lambda: heard, entities=entities)
    return heard


def test_mlflow_hears_a_run_once_with_its_facts_and_its_rows_with_their_times(
    client: MlflowClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = made(monkeypatch, "mlflow", folder)
    assert tracker.where == "experiment split of file:runs"
    monkeypatch.setattr("time.time", lambda: 1700000000.5)
    tracker.begin(RUN)
    assert client.runs["k1"].name == RUN.label
    assert (client.tags["ablate.role"], client.tags["ablate.seed"]) == ("arm", "1")
    assert client.params == [100, 50]
    tracker.log(RUN, 10, {"val_loss": 4.5, "lr": 0.1})
    assert client.metrics == [], "they wait"
    tracker.flush()
    at = 1700000000500
    assert client.metrics == [("m0", [("val_loss", 4.5, at, 10), ("lr", 0.1, at, 10)])]
    tracker.end(RUN, WELL)
    assert client.metrics[1] == ("m0", [("result/val_loss", 3.25, at, 0)])
    assert (client.tags["ablate.status"], client.tags["ablate.reason"]) == ("finished", "")
    assert client.ended == {"m0": "FINISHED"}
    again = made(monkeypatch, "mlflow", folder)
    again.begin(RUN)
    assert (len(client.runs), len(client.experiments), client.params) == (1, 1, [100, 50])
    again.end(RUN, BADLY)
    assert (client.ended, client.tags["ablate.reason"]) == ({"m0": "FAILED"}, "no memory")
    again.begin(RUN)
    again.log(RUN, 20, {"val_loss": 4.25})
    assert len(client.metrics) == 2
    again.close()
    assert client.metrics[2] == ("m0", [("val_loss", 4.25, at, 20)])
    again.close()
    assert len(client.metrics) == 3, "nothing is sent twice"


def test_mlflow_is_told_as_much_of_a_setting_as_it_takes(
    client: MlflowClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(client, "log_batch", lambda run_id, params: told.extend(params))
    config = {"config.short": "s" * 500, "config.long": "l" * 501}
    made(monkeypatch, "mlflow", folder).begin(replace(RUN, config=config))
    assert told == [("config.short", "s" * 500), ("config.long", "l" * 500)]


def test_mlflow_is_sent_many_rows_at_once_and_never_more_than_a_thousand(
    client: MlflowClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = made(monkeypatch, "mlflow", folder)
    tracker.begin(RUN)
    for step in range(899):
        tracker.log(RUN, step, {"a": 1.0})
    assert client.metrics == []
    tracker.log(RUN, 899, {"a": 1.0})
    assert [len(metrics) for _, metrics in client.metrics] == [900]
    tracker.log(RUN, 900, {str(n): 1.0 for n in range(1500)})
    assert [len(metrics) for _, metrics in client.metrics] == [900, 1000, 500]


# ---------------------------------------------------------------- Weights & Biases


class WandbRun:
    def __init__(self, **asked: Any) -> None:
        self.asked, self.rows = asked, list[dict[str, Any]]()
        self.summary: dict[str, Any] = {}
        self.code: int | None = None
        self.finished = False
        self.axes: list[tuple[str, str]] = []

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes.append((name, step_metric))

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def finish(self, exit_code: int | None = None) -> None:
        self.finished, self.code = True, exit_code


@pytest.mark.parametrize(("logged_in", "mode"), [(True, None), (False, "offline")])
def test_wandb_hears_a_run_by_its_arm_and_is_offline_where_nobody_is_logged_in(
    logged_in: bool, mode: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[WandbRun] = []

    def init(**asked: Any) -> WandbRun:
        begun.append(WandbRun(**asked))
        return begun[-1]

    fake(
        monkeypatch,
        "wandb",
        init=init,
        login=lambda prompt: logged_in,
        Settings=dict,
        Run=WandbRun,
    )
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    tracker = made(monkeypatch, "wandb", folder)
    assert (folder / "wandb").is_dir()
    sync = f"wandb sync {folder}/wandb/offline-run-*"
    assert tracker.where == (sync if mode else "project split")
    tracker.begin(RUN)
    asked = begun[0].asked
    assert (asked["project"], asked["id"], asked["name"]) == ("split", "k1", RUN.label)
    assert (asked["group"], asked["job_type"], asked["dir"]) == ("untied", "arm", str(folder))
    assert (asked["mode"], asked["resume"]) == (mode, None if mode else "allow")
    assert asked["config"]["ablate"] == RUN.facts and asked["config"]["config.3"] == 3
    quiet = {"silent", "disable_git", "disable_code", "x_disable_stats", "x_disable_machine_info"}
    assert {k for k, v in asked["settings"].items() if v is True} == quiet
    assert begun[0].axes == [("*", "step")]
    tracker.log(RUN, 10, {"val_loss": 4.5})
    assert begun[0].rows == [{"step": 10, "val_loss": 4.5}]
    tracker.end(RUN, WELL)
    assert begun[0].summary == {"status": "finished", "reason": None, "val_loss": 3.25}
    assert (begun[0].code, begun[0].finished) == (0, True)
    tracker.begin(RUN)
    tracker.end(RUN, BADLY)
    assert begun[1].code == 1
    tracker.begin(RUN)
    tracker.close()
    assert (begun[2].finished, begun[2].code) == (True, None), "it goes on another time"


def test_wandb_is_told_by_its_own_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(
        monkeypatch,
        "wandb",
        init=WandbRun,
        login=lambda prompt: pytest.fail("asked"),
        Settings=dict,
        Run=WandbRun,
    )
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    assert made(monkeypatch, "wandb", folder).where == "project mine"


# ---------------------------------------------------------------- TensorBoard


class Writer:
    """Of an event file."""

    every: list["Writer"] = []

    def __init__(self, place: str) -> None:
        self.place = Path(place)
        self.heard: list[tuple[Any, ...]] = []
        Writer.every.append(self)

    def add_text(self, *told: Any) -> None:
        self.heard.append(told)

    def add_scalar(self, *told: Any) -> None:
        self.heard.append(told)

    def flush(self) -> None:
        self.heard.append(("flushed",))

    def close(self) -> None:
        self.heard.append(("closed",))


def test_tensorboard_has_a_folder_a_run_with_its_rows_and_its_outcome(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer.every = []
    fake(monkeypatch, "torch.utils.tensorboard", SummaryWriter=Writer)
    tracker = made(monkeypatch, "tensorboard", folder)
    assert tracker.where == f"tensorboard --logdir {folder / 'tensorboard'}"
    tracker.begin(RUN)
    [writer] = Writer.every
    assert writer.place == folder / "tensorboard" / "untied_x, seed 1"
    assert writer.place.is_dir()
    name, text = writer.heard.pop()
    assert (name, text.splitlines()[2]) == ("config", "    config.2: 2")
    tracker.log(RUN, 10, {"val_loss": 4.5, "lr": 0.1})
    tracker.flush()
    tracker.end(RUN, BADLY)
    assert writer.heard == [
        ("val_loss", 4.5, 10),
        ("lr", 0.1, 10),
        ("flushed",),
        ("status", "failed: no memory"),
        ("closed",),
    ]
    tracker.begin(RUN)
    tracker.end(RUN, WELL)
    assert Writer.every[1].heard[1:3] == [("status", "finished: "), ("result/val_loss", 3.25)]
    tracker.begin(RUN)
    tracker.close()
    assert Writer.every[2].heard[-1] == ("closed",)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_client_writes_through_no_link_of_a_results_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, "torch.utils.tensorboard", SummaryWriter=Writer)
    fake(
        monkeypatch, "wandb", init=WandbRun, login=lambda prompt: True, Settings=dict, Run=WandbRun
    )
    (tmp_path / "real" / "experiments" / "split").mkdir(parents=True)
    (tmp_path / "mine").symlink_to("real")  # the folder itself may be one
    made(monkeypatch, name, tmp_path / "mine" / "experiments" / "split").begin(RUN)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "experiments").symlink_to("../real/experiments")
    with pytest.raises(OSError, match="links in a results folder are not followed"):
        made(monkeypatch, name, tmp_path / "other" / "experiments" / "split")


def test_tensorboard_writes_through_no_link_in_the_place_of_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, "torch.utils.tensorboard", SummaryWriter=Writer)
    tracker = made(monkeypatch, "tensorboard", folder)
    (folder / "tensorboard" / "untied_x, seed 1").symlink_to(folder)
    with pytest.raises(OSError, match="links in a results folder are not followed"):
        tracker.begin(RUN)


def test_a_tracker_that_is_none_or_whose_library_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match=r"no tracker 'wandbb'; did you mean 'wandb'\?"):
        tracker_row("wandbb")
    monkeypatch.setattr("harness.track.trackers.find_spec", lambda name: None)
    with pytest.raises(UserError, match="wandb: the library wandb is not installed: "):
        tracker_row("wandb")
    monkeypatch.setattr("harness.track.trackers.find_spec", lambda name: object())
    assert tracker_row("wandb") is TRACKERS["wandb"]


def test_a_tracker_is_made_by_the_class_that_its_row_names() -> None:
    row = TrackerRow(library="x", module="harness.track.follow", kind="Follower")
    assert row.make is Follower
