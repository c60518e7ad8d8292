"""`ablate --help`: every command once, under its subject, in the order in which a user meets them."""

import inspect
import re
from pathlib import Path

import pytest
import typer

from harness.__main__ import main
from harness.cli import app
from harness.cli.panels import PANELS, PanelGroup

DOCS = Path(__file__).resolve().parents[3] / "docs"


def options_of(group: typer.Typer, before: str = "") -> dict[str, str]:
    """What the function of every command takes, with its defaults and least values, by name.

    As the functions have it, not as a user types it; those of groups too.
    """
    found = {}
    for info in group.registered_commands:
        said = []
        for name, parameter in inspect.signature(info.callback).parameters.items():
            given = "!" if parameter.default is parameter.empty else f"={parameter.default!r}"
            [told, *_] = getattr(parameter.annotation, "__metadata__", [None])
            least = getattr(told, "min", None)
            said.append(f"{name}{given}" + (f" from {least}" if least is not None else ""))
        name = info.name or info.callback.__name__.replace("_", "-")
        found[f"{before}{name}"] = ", ".join(said)
    for inner in group.registered_groups:
        name = inner.name or inner.typer_instance.info.name
        found |= options_of(inner.typer_instance, f"{name} ")
    return found


OPTIONS = options_of(app)


def help_text(capsys) -> str:
    with pytest.raises(SystemExit):
        main(["--help"])
    return capsys.readouterr().out


def test_every_command_stands_in_one_panel():
    placed = [name for names in PANELS.values() for name in names]
    assert sorted(placed) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_a_user_meets_run_first_and_what_it_made_next():
    assert [*PANELS["Experiments"][:4], *PANELS["Results"][:2]] == [
        *("run", "plan", "status", "log"),
        *("report", "compare"),
    ]


def test_help_lists_the_panels_in_order(capsys):
    listed: dict[str, tuple[str, ...]] = {}
    title = ""
    for line in help_text(capsys).splitlines():
        heading = re.fullmatch(r"(\S.*):", line)
        command = re.match(r"  ([a-z][a-z-]*) ", line)
        if heading:
            title = heading[1]
        elif command:
            listed[title] = (*listed.get(title, ()), command[1])
    assert list(listed.items()) == list(PANELS.items())


def test_the_documentation_has_the_same_order():
    documented: dict[str, tuple[str, ...]] = {}
    title = ""
    for line in (DOCS / "command-line.md").read_text(encoding="utf-8").splitlines():
        command = re.match(r"### `ablate ([a-z-]+)", line)
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif command and command[1] not in documented.get(title, ()):
            documented[title] = (*documented.get(title, ()), command[1])
    assert list(documented.items()) == list(PANELS.items())


def test_a_command_that_stands_in_no_panel_comes_last() -> None:
    group = PanelGroup(name="x")
    names = ("zzz", "report", "run", "data", "aaa")
    group.commands = dict.fromkeys(names)
    assert group.list_commands(None) == ["run", "report", "data", "zzz", "aaa"]


@pytest.mark.parametrize("name", OPTIONS)
def test_what_nobody_asks_a_command_for_is_what_it_was(name, kept_line):
    kept_line(OPTIONS[name])
