"""The executors, a row each: the options for it alone, the device it plans for, how it is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.run.spec import PlannedRun
    from harness.runner.executor import Executor, ExecutorOptions
    from harness.runner.trainers import RunTrainer
    from harness.store.store import Store


def this_machine(options: "ExecutorOptions") -> str | None:
    return None


def nothing_elsewhere(results: Path, experiment: str) -> int:
    return 0


def no_scripts(
    runs: "Sequence[PlannedRun]", results: Path, options: "ExecutorOptions"
) -> list[str]:
    return []


@dataclass(frozen=True, kw_only=True)
class ExecutorRow:
    """An executor as the commands know it."""

    make: "Callable[[Sequence[PlannedRun], Store, ExecutorOptions], Executor]"
    options: tuple[str, ...] = ()  # of `ablate run`, for it alone
    device: "Callable[[ExecutorOptions], str | None]" = (
        this_machine  # that it plans for; None: ours
    )
    device_is_firm: bool = True  # else --set device= may say another
    cancel: Callable[[Path, str], int] = nothing_elsewhere  # ends what it sent away; how much
    scripts: "Callable[[Sequence[PlannedRun], Path, ExecutorOptions], list[str]]" = no_scripts


def make_local(
    runs: "Sequence[PlannedRun]", store: "Store", options: "ExecutorOptions"
) -> "Executor":
    from harness.node.slots import Node
    from harness.runner.local import Runner

    device = runs[0].spec.device
    node = Node.here(device, max_parallel=options.max_parallel)
    if device == "cuda" and not node.gpus:
        raise UserError(
            "the runs are planned on cuda, and this node shows no GPU: see why `nvidia-smi -L` "
            "lists none, or plan them on the CPU with --set device=cpu"
        )
    check_data(runs, options.trainer)
    return Runner(runs, store, node, options)


def check_data(runs: "Sequence[PlannedRun]", trainer: "RunTrainer") -> None:
    """Raises UserError where a corpus of the runs is not what it says; on this node, once."""
    from harness.corpora.index import open_corpus
    from harness.corpora.verify import verify

    names: dict[str, None] = {}
    for planned in runs:
        names |= dict.fromkeys(trainer.corpora(planned.spec))
    for name in names:

        def say(progress: str, name: str = name) -> None:
            print(f"corpus {name}: {progress}", flush=True)

        verify(open_corpus(name), say=say)


def make_slurm(
    runs: "Sequence[PlannedRun]", store: "Store", options: "ExecutorOptions"
) -> "Executor":
    """Raises UserError where this machine can send no jobs."""
    from harness.runner.slurm.executor import Senders, SlurmRunner
    from harness.runner.slurm.queue import check_slurm

    check_slurm()
    from harness.runner.slurm.send import send_array, send_check

    return SlurmRunner(runs, store, Senders(runs=send_array, check=send_check), options)


def scripts_for_slurm(
    runs: "Sequence[PlannedRun]", results: Path, options: "ExecutorOptions"
) -> list[str]:
    """The scripts of the jobs that would be sent. Raises UserError where none can be sent."""
    from harness.runner.slurm.executor import arrays_of
    from harness.runner.slurm.queue import check_slurm
    from harness.runner.slurm.sent import jobs_folder

    check_slurm()
    from harness.runner.slurm.send import script_of

    folder = jobs_folder(results.resolve(), options.experiment)
    return [script_of(array, folder, options) for array in arrays_of(runs, options)]


def device_of_cluster(options: "ExecutorOptions") -> str | None:
    return None if options.cluster is None else options.cluster.device


def cancel_slurm(results: Path, experiment: str) -> int:
    from harness.runner.slurm.sent import cancel_experiment

    return cancel_experiment(results, experiment)


def make_ray(
    runs: "Sequence[PlannedRun]", store: "Store", options: "ExecutorOptions"
) -> "Executor":
    """Raises UserError where no cluster answers."""
    check_ray()
    from harness.runner.ray.executor import RayRunner

    return RayRunner(runs, store, options)


def device_of_ray(options: "ExecutorOptions") -> str | None:
    check_ray()
    from harness.runner.ray.nodes import device_of_nodes

    return device_of_nodes(options.address)


def check_ray() -> None:
    """Raises UserError where Ray is not installed."""
    if find_spec("ray") is None:
        raise UserError(
            "--executor ray needs Ray: pip install 'speedrun-ablations[ray]', "
            "in a checkout pip install -e '.[ray]'"
        )


EXECUTORS = {
    "local": ExecutorRow(make=make_local),
    "slurm": ExecutorRow(
        make=make_slurm,
        options=("--cluster", "--nodes-per-run", "--print-script"),
        device=device_of_cluster,
        cancel=cancel_slurm,
        scripts=scripts_for_slurm,
    ),
    "ray": ExecutorRow(
        make=make_ray,
        options=("--address", "--nodes-per-run"),
        device=device_of_ray,
        device_is_firm=False,
    ),
}
DEFAULT = "local"


def cancel_everywhere(results: Path, experiment: str) -> int:
    """End what executors have sent away of an experiment; how many jobs that were."""
    return sum(row.cancel(results, experiment) for row in EXECUTORS.values())
