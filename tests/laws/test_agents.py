"""docs/agents.md is true: its commands and code run as they stand and print what the page says, and JSON is what the schema says."""

import contextlib
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.__main__ import main
from harness.cli import app
from harness.cli.ab_until import EXIT, Decision, Spent
from harness.cli.json_schema import output_schema
from harness.cli.said import error_mapping
from tests.foreign_bench import TRAINERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "agents.md"
BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGES = {  # what differs from day to day, and what stands for it
    r'"(run|host)": "[^"]*"': r'"\1": "..."',
    r'("(?:started|ended|heartbeat_age_s|age_s)"): [^,}]*': r"\1: ...",
}


def said_by(kind: str, code: str, names: dict[str, Any]) -> str:
    """What a block prints: a command on standard output, into a file where it says so."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if kind == "python":
            exec(compile(code, PAGE.name, "exec"), names)
            return out.getvalue()
        command, _, file = code.strip().partition(" > ")
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command)[1:])
    names["exit"] = ended.value.code
    if file:
        Path(file).write_text(out.getvalue())
        return ""
    return out.getvalue()


def steady(text: str) -> list[str]:
    for changing, instead in CHANGES.items():
        text = re.sub(changing, instead, text)
    return [line.rstrip() for line in text.splitlines()]


def outputs(folder: Path) -> list[tuple[str, list[str], list[str]]]:
    """Every block with what it printed, and what the page says."""
    base = (TRAINERS / "fast.py").read_text()
    assert "random.seed(seed)" in base
    base = base.replace(
        "random.seed(seed)", 'random.seed(f"{seed} {sys.argv}")'
    )  # noise of its own
    (folder / "base.py").write_text(base)
    (folder / "idea.py").write_text(base.replace('"BETTER", "0"', '"BETTER", "0.02"'))
    blocks, names, told = BLOCK.findall(PAGE.read_text()), dict[str, Any](), []
    for i, (kind, code) in enumerate(blocks):
        if kind == "text":
            continue
        follows = blocks[i + 1] if i + 1 < len(blocks) else ("", "")
        said = follows[1] if follows[0] == "text" else ""
        told.append((code, steady(said_by(kind, code, names)), steady(said)))
    return told


@pytest.mark.slow
def test_the_page_prints_what_it_says_and_its_json_is_what_the_schema_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = outputs(tmp_path)
    assert len(told) == 5
    codes = ", ".join(
        f"{EXIT[word]} {word}" for word in ("better", "worse", "equivalent", "undecided")
    )
    assert codes in PAGE.read_text()
    for code, printed, said in told:
        assert printed == said, code
    schema = output_schema()
    check(schema, schema["$defs"]["ab"], json.loads(Path("verdict.json").read_text()))
    for command in ("compare several", "status several", "plan several", "export several -o a.csv"):
        printed = said_by("sh", f"ablate {command} --json", {})
        check(schema, schema["$defs"][command.split()[0]], json.loads(printed))


def check(schema: dict[str, Any], of: dict[str, Any], value: Any, place: str = "$") -> None:
    """The value is what its schema says: constants, type, required, properties, items, references."""
    if "$ref" in of:
        of = schema["$defs"][of["$ref"].rpartition("/")[2]]
    kinds = {
        **{"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)},
        **{"integer": int, "number": (int, float)},
    }
    assert value in of.get("enum", [value]), f"{place}: {value!r}"
    assert value == of.get("const", value), f"{place}: {value!r}"
    if "type" in of:
        allowed = [of["type"]] if isinstance(of["type"], str) else of["type"]
        assert any(isinstance(value, kinds[kind]) for kind in allowed), f"{place}: {value!r}"
    if isinstance(value, dict):
        assert not set(of.get("required", ())) - set(value), place
        for key, inner in of.get("properties", {}).items():
            if key in value:
                check(schema, inner, value[key], f"{place}.{key}")
        if of.get("additionalProperties") is False:
            assert not set(value) - set(of["properties"]), place
    if isinstance(value, list) and "items" in of:
        for inner in value:
            check(schema, of["items"], inner, f"{place}[]")


def test_every_command_has_json_and_a_schema() -> None:
    def walk(group: Any, prefix: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, command in group.commands.items():
            inner = hasattr(command, "commands")
            found |= walk(command, f"{prefix}{name} ") if inner else {f"{prefix}{name}": command}
        return found

    commands = walk(typer.main.get_command(app))
    for name, command in commands.items():
        assert "--json" in {o for p in command.params for o in p.opts}, name
    assert {"error", "said", *commands} <= {*output_schema()["$defs"]}


def test_the_schema_on_disk_is_that_of_the_code() -> None:
    assert json.loads((DOCS / "output.schema.json").read_text()) == output_schema()


def test_the_schema_says_how_a_decision_may_end() -> None:
    schema = output_schema()
    of_decision = schema["$defs"]["ab"]["properties"]["decision"]
    spent = Spent(runs=2, wall_hours=0.5, hours=None, price=None)
    ended = Decision(outcome="better", stream=None, why="", blocks=1, spent=spent, rest=None)
    for outcome in EXIT:
        told = replace(ended, outcome=outcome, rest=spent).to_mapping()
        check(schema, of_decision, told)
        check(schema, of_decision, replace(ended, outcome=outcome).to_mapping())
        with pytest.raises(AssertionError, match="outcome"):
            check(schema, of_decision, {**told, "outcome": "good"})
        with pytest.raises(AssertionError, match="runs"):
            check(schema, of_decision, {**told, "spent": {**told["spent"], "runs": "two"}})


def test_a_refusal_says_where_and_the_way_out() -> None:
    assert error_mapping("exp.yaml:3: primary 'x' is not one of a: choose a") == {
        **{"error": "exp.yaml:3: primary 'x' is not one of a: choose a", "where": "exp.yaml:3"},
        "mend": "choose a",
    }
    assert error_mapping("--n 0: must be at least 1")["where"] == "--n 0"
    assert error_mapping("unknown 'x'; did you mean 'y'?")["mend"] == "did you mean 'y'?"
    refused = error_mapping("a run needs 9 GPUs (of 0; see: doctor [x: y (z: `q: r`)])")
    assert (refused["where"], refused["mend"]) == (None, None)
    refused = error_mapping("--pool (of: x): none here (a: b; c): run one first (d; e: f)")
    assert (refused["where"], refused["mend"]) == ("--pool (of: x)", "run one first (d; e: f)")
    refused = error_mapping(
        "--metric x: must have a group: 'bpb: ([0-9]+)', as a script's own; 'a: b'"
    )
    assert (refused["where"], refused["mend"]) == ("--metric x", "'a: b'")
    assert error_mapping("--metric x: has no group: 'bpb: (.)'")["mend"] == "'bpb: (.)'"
    assert error_mapping("nothing") == {"error": "nothing", "where": None, "mend": None}


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.fullmatch(r"ablate \d+\.\d+\.\d+\n", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--install-completion" in capsys.readouterr().out


def test_what_a_command_says_is_json_and_its_exit_code_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["new-change", "mine", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (ended.value.code, told["exit"], told["command"]) == (0, 0, "new-change")
    assert "mine.py" in told["said"]
    with pytest.raises(SystemExit) as ended:
        main(["new-change", "mine", "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert json.loads(out)["error"] in err
