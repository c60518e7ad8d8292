"""One run again, from its record: what it executes is known before anything starts."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import app
from harness.cli.log import Run, experiments_of, open_run
from harness.cli.options import EXIT_FAILED, EXIT_STOPPED, RESULTS, Results, Trust
from harness.cli.table import text
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.cli.log import Membership
    from harness.run.results import Result
    from harness.run.spec import RunSpec
    from harness.store.store import Store


@app.command()
def rerun(
    run: Run,
    replace: Annotated[
        bool, typer.Option("--replace", help="put the new result in the place of the old one")
    ] = False,
    trust: Trust = False,
    results: Results = RESULTS,
) -> None:
    """Repeat a run from its record.

    A result stays what it is: its repetition goes to RESULTS/reruns and is compared with it.
    """
    from harness.config import plugins
    from harness.foreign.runner import run_again
    from harness.node.slots import Node
    from harness.provenance.redact import redact
    from harness.provenance.source import refuse_secrets_in
    from harness.run.results import read_result
    from harness.run.spec import PlannedRun
    from harness.runner.executor import ExecutorOptions
    from harness.runner.local import Runner
    from harness.runner.trunks import trunks_to_make

    store, run_id = open_run(run, results)
    before = read_result(store.directory(run_id))
    spec = spec_of(store, run_id)
    memberships = experiments_of(results, run_id)
    arm = memberships[0].arm if memberships else run_id
    plugin_files = plugins_of(spec, memberships)
    check_source(run_id, spec, plugin_files, results)
    for line in check_trust(run_id, spec, plugin_files, memberships, results, trust=trust):
        print(f"trusted: {line}", file=sys.stderr)
    check_versions(run_id, spec, results)
    refuse_secrets_in(plugin_files)
    plugins.use(plugin_files)
    if replace and before is not None:
        note_replaced(results, run_id, memberships)
    again = again_in(store, run_id, aside=before is not None, replace=replace)
    command = redact(shlex.join(["ablate", *sys.argv[1:]]))
    planned = PlannedRun(arm=arm, block=0, place=0, spec=spec)
    print(
        f"{arm}, seed {spec.seed}: {spec.budget or 'its own'} steps, in {again.directory(run_id)}",
        flush=True,
    )
    if spec.config.get("trainer") is None:
        options = ExecutorOptions(command=command)
        trunks, _ = trunks_to_make([planned], again)
        summary = Runner([*trunks, planned], again, Node.here(spec.device), options).run()
    else:
        summary = run_again(planned, store, again)
    if summary.stopped:
        raise typer.Exit(EXIT_STOPPED[summary.stopped])
    after = read_result(again.directory(run_id))
    if after is None:
        print(
            f"{summary.statuses[run_id]}: {summary.reasons.get(run_id)}"
            f" ({again.directory(run_id) / 'log.txt'})"
        )
        raise typer.Exit(EXIT_FAILED)
    print(f"{after.status}: val_loss {text(after.val_loss, 6)}" + compared(before, after))


def note_replaced(results: Path, run_id: str, memberships: "Sequence[Membership]") -> None:
    """Note in the ledger what the run's result was, and that it is replaced."""
    from harness.cli.looks import remember_look
    from harness.run.ledger import add_rows, gone_row
    from harness.store.plans import read_plan

    for membership in memberships:
        plan = read_plan(results, membership.experiment)
        if plan is not None:
            remember_look(plan, results, "rerun")
    add_rows(results, [gone_row("rerun --replace", [run_id])])


def spec_of(store: "Store", run_id: str) -> "RunSpec":
    """The run's record; raises UserError where it is none, or nothing that could run."""
    from harness.run.guarded import RefusedFileError
    from harness.run.read import read_config
    from harness.run.spec import RunSpec

    path = store.directory(run_id) / "config.yaml"
    try:
        spec = RunSpec.from_mapping(read_config(store.directory(run_id)))
    except RefusedFileError:
        raise
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}: without it the run cannot be done again"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{path}: is not the configuration of a run") from None
    if "log" in spec.config:
        raise UserError(
            f"run {run_id} was imported from a log: there is nothing that could run again"
        )
    return spec


def plugins_of(spec: "RunSpec", memberships: "Sequence[Membership]") -> list[Path]:
    """The plug-in files that a run of our own trainer needs."""
    if spec.config.get("trainer") is not None or not memberships:
        return []
    return [Path(path) for path in memberships[0].plugins]


def check_source(run_id: str, spec: "RunSpec", plugin_files: Sequence[Path], results: Path) -> None:
    """Refuse a run whose code is no longer what it was; nothing is imported to find that out."""
    from harness.provenance.source import changed_files, source_of

    for path in plugin_files:
        if not path.is_file():
            raise UserError(f"run {run_id} was made with plug-in {path}: bring that file back")
    source = source_of(plugin_files)
    # the code of a foreign trainer is kept whole
    if spec.config.get("trainer") is None and source.digest != spec.source_digest:
        changed = ", ".join(changed_files(spec.source_files, source.files))
        raise UserError(
            f"run {run_id} was made by other code ({changed}): bring that code back (it is in"
            f" {results}/code/{spec.source_digest}.zip), or run its experiment again with the"
            " present code"
        )
    if spec.run_id != run_id:
        raise UserError(
            f"run {run_id}: its config.yaml is the configuration of run {spec.run_id}: nothing is"
            " started"
        )


def check_trust(
    run_id: str,
    spec: "RunSpec",
    plugin_files: Sequence[Path],
    memberships: "Sequence[Membership]",
    results: Path,
    *,
    trust: bool,
) -> list[str]:
    """What the run executes that is not ours, in words, where that is trusted.

    Raises UserError where it was not launched here either.
    plugin_files: that the run imports. results: the folder that holds run_id. trust: the user
    allows all of it.
    """
    from harness.store.launches import (
        command_words,
        environment_words,
        launched_runs,
        trusted,
    )

    executed = [f"the plug-in {path}" for path in plugin_files]
    trainer = spec.config.get("trainer")
    if trainer is not None:
        command = command_words(trainer["env"], trainer["command"], trainer["args"])
        executed.append(f"`{command}` with code/{spec.source_digest}.zip")
    executed += environment_words(trainer["environment"] if trainer else spec.runs_in)
    for membership in memberships:
        if run_id in launched_runs(results, membership.experiment):
            return []
    if not executed:
        return []
    return trusted(f"run {run_id}", executed, trust=trust)


def check_versions(run_id: str, spec: "RunSpec", results: Path) -> None:
    """Refuse a run whose interpreter has other versions now; it is asked, so trusted before."""
    from harness.provenance.interpreters import lock_of

    trainer = spec.config.get("trainer")
    interpreter = trainer["environment"] if trainer else spec.runs_in
    if lock_of(interpreter).digest != spec.environment_digest:
        raise UserError(
            f"run {run_id} was made with other versions: install those of"
            f" {results}/environments/{spec.environment_digest}.json"
        )


def again_in(store: "Store", run_id: str, *, aside: bool, replace: bool) -> "Store":
    """The store in which a run is done again.

    Its own if it has no result or that is to be replaced, else reruns/.
    """
    from harness.run.guarded import IN_ROOT, check_folder
    from harness.store.errors import ResultsError
    from harness.store.store import Store

    if not aside:
        return store
    again = store
    if not replace:
        folder = store.root / "reruns"
        try:
            if os.path.lexists(folder):
                check_folder(folder, below=IN_ROOT)
        except OSError as error:
            raise ResultsError(store.root, error) from None
        again = Store.create(folder)
    if again.directory(run_id).is_dir():
        if again.hold(run_id) is None:
            raise UserError(
                f"run {run_id} is being repeated in this moment: look at it with `ablate status"
                f" --results {again.root}`"
            )
        again.set_aside(run_id)
    return again


def compared(before: "Result | None", after: "Result") -> str:
    """How a repetition compares with the result on record."""
    if before is None:
        return ""
    if before.val_loss == after.val_loss:
        return ", bit for bit as before"
    if before.val_loss is None or after.val_loss is None:
        return f", before: {before.status}"
    difference = after.val_loss - before.val_loss
    return f", before: {text(before.val_loss, 6)}, difference {difference:+.2e}"
