"""`from harness import Experiment, run, ab`: what the command line does, as Python functions.

Each is a command with `--json` (docs/command-line.md) in this process, and returns what that prints
as Python values; a refusal is harness.errors.UserError with the command's line.
"""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import TyperException

from harness.cli import app
from harness.cli.lookup import parse_overrides
from harness.cli.options import RESULTS
from harness.cli.said import line_of
from harness.errors import UserError
from harness.run.document import Content


def call(command: str, /, *arguments: object, **options: object) -> Any:
    """A command's JSON, with `exit`, its exit code, where it is a mapping.

    options: as typed, `gpus_per_run=8` for `--gpus-per-run 8`; True: without a value; a list: again
    and again; None or False: not at all. Raises UserError."""
    argv = [*command.split(), *map(str, arguments), *_typed(options), "--json"]
    out, progress = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(progress):
            code = typer.main.get_command(app)(argv, prog_name="ablate", standalone_mode=False)
    except (TyperException, OSError) as error:
        raise UserError(line_of(error)) from error
    data = json.loads(out.getvalue())
    if isinstance(data, dict):
        data["exit"] = code if isinstance(code, int) else 0
    return data


def _typed(options: dict[str, object]) -> list[str]:
    """Options as the command line has them."""
    argv = []
    for name, value in options.items():
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is True:
                argv.append(flag)
            elif one is not None and one is not False:
                argv += [flag, str(one)]
    return argv


def ab(old: object, /, *new: object, **options: object) -> Content:
    """Scripts against each other: `ablate ab OLD NEW...`.

    ab("old.py", "new.py", n=5, gpus_per_run=8)["comparisons"]"""
    judged: Content = call("ab", old, *new, **options)
    return judged


def run(experiment: object, /, **options: object) -> Content:
    """Run what is missing of an experiment, then its verdicts: `ablate run`, `ablate compare`."""
    results = options.get("results", RESULTS)
    done = call("run", experiment, **options)
    settings = options.get("set") or []
    listed = [*settings] if isinstance(settings, list | tuple) else [str(settings)]
    name = parse_overrides(listed, None).get("name", experiment)  # compare knows the file's own
    verdicts: Content = call("compare", name, results=results)
    return {**verdicts, "exit": done["exit"]}


@dataclass(frozen=True)
class Experiment:
    """An experiment by its file or name, and the folder of its results."""

    experiment: str
    results: str | Path = RESULTS

    def plan(self, **options: object) -> Content:
        """Arms, runs, what is done, what can be detected, what it costs."""
        planned: Content = call("plan", self.experiment, results=self.results, **options)
        return planned

    def run(self, **options: object) -> Content:
        """Run what is missing; the verdicts."""
        return run(self.experiment, results=self.results, **options)

    def status(self) -> list[Content]:
        """Every run: state, step, loss, time, attempts."""
        runs: list[Content] = call("status", self.experiment, results=self.results)
        return runs

    def compare(self, **options: object) -> Content:
        """The verdicts."""
        verdicts: Content = call("compare", self.experiment, results=self.results, **options)
        return verdicts

    def report(self, **options: object) -> Path:
        """Write the page; its path."""
        said = call("report", self.experiment, results=self.results, **options)["said"]
        return Path(said[-1].removeprefix("report: "))
