"""Whatever a file of a results folder holds, a command that reads ends with 0, 1 or 2 and few lines."""

import contextlib
import io
import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from harness.__main__ import main
from harness.run.ledger import read_ledger
from harness.run.parse import parse_yaml
from harness.store.looks import note_look
from harness.store.plans import read_plan
from reports.inputs.load import load
from reports.page.write import write_report
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

EXAMPLES = 60
MOST_S, MOST_MIB = 10.0, 1500  # of one command; of the process, more than before
NASTY = (
    *(
        None,
        True,
        "",
        "a",
        [],
        {},
        [[]],
        {"a": []},
        0,
        -1,
        1,
        2**63,
        10**400,
        1e308,
        -1e308,
        1e-320,
    ),
    *(
        "1:30",
        "-rf",
        "--help",
        "../../..",
        "/dev/zero",
        "\x1b[2J\x1b]0;x\x07",
        "x" * 5000,
        "\u202e",
    ),
)
VALUE = st.one_of(
    st.sampled_from(NASTY),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=5,
    ),
)


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


def changed(value: Any, data: st.DataObject) -> Any:
    """The value with something else at one place, which is drawn on the way down."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 9)):
        inner = dict(value) if isinstance(value, dict) else list(value)
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        key = data.draw(st.sampled_from(list(keys)))
        inner[key] = changed(inner[key], data)
        return inner
    return data.draw(VALUE)


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
    at = data.draw(st.integers(0, len(content)))
    if way == "cut":
        return content[:at]
    if way == "twice":
        return content + content[at:]
    return content[:at] + data.draw(st.binary(max_size=40)) + content[at + 4 :]


def said_by(words: tuple[object, ...]) -> tuple[Any, str, float]:
    """A command's exit code, its last words, and its seconds of processor."""
    out, err, began, code = io.StringIO(), io.StringIO(), time.process_time(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code or 0
    assert "\x1b" not in out.getvalue() + err.getvalue(), words
    return code, err.getvalue(), time.process_time() - began


@pytest.mark.slow
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
