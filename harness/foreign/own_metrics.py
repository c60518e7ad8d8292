"""Metrics of a script's own as they are typed: a pattern, a JSON field, a file.

val_bpb: ([0-9.]+)        the group is the number, the word before it (or the group's own
                          name, (?P<val_bpb>...)) the metric's
json:eval.accuracy        the field of the last line that is a JSON object
file:out/eval.json:bpb    the field of a file that the script writes; file:bpb.txt: the number
NAME=json:... NAME=file:...   under another name
"""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from harness.errors import UserError
from harness.run.readings import VAL_LOSS, Better, OwnMetric, Readings

NAME = re.compile(r"[A-Za-z_]\w{0,39}")
ELSEWHERE = re.compile(r"(?:(?P<name>\w+)=)?(?P<kind>json|file):(?P<rest>.+)")
LAST_WORD = re.compile(r"([A-Za-z_]\w*)\W*$")
GROUP = re.compile(r"(?<!\\)\((?!\?)|\(\?P<")  # opens one that captures
MOST_PATTERN = 500  # characters
# what a table of runs, arms or comparisons calls its own columns
RESERVED = frozenset(
    (
        *("experiment", "arm", "seed", "replicate", "budget", "role", "block", "status", "reason"),
        *("heldout_loss", "heldout_loss_sd", "bits_per_byte", "val_loss_sd", "train_time_s"),
        *("step_ms", "step_ms_sd", "step_ms_median", "step_ms_p95", "time_s", "time_s_sd", "steps"),
        *("tokens", "tokens_per_s", "mfu", "peak_allocated_mib", "peak_reserved_mib", "mib"),
        *("time_to_target", "time_to_target_s", "first_crossing_s", "censored", "node", "device"),
        *("gpu", "n_gpus", "gpu_memory_gb", "driver", "cuda", "torch", "fingerprint", "stale"),
        *("session", "borrowed"),
        *("trunk_s", "disturbed", "stale_files", "imported", "self_reported", "metrics_digest"),
        *("run_id", "stopped_at", "runs", "diverged", "failed", "to_come", "learning_percent"),
        *("systems_percent", "metric", "verdict", "step_tokens", "steps_to_target"),
        *("tokens_to_target", "tokens_to_target_low", "tokens_to_target_high"),
    )
)


def read_metric(text: str, *, higher: Sequence[str] = (), where: str) -> OwnMetric:
    """The metric that a text asks for; raises UserError where it is none.

    higher: names of those where higher is better."""
    elsewhere = ELSEWHERE.fullmatch(text)
    if elsewhere is None:
        name = _name_of_pattern(text, where)
        return _checked(OwnMetric(name=name, pattern=text, better=_better(name, higher)), where)
    rest = elsewhere["rest"]
    if elsewhere["kind"] == "json":
        name = elsewhere["name"] or rest.rpartition(".")[2]
        return _checked(OwnMetric(name=name, field=rest, better=_better(name, higher)), where)
    path, _, field = rest.partition(":")
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts:
        raise UserError(f"{where}: {path} must be a path in the script's working directory")
    name = elsewhere["name"] or field.rpartition(".")[2] or place.stem
    metric = OwnMetric(name=name, field=field or None, file=path, better=_better(name, higher))
    return _checked(metric, where)


def check_readings(readings: Readings, *, higher: Sequence[str] = (), where: str) -> None:
    """Raises UserError where the readings cannot be read together."""
    names = [metric.name for metric in readings.metrics]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where}: two metrics are called {name}: name one (?P<other>...)")
    for name in higher:
        if name not in names:
            raise UserError(f"{where}: --higher {name}: no metric is called so: {', '.join(names)}")
    for key, pattern in (("step", readings.step_pattern), ("time", readings.time_pattern)):
        if pattern is not None:
            _compiled(pattern, f"{where}: the {key} pattern")
    if readings.stop_step is None:
        return
    if readings.stop_step < 1:
        raise UserError(f"{where}: the stop at step {readings.stop_step} must be at 1 or later")
    late = [metric.name for metric in readings.metrics if metric.pattern is None]
    if late:
        raise UserError(
            f"{where}: {late[0]} is read when the script has ended, which a run that is stopped at "
            f"step {readings.stop_step} never does: read it from a line"
        )


def _better(name: str, higher: Sequence[str]) -> Better:
    return "higher" if name in higher else "lower"


def _checked(metric: OwnMetric, where: str) -> OwnMetric:
    if not NAME.fullmatch(metric.name):
        raise UserError(
            f"{where}: '{metric.name}' is no name of a metric: letters, digits and _, such as "
            "(?P<val_bpb>[0-9.]+) or val_bpb=json:eval.bpb"
        )
    if metric.name in RESERVED:
        raise UserError(
            f"{where}: {metric.name} is a column of every table: name the metric otherwise, such "
            f"as (?P<own_{metric.name}>...)"
        )
    if metric.name == VAL_LOSS and metric.is_higher_better:
        raise UserError(f"{where}: of val_loss, the validation loss, lower is better")
    return metric


def _name_of_pattern(pattern: str, where: str) -> str:
    compiled = _compiled(pattern, where)
    if compiled.groupindex:
        return next(iter(compiled.groupindex))
    opened = GROUP.search(pattern)
    word = LAST_WORD.search(re.sub(r"\\[a-zA-Z]", " ", pattern[: opened.start() if opened else 0]))
    if word is None:
        raise UserError(f"{where}: '{pattern}' names no metric: name its group, (?P<val_bpb>...)")
    return word[1]


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    """The pattern, with one group alone."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"{where}: '{pattern}' is no regular expression: {error}") from None
    if compiled.groups != 1 or len(pattern) > MOST_PATTERN:
        raise UserError(
            f"{where}: '{pattern}' must have one group, which is the number: 'val_bpb: ([0-9.]+)' "
            "(other brackets: (?:...))"
        )
    return compiled
