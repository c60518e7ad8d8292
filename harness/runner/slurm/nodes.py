"""The nodes of a cluster: where a run failed, how many there are, keeping jobs off some of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from harness.run.attempts import AttemptRow
from harness.runner.slurm.cluster import Cluster
from harness.runner.slurm.queue import output_of

AT_ONCE = 1000  # jobs that one command names
WORKING = ("idle", "mixed", "allocated", "completing", "planned")  # as sinfo says it
POWER = "~#!%@^-+"  # what it adds of a node that is switched off, or on again, when needed


@dataclass(frozen=True, kw_only=True)
class LastTry:
    """Where a run was tried last, and for how long."""

    node: str
    seconds: float


def last_try(rows: Sequence[AttemptRow], job: str) -> LastTry | None:
    """Of a job, from the rows of attempts.jsonl; None where its node is not known."""
    node: str | None = None
    began: str | None = None
    ended: str | None = None
    for row in rows:
        if row.token.startswith(f"{job}/"):
            node, began, ended = row.node, row.started, None
        elif (row.reason or "").startswith(f"job {job}: "):  # it could do nothing
            node, began, ended = row.node, row.ended, row.ended
        elif row.is_end:
            ended = row.ended
    if node is None or began is None or ended is None:
        return None
    seconds = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    return LastTry(node=node, seconds=seconds.total_seconds())


def n_nodes_of(cluster: Cluster) -> int:
    """How many working nodes the site's settings let a job have; 0 where Slurm does not say."""
    command = ["sinfo", "-h", "-N", "-o", "%N %T"]
    partition = cluster.sbatch.get("partition")
    if partition is not None:
        command += ["-p", str(partition)]
    working = set()
    for line in (output_of(*command) or "").splitlines():
        name, _, state = line.partition(" ")
        if state.strip().rstrip(POWER) in WORKING:
            working.add(name)
    return len(working)


def without(cluster: Cluster, nodes: Iterable[str]) -> Cluster:
    """The site's settings with these nodes excluded as well."""
    excluded = excluded_nodes(cluster, nodes)
    if not excluded:
        return cluster
    return replace(cluster, sbatch={**cluster.sbatch, "exclude": excluded})


def excluded_nodes(cluster: Cluster, nodes: Iterable[str]) -> str:
    asked = cluster.sbatch.get("exclude")
    return ",".join([*([str(asked)] if asked else []), *nodes])


def keep_off(jobs: Iterable[str], excluded: str) -> None:
    """Jobs that wait in the queue shall start on none of these nodes."""
    names = list(jobs)
    for i in range(0, len(names), AT_ONCE):
        some = ",".join(names[i : i + AT_ONCE])
        output_of("scontrol", "update", f"JobId={some}", f"ExcNodeList={excluded}")
