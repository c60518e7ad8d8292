"""Sends runs into the queue as one job array, by submitit."""

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import submitit
from submitit.core.utils import FailedJobError

from harness.corpora.corpus import data_root
from harness.errors import UserError
from harness.run.spec import PlannedRun
from harness.runner.executor import ExecutorOptions
from harness.runner.slurm.check import NodeCheck
from harness.runner.slurm.cluster import Cluster, SbatchOptions, minutes
from harness.runner.slurm.job import Job
from harness.store.store import Store

CPUS_PER_GPU = 8  # a process, its loader, its compiler's threads
CPU_OPTIONS = ("cpus_per_task", "cpus_per_gpu")
# srun, which starts the run in the job, takes what the job was given only where it is told
PASS_ON = (
    'if [ -n "$SLURM_CPUS_PER_TASK" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi'
)


def send_array(
    runs: Sequence[PlannedRun], store: Store, folder: Path, options: ExecutorOptions
) -> list[str]:
    """Names of the jobs, one for each run; the runs are of one size, all exclusive or none.

    folder: of the experiment's jobs. Raises UserError where sbatch refuses.
    """
    os.environ["ABLATE_DATA"] = str(data_root().resolve())  # jobs may start in another folder
    executor = executor_of(runs, folder, options)
    return sent_by(executor, [job_of(planned, store, folder, options) for planned in runs])


def sent_by(executor: submitit.SlurmExecutor, jobs: Sequence[Callable[[], object]]) -> list[str]:
    """Names of the jobs, once they are in the queue. Raises UserError where sbatch refuses."""
    try:
        with redirect_stderr(io.StringIO()), executor.batch():  # submitit repeats what sbatch says
            sent = [executor.submit(job) for job in jobs]
        return [job.job_id for job in sent]
    except FailedJobError as error:
        refusal = refusal_of(str(error))
        raise UserError(f"{refusal}: change it in cluster.yaml") from None


def send_check(first: PlannedRun, store: Store, answer: Path, options: ExecutorOptions) -> str:
    """Name of the job that looks whether nodes have what such a run needs. answer: its file."""
    trainer, spec = options.trainer, first.spec
    data = list(trainer.data(spec))
    if trainer.corpora(spec):
        data.append(str(data_root().resolve()))
    check = NodeCheck(
        results=str(store.root.resolve()),
        data=tuple(data),
        modules=tuple(trainer.modules),
        device=first.spec.device,
        gpus=first.spec.world_size // options.n_nodes,
        answer=str(answer),
    )
    executor = executor_of([first], answer.parent, replace(options, n_nodes=1))
    return sent_by(executor, [check])[0]


def script_of(runs: Sequence[PlannedRun], folder: Path, options: ExecutorOptions) -> str:
    """The job script that `send_array` would give to sbatch."""
    executor = executor_of(runs, folder, options)
    if len(runs) > 1:  # as submitit makes an array of a batch
        executor.parameters["map_count"] = len(runs)
    return executor._make_submission_file_text(executor._submitit_command_str, "")


def executor_of(
    runs: Sequence[PlannedRun], folder: Path, options: ExecutorOptions
) -> submitit.SlurmExecutor:
    """submitit's, with what the site and such runs ask of a job."""
    cluster = options.cluster or Cluster()
    executor = submitit.SlurmExecutor(
        folder=folder, max_num_timeout=cluster.requeues, python=cluster.python
    )
    executor.update_parameters(
        job_name=f"ablate-{options.experiment}",
        time=minutes(str(cluster.sbatch.get("time", ""))),
        nodes=options.n_nodes,
        ntasks_per_node=1,
        array_parallelism=options.max_parallel or len(runs),
        signal_delay_s=cluster.signal_delay_s,
        setup=[PASS_ON, *cluster.setup],
        srun_args=[*cluster.container, *cluster.srun],
        wckey=None,
        additional_parameters=sbatch_options(cluster, runs[0], options),
    )
    return executor


def sbatch_options(cluster: Cluster, first: PlannedRun, options: ExecutorOptions) -> SbatchOptions:
    """The site's options, with the devices that such a run needs on each of its nodes."""
    per_node = first.spec.world_size // options.n_nodes
    on_gpus = first.spec.device == "cuda"
    sbatch = dict(cluster.sbatch)
    if "time" not in sbatch:
        sbatch = {"time": "UNLIMITED", **sbatch}
    if on_gpus and not cluster.asks_for_gpus():
        sbatch["gpus_per_node"] = per_node
    if not any(option in sbatch for option in CPU_OPTIONS):
        sbatch["cpus_per_task"] = per_node * (CPUS_PER_GPU if on_gpus else 1)
    if options.is_alone(first):
        sbatch["exclusive"] = True
    return sbatch


def refusal_of(text: str) -> str:
    """What sbatch said last, of what submitit repeats."""
    for line in reversed(text.splitlines()):
        if line.startswith("sbatch: "):
            return line.removeprefix("sbatch: error: ")
    return text.removeprefix("sbatch: error: ")


def job_of(planned: PlannedRun, store: Store, folder: Path, options: ExecutorOptions) -> Job:
    return Job(
        results=str(store.root.resolve()),
        spec=planned.spec.to_mapping(),
        command=options.command,
        trainer=options.trainer,
        n_nodes=options.n_nodes,
        limits=options.limits,
        folder=str(folder),
    )
