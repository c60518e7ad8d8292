"""What each tracker's own library reads of what was told: steps, numbers, configuration, outcome."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.fake_matrix import DEADLINE_S, ROOT
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

# each prints {run_id: {"rows": [[step, val_loss], ...], "n_layer": as the tracker has it, "status": ...}} of what lies in a folder
READERS = {
    "tensorboard": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
told = {}
for place in Path("results/experiments/split/tensorboard").iterdir():
    events = EventAccumulator(str(place))
    events.Reload()
    text = {tag: events.Tensors(f"{tag}/text_summary")[0].tensor_proto.string_val[0].decode() for tag in ("config", "status")}
    config = dict(line.split(": ", 1) for line in text["config"].splitlines())
    told[place.name] = {
        "rows": [[e.step, round(e.value, 4)] for e in events.Scalars("val_loss")] if "val_loss" in events.Tags()["scalars"] else [],
        "n_layer": config["    config.model.n_layer"],
        "status": text["status"].partition(":")[0],
    }
""",
    "wandb": """
import struct
from wandb.proto.wandb_internal_pb2 import Record
def records(path):  # LevelDB's log format: blocks of 32 KiB, a header of seven bytes for each piece of a record
    raw, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        if (left := -at % 32768) < 7:
            at += left
            continue
        _, size, piece = struct.unpack("<IHB", raw[at : at + 7])
        whole += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if piece in (1, 4):
            record, whole = Record.FromString(whole), b""
            yield record
told = {}
for path in Path("results/experiments/split/wandb").glob("offline-run-*/*.wandb"):
    rows, config, summary = [], {}, {}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
        if kind == "history":
            row = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
            if "val_loss" in row:
                rows.append([row["step"], round(row["val_loss"], 4)])
        if kind == "summary":
            summary |= {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.summary.update}
    told[name] = {"rows": rows, "n_layer": str(config["config.model.n_layer"]), "status": summary["status"]}
""",
    "mlflow": """
from mlflow import MlflowClient
client = MlflowClient()
[experiment] = [e for e in client.search_experiments() if e.name == "split"]
told = {}
for run in client.search_runs([experiment.experiment_id]):
    history = client.get_metric_history(run.info.run_id, "val_loss")
    told[run.info.run_name] = {
        "rows": [[m.step, round(m.value, 4)] for m in history],
        "n_layer": run.data.params["config.model.n_layer"],
        "status": run.data.tags["ablate.status"],
    }
""",
}


def python(folder: Path, *words: str) -> str:
    """What a Python process says; a warning of a library is none of ours."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_the_library_reads_what_was_told(tmp_path: Path, name: str) -> None:
    if find_spec(name) is None and "ABLATE_REQUIRE_TRACKERS" not in os.environ:
        pytest.skip(f"needs {name}: pip install -e '.[trackers]'")
    outcome = {(LADDER[1].name, 1): "failed"}
    results = write_experiment(
        tmp_path / "results", arms=LADDER[:2], n_seeds=2, n_points=5, outcome=outcome
    )
    track = ["-m", "harness", "track", "split", "--to", name]
    assert f"{name}: 20 rows told" in python(tmp_path, *track)
    assert f"{name}: 0 rows told" in python(tmp_path, *track)  # nothing twice
    reader = f"import json\nfrom pathlib import Path\n{READERS[name]}\nprint(json.dumps(told))"
    told: dict[str, Any] = json.loads(python(tmp_path, "-c", reader).splitlines()[-1])
    expected = {}
    for run in (results / "runs").iterdir():
        planned = _planned(results)[run.name]
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        expected[f"{planned['arm']}, seed {planned['seed']}, 300 steps"] = {
            "rows": [[row["step"], round(row["val_loss"], 4)] for row in rows],
            "n_layer": "2",
            "status": "finished" if (run / "result.json").exists() else "failed",
        }
    assert told == expected


def _planned(results: Path) -> dict[str, Any]:
    """The plan's runs by their names."""
    plan = json.loads((results / "experiments" / "split" / "experiment.json").read_text())
    return {run["run_id"]: run for run in plan["runs"]}
