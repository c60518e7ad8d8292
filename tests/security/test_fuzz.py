"""Whatever a file of a results folder holds, a command that reads ends with 0, 1 or 2 and few lines."""

import json
import resource
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from harness.run.ledger import read_ledger
from harness.run.parse import parse_yaml
from harness.store.looks import note_look
from harness.store.plans import read_plan
from reports.inputs.load import load
from reports.page.write import write_report
from tests.fuzzing import changed, damaged, said_by
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment
from tests.sealing import seal_again

EXAMPLES = 60
MOST_S, MOST_MIB = 10.0, 1500  # of one command; of the process, more than before


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with two arms and its page."""
    root = tmp_path_factory.mktemp("fuzzed") / "results"
    write_experiment(root, arms=LADDER[:2], n_seeds=2, n_points=3)
    plan = read_plan(root, "split")
    assert plan is not None
    note_look(root, plan, "compare")
    [look] = read_ledger(root).looks
    (root / "ledger.jsonl").write_text(json.dumps(look.to_json()) + "\n")  # as before seals
    write_report([load("split", results=root)], root / "experiments" / "split" / "report.html")
    return root


def fuzzed(path: Path, data: st.DataObject) -> bytes:
    """Another content of a file."""
    content = path.read_bytes()
    way = data.draw(st.sampled_from(("place", "place", "place", "bytes", "cut", "twice")))
    if way == "place" and path.suffix == ".json":
        return json.dumps(changed(json.loads(content), data)).encode()
    if way == "place" and path.suffix == ".yaml":
        return yaml.safe_dump(changed(parse_yaml(content.decode()), data)).encode()
    if way == "place" and path.suffix == ".jsonl":
        lines = content.decode().splitlines()
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = json.dumps(changed(json.loads(lines[at]), data))
        return "\n".join(lines).encode()
    return damaged(content, data, "bytes" if way == "place" else way)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@seed(17)
@settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_no_content_of_a_file_is_a_fault(place: Path, data: st.DataObject) -> None:
    results = place.parent / "tried"
    shutil.rmtree(results, ignore_errors=True)
    shutil.rmtree(place.parent / "ours", ignore_errors=True)
    shutil.copytree(place, results)
    files = sorted(p for p in results.rglob("*") if p.is_file())
    kinds: dict[str, Path] = {}
    for path in files:
        kinds.setdefault(path.name, path)
    path = kinds[data.draw(st.sampled_from(sorted(kinds)))]
    path.write_bytes(fuzzed(path, data))
    of_run = path.parent.parent.name == "runs" and path.name != "result.json"
    if of_run and data.draw(st.booleans()):
        seal_again(path.parent)  # whoever made the folder can do that
    page = results / "experiments" / "split" / "report.html"
    if path.name == "report.html":
        commands: tuple[tuple[object, ...], ...] = (("verify", page),)
    else:
        run = kinds["result.json"].parent.name
        at = ("--results", results)
        commands = (
            ("status", *at),
            ("status", "split", *at),
            ("compare", "split", *at),
            ("report", "split", "-o", results / "new.html", *at),
            ("export", "split", "-o", results / "t.csv", *at),
            ("log", run, *at),
            ("clean", "stale", "--dry-run", *at),
            ("verify", page, *at),
            ("merge", results, "--results", place.parent / "ours"),
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for words in commands:
        code, err, seconds = said_by(words)
        told = f"{words[:2]} on {path.name}: {code} {err[:600]}"
        assert code in (0, 1, 2), told
        assert "a fault of its own" not in err and "Traceback" not in err, told
        assert code != 2 or err.strip().count("\n") < 3, told
        assert seconds < MOST_S, told
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MIB << 10
