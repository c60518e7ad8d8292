"""The house table of two scripts: runs, steps, time, loss, differences, the benchmark's rules, looks."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness.cli.foreign import JUDGED
from harness.cli.table import print_table

if TYPE_CHECKING:
    from harness.foreign.arm import ForeignArm
    from harness.foreign.experiment import ForeignExperiment
    from reports.analysis.types import Comparisons

AB_SCHEMA = 1


def house_verdict(e: "ForeignExperiment", results: Path, target: float, *, no_report: bool) -> dict[str, Any]:
    """The house table as data: arms, differences, the benchmark's rules, looks, the report's path."""
    from harness.cli.compare import row
    from harness.cli.lookup import compared, load_for_report
    from harness.cli.report import write_page
    from reports.analysis.samples import usable

    page = None if no_report else write_page([e.name], results)
    known = load_for_report(e.name, results, look=no_report)
    outcome = compared(known)
    arms = []
    for arm in e.arms:
        cell = outcome.cells[arm.name]
        numbers = {k: (cell.mean.get(m), cell.sd.get(m)) for k, m in (("time_s", "train_time_s"), ("val_loss", "val_loss"))}
        spread = {f"{k}{end}": v for k, pair in numbers.items() for end, v in zip(("", "_sd"), pair)}
        arms.append(
            {
                "arm": arm.name,
                "runs": cell.n_finished,
                "diverged": cell.n_diverged,
                "steps": _whole(cell.mean.get("steps")),
                **spread,
            }
        )
    return {
        "schema": AB_SCHEMA,
        "experiment": e.name,
        "arms": arms,
        "comparisons": [row(c) for c in outcome.comparisons.values()],
        "rules": rules_of(outcome, usable(known).runs, e.arms, target),
        "looks": outcome.looks,
        "notes": list(outcome.notes),
        "hints": [{"arm": a.name, "line": h.line, "text": h.text, "doubt": h.doubt} for a in e.arms for h in a.hints],
        "report": None if page is None else str(page),
    }


def _whole(value: float | None) -> float | None:
    return int(value) if value is not None and value == int(value) else value


def rules_of(outcome: "Comparisons", runs: Any, arms: "tuple[ForeignArm, ...]", target: float) -> list[dict[str, Any]]:
    """The benchmark's rules on the new arm, and new against old; a rule that cannot be applied says why."""
    from reports.stats import rules

    losses = {
        a.name: [float(v) for v in runs.loc[(runs["arm"] == a.name) & (runs["status"] == "finished"), "val_loss"]] for a in arms
    }
    old, new = (losses[a.name] for a in arms[:2])
    steps = [outcome.cells[a.name].mean.get("steps") for a in arms[:2]]

    def pair() -> Any:
        if not old or not new or None in steps:
            raise ValueError("rule track3-pair needs finished runs of both")
        old_steps, new_steps = (round(s or 0) for s in steps)
        return rules.track3_pair(
            old_mean=fmean(old), old_n=len(old), old_steps=old_steps, new_mean=fmean(new), new_n=len(new), new_steps=new_steps
        )  # fmt: skip

    out = []
    for name, apply in (
        ("track1", lambda: rules.track1(new, target)),
        ("track3", lambda: rules.track3(new, target)),
        ("track3-pair", pair),
    ):
        keys = ("rule", "n", "mean", "statistic", "p", "threshold", "significant")
        try:
            said = apply()
            out.append({k: getattr(said, k) for k in keys} | {"why_not": None})
        except ValueError as error:
            out.append({**dict.fromkeys(keys), "rule": name, "significant": False, "why_not": str(error)})
    return out


def print_verdict(verdict: dict[str, Any]) -> None:
    arms, old, new = verdict["arms"], *(a["arm"] for a in verdict["arms"][:2])
    print_table(arms, ["arm", "runs", "diverged", "steps", "time_s", "time_s_sd", "val_loss", "val_loss_sd"])
    print(f"\n{new} minus {old}:")
    keep = ("metric", "delta", "low", "high", "p", "n", "verdict", "next_action")
    print_table([{k: c[k] for k in keep} for c in verdict["comparisons"] if c["metric"] in (*JUDGED, "step_ms")])
    for note in verdict["notes"]:
        print(note)
    print("\nthe benchmark's rules:")
    print_table(verdict["rules"], ["rule", "n", "mean", "statistic", "p", "threshold", "significant"])
    for rule in verdict["rules"]:
        if rule["why_not"]:
            print(rule["why_not"])
    looks = f"{verdict['looks']} {'look' if verdict['looks'] == 1 else 'looks'} at the results"
    print(f"\n{looks}; times are the scripts' own (self-reported)")
    for hint in verdict["hints"]:
        if hint["doubt"]:
            print(f"{hint['arm']}:{hint['line']}: {hint['text']}")
    if verdict["report"]:
        print(f"report: {verdict['report']}")
