"""The identity of a run: what changes it, what does not, and that nothing which changes a result is left out."""

import ast
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UserError
from harness.provenance.source import (
    HARNESS,
    TRAINING_PART,
    changed_files,
    snapshot,
    source_files,
    source_of,
)
from harness.run.code import DOCUMENTED, code_digest, in_words
from harness.run.digests import run_id_of
from harness.run.spec import RunSpec
from tests.fake_matrix import Matrix
from tests.one_run import SPEC

ROOT = Path(__file__).resolve().parents[3]
OUTSIDE = {  # what harness.training.train imports beside the training part, and why a change there is none of a result
    "harness.errors": "the words of errors",
    "harness.run.spec": "the identity and the result's form; what it hands to training is the resolved configuration",
    "harness.store.attempt": "writes what training measured",
    "harness.store.store": "where it is written",
    "harness.run.files": "how it is written",
    "harness.run.guarded": "how files are opened",
    "harness.run.typed": "refuses what was read; changes none of it",
    "harness.store.claims": "who writes it",
    "harness.provenance.machine": "describes the machine",
    "harness.provenance.source": "makes this digest",
    "harness.corpora.index": "finds a corpus by name; its content has its own fingerprint",
    "harness.corpora.corpus": "the corpus's description, under the fingerprint",
    "harness.corpora.cache": "copies shards whole",
    "harness.corpora.verify": "refuses shards that are not the fingerprint's; changes none of them",
    "harness.corpora.lock": "one process at a time prepares a corpus",
    "harness.corpora.bpe": "prepares a corpus, under the fingerprint",
    "harness.corpora.fineweb": "prepares a corpus, under the fingerprint",
    "harness.corpora.stdlib": "prepares a corpus, under the fingerprint",
    "harness.corpora.text": "prepares a corpus, under the fingerprint",
    "harness.corpora.tokenizers": "prepares a corpus, under the fingerprint",
    "harness.corpora.shard_writer": "prepares a corpus, under the fingerprint",
    "harness.config.values": "refuses values, of which only the resolved ones reach training",
    "harness.run.digests": "makes the names of runs",
    "harness.run.code": "makes this digest",
    "harness.run.versions": "refuses what later releases wrote; changes none of it",
    "harness.run.document": "names for types",
    "harness.run.measured": "the form of what is measured",
    "harness.run.metrics": "the form of what is measured",
    "harness.run.disturbed": "the form of what disturbed a run",
    "harness.run.renamed": "reads old words, of which only today's reach training",
    "harness.config.validate": "refuses configurations, of which only the resolved one reaches training",
    "harness.config.presets": "resolves configurations, of which only the resolved one reaches training",
    "harness.yamlfile": "reads configurations, of which only the resolved one reaches training",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("model", "optim", "harness", "reports", "experiments"):
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    return copy


def edited(path: Path, old: str, new: str) -> Iterator[None]:
    text = path.read_text()
    assert old in text, f"{path} changed: choose another line to edit"
    path.write_text(text.replace(old, new, 1))
    yield
    path.write_text(text)


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add(f"harness.{path.parent.name}.{node.module}")
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return {name for name in found if name.split(".")[0] in ("harness", "reports")}


def test_everything_that_training_imports_is_part_of_the_identity_or_named_with_its_reason() -> (
    None
):
    covered = {f"harness.{name.removesuffix('.py').replace('/', '.')}" for name in source_files()}
    todo, seen = ["harness.training.train"], set[str]()
    while todo:
        name = todo.pop()
        path = ROOT / f"{name.replace('.', '/')}.py"
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        todo += imports_of(path)
    assert seen - covered <= set(OUTSIDE), (
        "part of a result, or not? add it to TRAINING_PART, or here with its reason"
    )
    assert not covered & set(OUTSIDE)
    assert "harness.training.train" in covered


def test_every_pattern_of_the_training_part_finds_a_file() -> None:
    assert [p for p in TRAINING_PART if not list(HARNESS.glob(p))] == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("optim/orthogonalize.py", "3.4445", "3.4446"),
        ("config/run.py", "EXPLODED = 2.0", "EXPLODED = 3.0"),
    ],
)
def test_a_constant_makes_runs_stale_by_the_name_of_its_file(
    tree: Path, file: str, old: str, new: str
) -> None:
    before = source_of(root=tree / "harness")
    for _ in edited(tree / "harness" / file, old, new):
        after = source_of(root=tree / "harness")
        assert after.digest != before.digest
        assert changed_files(before.files, after.files) == [file]
    assert source_of(root=tree / "harness") == before


@pytest.mark.parametrize(
    "file",
    [
        "reports/inputs/load.py",
        "harness/store/store.py",
        "harness/runner/local.py",
        "harness/cli/run.py",
    ],
)
def test_code_that_makes_no_result_changes_nothing(tree: Path, file: str) -> None:
    before = source_of(root=tree / "harness")
    with (tree / file).open("a") as out:
        out.write("\nADDED = 1\n")
    assert source_of(root=tree / "harness") == before


def test_comments_docstrings_and_layout_change_nothing(tree: Path) -> None:
    before = source_of(root=tree / "harness")
    for path in sorted((tree / "model").glob("*.py")):
        path.write_text(
            "# a comment\n"
            + path.read_text().replace('"""', '"""Other words. ', 1)
            + "\n\n\n# the end\n"
        )
    assert source_of(root=tree / "harness") == before


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("x = 1", "x = 2", False),
        ("x = 1", "x=1 # one", True),
        ("def f():\n    'doc'\n    return 1", "def f():\n    return 1", True),
        ("def f():\n    'doc'", "def f():\n    'other'", True),
        ("def f(a=1): pass", "def f(a=2): pass", False),
        ("x = 'words'", "x = 'other words'", False),
        ("class A:\n    'doc'\n    x = 1", "class A:\n    x = 1", True),
    ],
)
def test_a_digest_is_of_what_the_code_does(a: str, b: str, same: bool) -> None:
    assert (code_digest(a) == code_digest(b)) is same


def test_a_file_that_does_not_parse_is_named_with_its_line(
    tree: Path, tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    bad = tmp_path / "plugin.py"
    bad.write_text("x = 1\ny = (1\n")
    with pytest.raises(UserError, match=r"plugin.py:2: ") as refused:
        source_of([bad], root=tree / "harness")
    bad.write_text("A = 1\nTOKEN = 'hf_a1B2c3D4e5F6g7H8a1B2'\n")
    with pytest.raises(UserError, match="line 2 holds a secret") as secret:
        snapshot([bad])
    python = refused.value.__context__  # whose words are those of its version
    assert isinstance(python, SyntaxError) and python.msg
    kept_line(f"{refused.value}\n{secret.value}".replace(f" {python.msg}: ", " ...: "))


def test_a_plugin_is_part_of_the_source_and_the_snapshot_is_the_same_for_the_same_files(
    tmp_path: Path,
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("A = 1\n")
    with_one = source_of([plugin])
    assert set(with_one.files) - set(source_of().files) == {"plugin/mine.py"}
    assert snapshot([plugin]) == snapshot([plugin])


# ---------------------------------------------------------------- the run's name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("config", {"model": {"n_layer": 3}}),
        ("seed", 4),
        ("budget", 11),
        ("replicate", 1),
        ("role", "timing"),
        ("data_name", "other"),
        ("data_fingerprint", "e" * 64),
        ("world_size", 2),
        ("device", "cuda"),
        ("source_digest", "d" * 16),
        ("environment_digest", "d" * 16),
    ],
)
def test_whatever_can_change_a_result_changes_the_name(field: str, value: Any) -> None:
    other = replace(SPEC, **{field: value})
    assert other.run_id != SPEC.run_id
    assert (other.intent_id == SPEC.intent_id) is field.endswith(
        ("source_digest", "environment_digest")
    )


@pytest.mark.parametrize(
    ("field", "value"), [("source_files", {}), ("toggles", ()), ("substituted", ("x",))]
)
def test_words_are_no_part_of_the_name(field: str, value: Any) -> None:
    assert replace(SPEC, **{field: value}).run_id == SPEC.run_id


def test_the_name_of_a_run_follows_from_its_intent_and_what_did_it() -> None:
    assert SPEC.run_id == run_id_of(
        SPEC.intent_id, source_digest=SPEC.source_digest, environment_digest=SPEC.environment_digest
    )


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
values = st.recursive(
    leaves,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    config=st.dictionaries(st.text(max_size=8), values, max_size=4),
    words=st.lists(st.text(max_size=20), max_size=3),
)
def test_a_specification_survives_its_file(config: dict[str, Any], words: list[str]) -> None:
    spec = replace(SPEC, config=config, toggles=tuple(words))
    again = RunSpec.from_mapping(yaml.safe_load(spec.to_yaml()))
    assert again == spec
    assert again.run_id == spec.run_id


# ---------------------------------------------------------------- through the command line


@pytest.mark.slow
def test_an_edit_between_two_calls_makes_the_old_runs_stale_and_a_word_in_reports_does_not(
    tmp_path: Path,
) -> None:
    """In a copy of the tree: run, edit, look at the table."""
    copy = tmp_path / "tree"
    copy.mkdir()
    for name in ("model", "optim", "harness", "reports", "experiments"):
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    (copy / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "fake_trainer.py", copy / "tests")
    matrix = Matrix(tmp_path, n_seeds=1, root=copy)
    assert matrix.run()[0] == 0

    def stale() -> set[tuple[str, str]]:
        out = tmp_path / "runs.csv"
        command = [
            sys.executable,
            "-m",
            "harness",
            "export",
            "fake",
            "--results",
            str(matrix.results),
            "-o",
            str(out),
        ]
        subprocess.run(command, check=True, cwd=copy, env=matrix.environment, capture_output=True)
        with out.open() as file:
            return {(row["stale"], row["stale_files"]) for row in csv.DictReader(file)}

    def edit(file: str, old: str, new: str) -> None:
        next(edited(copy / file, old, new))

    assert stale() == {("False", "")}
    edit("reports/inputs/load.py", '"""', '"""In other words: ')
    edit("model/gpt.py", "import torch", "# a comment\nimport torch")
    assert stale() == {("False", "")}
    edit("optim/orthogonalize.py", "3.4445", "3.4446")
    assert stale() == {("True", "optim/orthogonalize.py")}
    status = [
        sys.executable,
        "-m",
        "harness",
        "status",
        "fake",
        "--results",
        str(matrix.results),
        "--json",
    ]
    rows = json.loads(
        subprocess.run(
            status, check=True, cwd=copy, env=matrix.environment, capture_output=True
        ).stdout
    )
    why = "stale: optim/orthogonalize.py changed since its result"
    assert {(r["status"], r["reason"]) for r in rows} == {("pending", why)}
    code, out, _ = matrix.run()
    assert (code, "2 of 2 runs to do" in out, f"2 {why}; they are run again" in out) == (
        0,
        True,
        True,
    )
    assert stale() == {("False", "")}


def test_a_digest_is_what_python_3_11_makes_of_the_syntax_tree_whatever_the_version() -> None:
    code = "class A:\n    x: int = 1\ndef f(a, /, b=2, *c, d=None, **e) -> str:\n    return f'{a!r:>4}' + b'x'\nlambda: (yield)\n"
    assert code_digest(code) == "3d14b87040edd761"
    if sys.version_info[:2] == (3, 11):
        for path in source_files().values():
            tree = ast.parse(path.read_text())
            words = in_words(tree)
            for node in ast.walk(tree):
                if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
                    del node.body[0]
            assert words == ast.dump(tree)
