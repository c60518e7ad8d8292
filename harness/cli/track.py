"""What runs measure, told to an experiment tracker: of an experiment that is, or as it runs."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app
from harness.cli.options import RESULTS, Results
from harness.errors import UserError, near, visible

SETTINGS = Path("ablate.yaml")  # of whoever works in this folder
LOG_TO = "log_to"
LOOK_S = 5.0  # between two looks
LogTo = Annotated[
    list[str] | None,
    typer.Option(
        "--log-to",
        metavar="TRACKER",
        help="tell it what the runs measure: tensorboard, wandb, mlflow",
    ),
]


@app.command()
def track(
    experiment: Annotated[str, typer.Argument(metavar="EXP", help="a name in the results folder")],
    to: Annotated[str, typer.Option("--to", help="tensorboard, wandb or mlflow")],
    follow: Annotated[
        bool, typer.Option("--follow", help="until every run has a result, or the caller is gone")
    ] = False,
    results: Results = RESULTS,
    caller: Annotated[
        int | None, typer.Option(metavar="PID", help="whose end ends --follow")
    ] = None,
) -> None:
    """Tell an experiment tracker what an experiment's runs have measured.

    What it was told before is not told again. Exit 1 where the tracker failed.
    """
    from harness.run.guarded import experiments_in
    from harness.track.follow import Follower, telling_alone
    from harness.track.trackers import tracker_row

    row, there = tracker_row(to), experiments_in(results)
    folder = results / "experiments" / experiment
    is_begun = follow and folder.is_dir()  # it is planned in a moment
    if experiment not in there and not is_begun:
        raise UserError(f"{results}: no experiment '{experiment}' here{near(experiment, there)}")
    begun_by_another, caller = caller is not None, caller or os.getppid()
    try:
        with telling_alone(folder, to):
            tracker = row.make(experiment, folder)
            follower = Follower(results, experiment, tracker, to)
            complete = follower.look()
            while follow and (begun_by_another or not complete):  # that may plan more
                follow = os.getppid() == caller  # where it is gone, a last look
                if follow:
                    time.sleep(LOOK_S)
                complete = follower.look()
            tracker.close()
    except (UserError, OSError):
        raise
    except Exception as error:  # whatever a client may raise
        print(f"{to}: {visible(str(error))}: the same command goes on later", file=sys.stderr)
        raise typer.Exit(1) from None
    print(f"{to}: {follower.n_rows} rows told: {tracker.where}")


def asked_trackers(named: list[str] | None) -> list[str]:
    """Those of --log-to, else of `log_to` in ablate.yaml; raises UserError for what is none."""
    from harness.track.trackers import tracker_row
    from harness.yamlfile import YamlFile

    names = named or []
    if not names and SETTINGS.is_file():
        file = YamlFile(SETTINGS)
        for key in file.data:
            if key != LOG_TO:
                raise UserError(f"{file.where(key)}: unknown key '{key}'{near(key, [LOG_TO])}")
        given = file.data.get(LOG_TO) or []
        names = given if isinstance(given, list) else [given]
    for name in names:
        tracker_row(str(name))
    return [str(name) for name in names]


def track_beside(
    trackers: list[str], experiment: str, results: Path, *, quiet: bool = False
) -> None:
    """A process a tracker that tells it what the runs measure, for as long as this one lives.

    quiet: standard output is for JSON.
    """
    from harness.run.guarded import IN_FOLDER, open_to_append

    for name in trackers:
        folder = results / "experiments" / experiment
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"tracked-{name}.log"
        command = [sys.executable, "-P", "-m", "harness", "track", experiment, "--to", name]
        with os.fdopen(open_to_append(path, below=IN_FOLDER), "ab") as log:
            subprocess.Popen(
                [*command, "--follow", "--caller", str(os.getpid()), "--results", str(results)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        words_of_it = f"{name} is told what the runs measure; how that goes: {path}"
        print(words_of_it, file=sys.stderr if quiet else sys.stdout, flush=True)
