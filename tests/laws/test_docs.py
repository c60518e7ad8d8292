"""The documentation is true: what is generated is up to date, what is shown runs, what exists is documented."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import reports.reference
from harness.__main__ import main
from harness.cli import app
from harness.cli.executors import EXECUTORS
from harness.config import plugins
from harness.config.run import toggles
from harness.errors import UserError
from harness.experiment import reference, scaffold
from harness.experiment.experiment import KEYS, load_experiment
from reports.figures.forest import FOREST_TITLES
from tests import built_in, techniques

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$",
        (DOCS / page).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )


def table_rows(page: str, first_header: str) -> list[list[str]]:
    """The body of the table whose header begins with this cell; escaped pipes are pipes again."""
    body = (
        (DOCS / page)
        .read_text(encoding="utf-8")
        .split(f"\n| {first_header} |", 1)[1]
        .split("\n\n")[0]
    )
    lines = body.splitlines()[2:]
    return [
        [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "")


# ---------------------------------------------------------------- toggles.md


@pytest.mark.parametrize(
    "source", [reference, reports.reference, techniques, built_in], ids=lambda m: m.__name__
)
def test_generated_pages_are_up_to_date(source):
    pages = source.pages()
    assert pages
    old = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    assert not old, "run `make docs`"


def test_every_package_has_its_built_in_numbers_on_their_page():
    packages = [
        f"{top}/{path.name}" for top in ("harness", "reports") for path in (ROOT / top).iterdir()
    ]
    packages = [name for name in packages if not (ROOT / name).is_symlink()]
    with_numbers = {
        name
        for name in ("harness", "reports", "model", "optim", *packages)
        if any(built_in.numbers(ROOT / name))
    }
    assert with_numbers <= built_in.PARTS.keys()


def test_every_toggle_is_on_the_page():
    page = (DOCS / "toggles.md").read_text(encoding="utf-8")
    assert not [name for name, _ in toggles() if f'<a id="{name}"></a>' not in page]


def test_every_claim_names_toggles_that_exist_and_has_a_verdict():
    known = {name for name, _ in toggles()} | set(reference.NOT_TOGGLES)
    claims = [claim for text in reference.load_claims().values() for claim in text["claims"]]
    assert len(claims) == 128  # the statements of the five texts, none left out
    for said, names, verdict, why in claims:
        assert names, said
        assert set(names) <= known, said
        assert verdict in reference.VERDICTS, said
        assert why or verdict in ("accurate", "already there", "opinion", "not mentioned"), (
            f"{said}: say what is wrong with it"
        )


def test_links_between_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("techniques/*.md")]:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor:
                assert f'id="{anchor}"' in path.read_text(encoding="utf-8"), (
                    f"{page.name}: #{anchor}"
                )


def names_module(text: str, path: str) -> bool:
    """Whether code imports the module at this path, or names it as one that a process is to run."""
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    imported = package and re.search(rf"from {re.escape(package)} import .*\b{name}\b", text)
    return bool(imported or re.search(rf"\b{re.escape(module)}\b", text))


WALKS = re.findall(r"^\* (A \w+), (.*(?:\n  .*)*)", (ROOT / "ARCHITECTURE.md").read_text(), re.M)


@pytest.mark.parametrize("walk", [text for _, text in WALKS], ids=[name for name, _ in WALKS])
def test_a_walk_through_the_code_finds_its_files(walk):
    paths = re.findall(r"`([\w/]+\.py)`", walk)
    assert len(paths) > 5
    for place, path in enumerate(paths):
        assert (ROOT / path).is_file(), path
        before = [(ROOT / earlier).read_text() for earlier in paths[:place]]
        assert not before or any(names_module(text, path) for text in before), (
            f"no file before {path} names it"
        )


def test_there_are_three_walks():
    assert [name for name, _ in WALKS] == ["A run", "A row", "A log"]


# ---------------------------------------------------------------- experiments.md


def load(text: str, folder: Path):
    path = folder / "experiments" / "softcap.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_experiment(str(path), device="cpu")


def test_every_key_of_an_experiment_is_documented_and_in_the_schema():
    documented = {row[0].strip("`") for row in table_rows("experiments.md", "key")}
    assert documented == set(KEYS)
    assert set(reference.experiment_schema()["properties"]) == set(KEYS)


@pytest.mark.parametrize(
    "text", blocks("experiments.md", "yaml"), ids=lambda t: yaml.safe_load(t)["name"]
)
def test_every_example_loads(text, tmp_path):
    assert len(load(text, tmp_path).arms) > 1


@pytest.mark.parametrize(
    "row", table_rows("experiments.md", "with"), ids=lambda row: row[0].strip("`")
)
def test_every_error_is_what_the_page_says(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    smallest = yaml.safe_load(blocks("experiments.md", "yaml")[0])
    text = yaml.safe_dump({**smallest, **yaml.safe_load(row[0].strip("`"))}, sort_keys=False)
    with pytest.raises(UserError) as error:
        load(text, tmp_path)
    assert said(error.value, tmp_path) == row[1].strip("`")


@pytest.mark.parametrize(
    "row", table_rows("experiments.md", "the file"), ids=lambda row: row[0].strip("`")
)
def test_every_error_of_a_broken_file_is_what_the_page_says(row, tmp_path):
    with pytest.raises(UserError) as error:
        load("" if row[0] == "*empty*" else row[0].strip("`").replace("⏎", "\n"), tmp_path)
    assert said(error.value, tmp_path) == row[1].strip("`")


def said(error: Exception, folder: Path) -> str:
    """The message without the place in front, paths made relative."""
    text = re.sub(r"^\S*softcap\.yaml(:\d+)?: ", "", str(error))
    assert "\n" not in text
    return text.replace(f"{folder}/experiments/", "").replace(f"{folder}/", "")


# ---------------------------------------------------------------- command-line.md


@cache
def commands(group: Any = None, prefix: str = "") -> dict[str, Any]:
    """Every registered command by its full name."""
    out: dict[str, Any] = {}
    for name, command in (group or typer.main.get_command(app)).commands.items():
        out |= (
            commands(command, f"{prefix}{name} ")
            if hasattr(command, "commands")
            else {f"{prefix}{name}": command}
        )
    return out


def section_of(command: str) -> str:
    """The part of the page under the command's heading."""
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^### `ablate {re.escape(command)}\b.*?(?=^##|\Z)", page, re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/command-line.md has no section for `ablate {command}`"
    return found[0]


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_documented(name):
    section = section_of(name)
    options = [
        o for p in commands()[name].params for o in p.opts if o.startswith("-") and o != "--help"
    ]
    assert not [o for o in options if not re.search(rf"(?<![\w-]){re.escape(o)}(?![\w-])", section)]


def test_every_flag_is_off_until_it_is_given():
    flags = {
        f"{name} {p.opts[0]}": p.default
        for name, command in commands().items()
        for p in command.params
        if getattr(p, "is_flag", False)
    }
    assert len(flags) > 60 and not any(flags.values())


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_has_options_that_exist_and_a_place_in_the_documents(name):
    offered = {option for p in commands()["run"].params for option in p.opts}
    assert set(EXECUTORS[name].options) <= offered
    assert re.search(
        rf"\b{name}\b", (DOCS / "runner.md").read_text(encoding="utf-8"), re.IGNORECASE
    )


def titles_of_figures() -> set[str]:
    """Of every figure that the code can draw, up to what is filled in."""
    titles = {title for title, _ in FOREST_TITLES.values()}
    for path in (ROOT / "reports/figures").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.keyword) or node.arg != "title":
                continue
            of = node.value
            if isinstance(of, ast.JoinedStr):
                of = of.values[0]
            if isinstance(of, ast.Constant):
                titles.add(of.value.rstrip(" :"))
    return titles


def test_every_figure_has_its_row():
    titles = titles_of_figures()
    assert {"Every seed", "From baseline to full", "Effect on the loss"} < titles
    listed = " ".join(row[0] for row in table_rows("report.md", "title"))
    assert [title for title in titles if title not in listed] == []


def test_no_command_or_option_is_documented_that_does_not_exist():
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert {h for h in re.findall(r"^### `ablate ((?:data )?[a-z-]+)", page, re.MULTILINE)} == set(
        commands()
    )
    for name, command in commands().items():
        known = {o for p in command.params for o in p.opts} | {"--help", "--debug"}
        assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section_of(name))) - known, name


def test_every_command_shown_anywhere_exists():
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for used in re.findall(
            r"(?:^|[`/(])ablate ((?:data )?[a-z][a-z-]*)",
            page.read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            assert used in commands() or used == "data", f"{page.name}: ablate {used}"


JSON_COMMANDS = [
    ["toggles"],
    ["records"],
    ["records", "r08"],
    ["diff", "r07", "r08"],
    ["data", "list"],
    ["significance", "3.27", "3.28"],
]


@pytest.mark.parametrize("arguments", JSON_COMMANDS, ids=" ".join)
def test_json_has_exactly_the_keys_that_are_documented(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--json"])
    assert end.value.code == 0
    value = json.loads(capsys.readouterr().out)
    keys = set(value[0] if isinstance(value, list) else value)
    name = next(n for n in commands() if " ".join(arguments).startswith(n))
    shapes = re.findall(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", section_of(name).replace("\n", " "))
    documented = [
        {k.split(":")[0].strip() for k in re.sub(r"\{[^{}]*\}", "", shape).split(",")}
        for shape in shapes
    ]
    assert keys in documented


# ---------------------------------------------------------------- add-a-toggle.md


def apply(diff: str, tree: Path) -> int:
    """Apply one block of the page, '--- FILE' and then context, - and + lines; returns how many lines it writes."""
    head, *lines = diff.splitlines()
    path = tree / head.removeprefix("--- ")
    before = "\n".join(line[1:] for line in lines if line[0] in " -")
    after = "\n".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text(encoding="utf-8")
    assert text.count(f"\n{before}\n") == 1, f"{path.name} has no such place: {before}"
    path.write_text(text.replace(f"\n{before}\n", f"\n{after}\n"), encoding="utf-8")
    return sum(line[0] == "+" for line in lines)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the project with the page's toggle in it."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("model", "optim", "harness", "reports", "experiments"):
        shutil.copytree(
            ROOT / folder,
            copy / folder,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    experiment = blocks("add-a-toggle.md", "yaml")[0]
    (copy / experiment.splitlines()[0].removeprefix("# ")).write_text(experiment, encoding="utf-8")
    for diff in blocks("add-a-toggle.md", "diff"):
        apply(diff, copy)
    return copy


def python(tree: Path, *arguments: str) -> str:
    """Run Python on a copy of the project; returns what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
        "ABLATE_DATA": str(tree / "data"),
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_toggle_takes_at_most_three_files_and_thirty_lines():
    diffs, experiment = blocks("add-a-toggle.md", "diff"), blocks("add-a-toggle.md", "yaml")[0]
    assert len({d.splitlines()[0] for d in diffs}) + 1 <= 3
    assert (
        sum(line[0] == "+" for d in diffs for line in d.splitlines()) + len(experiment.splitlines())
        <= 30
    )


TRAINING = """
import torch
from harness.training.core import Core
from harness.experiment.experiment import load_experiment
from harness.model.tokens import Tokens

def train(config):
    core = Core(config, Tokens(vocab_size=257, separator=256, seq_len=128), seed=0)
    ids = torch.randint(0, 256, (1, 2, 65), generator=torch.Generator().manual_seed(0))
    losses = torch.cat([core.update(step, [(ids[..., :-1], ids[..., 1:])]) for step in range(5)])
    return {name for name, _ in core.model.named_parameters()}, losses

off, on = (train(arm.config) for arm in load_experiment("mlp_gain", device="cpu").arms)
assert on[0] - off[0] == {"blocks.0.mlp_gain", "blocks.1.mlp_gain"}, on[0] - off[0]
assert torch.equal(off[1][:3], on[1][:3]) and not torch.equal(off[1], on[1]), (off[1], on[1])
"""


@pytest.mark.slow
def test_the_toggle_of_the_page_is_listed_and_trains(tree):
    assert '"model.mlp_gain"' in python(tree, "-m", "harness", "toggles", "--json")
    python(tree, "-c", TRAINING)


@pytest.mark.slow
def test_the_law_tests_pick_the_toggle_of_the_page_up(tree):
    shutil.copytree(
        ROOT / "tests", tree / "tests", symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tree)
    laws = [
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rA",
        "tests/laws/test_toggles.py",
        "-k",
        "model.mlp_gain",
    ]
    said = python(tree, *laws)
    for law in (
        "on_changes_what_it_states",
        "off_is_the_baseline",
        "no_parameter_without_gradient",
        "nobody_reads",
    ):
        assert re.search(rf"PASSED .*{law}.*model\.mlp_gain", said), said


SIZES = (
    "data.corpus=own",
    "data.batch_tokens=256",
    "data.micro_tokens=256",
    "data.val_tokens=1024",
    "schedule.steps=6",
)
SMALL = [argument for size in SIZES for argument in ("--set", size)]


@pytest.mark.slow
def test_the_experiment_of_the_page_runs(tree):
    python(tree, "-m", "harness", "data", "prepare", "text", "harness", "model", "--name", "own")
    out = python(
        tree,
        "-m",
        "harness",
        "run",
        "mlp_gain",
        "--seeds",
        "2",
        "--no-report",
        "--max-parallel",
        "1",
        *SMALL,
    )
    assert "4 runs, 0 diverged" in out


def test_the_plug_in_of_the_page_is_the_one_that_new_change_writes():
    example = (ROOT / "experiments/ideas/z_loss.py").read_text(encoding="utf-8")
    assert blocks("your-idea.md", "python") == [example]
    written = scaffold.texts("my_idea", "loss")
    shown = yaml.safe_load(blocks("your-idea.md", "yaml")[0])
    assert shown.items() <= yaml.safe_load(written["experiments/my_idea.yaml"]).items()


def test_the_page_of_ideas_has_every_kind_and_every_hook():
    page = "your-idea.md"
    kinds = {row[0].strip("`"): row[1].strip("`") for row in table_rows(page, "`--kind`")}
    assert kinds == {kind: f"ideas/{example}" for kind, example in scaffold.KINDS.items()}
    hooks = [row[0].strip("`") for row in table_rows(page, "hook")]
    assert hooks == [f"{name}({', '.join(given)})" for name, given in plugins.HOOKS.items()]
