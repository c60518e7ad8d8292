"""`make bench-runner`: what a run costs beside its training, through this runner and through three other ways to start runs.

The same runs, of one step (--steps), one after the other on one processor, in this order: warm workers, fresh workers, tasks of Ray (where it is installed), jobs of
Slurm (where that is installed: a cluster of two nodes on this machine), a bare shell loop, and hydra's submitit launcher with its local executor (installed into a
virtual environment of its own). Overhead = (wall of all runs
- their training and validation clocks) / runs; start-up is all of it that passes before the first run ends. Share: the part of the wall that was training or validation, which is the share of the node's time. Processor time
stands beside it: of all processes, training included, which is the same for all. With --many N it also times `status` and a call
that finds nothing to do on N finished runs.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.corpora.corpus import data_root
from harness.run.results import finite, read_result, result_text, sealed

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENT = """
name: bench
question: What does a run cost beside its training?
base: r07
scale: tiny
set: {{model.n_layer: 2, data.seq_len: 64, data.micro_tokens: 512, data.batch_tokens: 512, data.ranks: 1,
      data.val_tokens: 512, data.order: shuffled, schedule.steps: {steps}, data.first_batch_twice: false, optim.muon_comm: redundant,
      system.checkpoint: none}}
changes: {{untied_head: r08.untied_head}}
seeds: {seeds}
"""
# one run as a person's own script would do it: a process, an import, the training, a line
BARE = """
import json, sys, time
from pathlib import Path
from harness.run.spec import RunSpec
from harness.run.read import read_config
from harness.training.train import train
from harness.training.output import Silent
def one(path):
    done = train(RunSpec.from_mapping(read_config(Path(path))), out=Silent(), device="cpu", stop=lambda: False)
    clocks = done.wall.get("train_s", 0.0) + done.wall.get("validate_s", 0.0)
    print(json.dumps({"clocks": clocks, "val_loss": done.final.val_loss}), flush=True)
"""
HYDRA = """
import hydra
from bare import one
@hydra.main(version_base=None, config_path=None)
def main(config):
    one(config.path)
main()
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def call(command: Sequence[str], **options: Any) -> tuple[dict[str, float], str]:
    """({wall_s, processor_s}, standard output) of a command that must succeed."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": wall_s,
        "processor_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }, done.stdout


def ablate(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "harness", *arguments]


def through_runner(folder: Path, n: int, worker: str, *more: str) -> dict[str, float]:
    """n runs by `ablate run`, one at a time. more: options of it."""
    file = folder / "bench.yaml"
    results = folder / "-".join([worker, *more[:2]])
    options = ["--worker", worker, "--max-parallel", "1", "--no-report", "--results", str(results)]
    options += more
    began = time.time()
    took, _ = call(ablate("run", str(file), *options), env=environment(), cwd=ROOT)
    found = [r for run in (results / "runs").iterdir() if (r := read_result(run))]
    assert len(found) == n
    clocks = sum((r.wall or {})["train_s"] + (r.wall or {})["validate_s"] for r in found)
    imports = sorted(((r.wall or {}).get("import_s", 0.0) for r in found), reverse=True)[0]
    first = min(found, key=lambda r: r.started)
    start_s = (
        datetime_s(first.ended)
        - began
        - (first.wall or {})["train_s"]
        - (first.wall or {})["validate_s"]
    )
    # one that found its worker warm
    middle = sorted(found, key=lambda r: r.started)[n // 2].wall or {}
    return {
        **took, "clocks_s": clocks, "start_s": start_s, "import_s": imports,
        **{f"middle_{k}": v for k, v in middle.items() if k != "import_s"},
    }  # fmt: skip


def through_ray(folder: Path, n: int) -> dict[str, float]:
    """n runs as tasks of a cluster that is started for them, whatever else runs here."""
    os.environ["RAY_ADDRESS"] = "local"
    return through_runner(folder, n, "warm", "--executor", "ray")


def through_slurm(folder: Path, n: int) -> dict[str, float]:
    """n runs as jobs of a cluster on this machine, which was started before."""
    site = folder / "cluster.yaml"
    site.write_text('device: cpu\nmem: 1000M\ntime: "1:00:00"\n')
    up, down = (str(ROOT / "tests" / "slurm" / f"{name}.sh") for name in ("up", "down"))
    place = folder / "slurm"
    try:
        call([up, str(place)])
        os.environ["SLURM_CONF"] = str(place / "slurm.conf")
        return through_runner(folder, n, "warm", "--executor", "slurm", "--cluster", str(site))
    finally:
        call([down, str(place)])


def datetime_s(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def specs(folder: Path) -> list[Path]:
    """The run directories that the warm runner made: their config.yaml is what the others train."""
    return sorted((folder / "warm" / "runs").iterdir())


def through_shell(folder: Path, n: int) -> dict[str, float]:
    """A shell loop, a process for each run."""
    (folder / "one.py").write_text("import sys\nfrom bare import one\none(sys.argv[1])\n")
    (folder / "loop.sh").write_text(
        'for run in "$@"; do "$PYTHON" "$(dirname "$0")/one.py" "$run" || exit 1; done\n'
    )
    paths = map(str, specs(folder)[:n])
    took, out = call(
        ["sh", str(folder / "loop.sh"), *paths], env=environment(PYTHON=sys.executable), cwd=ROOT
    )
    return of_lines(out, took, n)


def of_lines(out: str, took: dict[str, float], n: int) -> dict[str, float]:
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(rows) == n, out
    return {
        **took,
        "clocks_s": sum(r["clocks"] for r in rows),
        "start_s": 0.0,
    }  # every run pays its own


def through_hydra(folder: Path, n: int) -> dict[str, float]:
    """hydra --multirun with the submitit launcher's local executor."""
    place = folder / "hydra"
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    call(
        [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "hydra-core",
            "hydra-submitit-launcher",
        ]
    )
    own = call([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])[1].strip()
    ours = call([sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])[
        1
    ].strip()
    Path(own, "torch_of_the_project.pth").write_text(ours + "\n")
    (folder / "app.py").write_text(HYDRA)
    sweep = [
        python,
        str(folder / "app.py"),
        "--multirun",
        "hydra/launcher=submitit_local",
        f"hydra.sweep.dir={folder}/sweep",
    ]
    sweep.append(
        "hydra.sweeper.max_batch_size=1"
    )  # one at a time, as the others; it would start all of them at once
    paths = ",".join(map(str, specs(folder)[:n]))
    more = environment(PYTHONPATH=f"{ROOT}:{folder}", ABLATE_DATA=str(ROOT / data_root()))
    took, _ = call(
        [*sweep, f"+path={paths}", "hydra.launcher.timeout_min=60"], env=more, cwd=folder
    )
    out = "\n".join(p.read_text() for p in sorted((folder / "sweep").rglob("*_log.out")))
    return of_lines(out, took, n)


def many(folder: Path, n: int) -> dict[str, float]:
    """Wall and processor seconds of `ablate status EXP` and of two calls with nothing to do on n finished runs, copies of the
    warm runner's: the first reads every result, as the first call on a copied folder does."""
    file, results = folder / "many.yaml", folder / "many"
    text = EXPERIMENT.format(seeds=n // 10, steps=1).replace("name: bench", "name: many")
    file.write_text(text + "budgets: [1, 2, 3, 4, 5]\n")
    from harness.experiment.experiment import load_experiment
    from harness.experiment.plan import plan_runs
    from harness.experiment.record import describe
    from harness.store.plans import save_plan

    (results / "runs").mkdir(parents=True)
    model = specs(folder)[0]
    result = read_result(model)
    assert result is not None
    os.chdir(ROOT)
    planned = plan_runs(load_experiment(str(file), device="cpu"))
    texts = {
        name: (model / name).read_bytes()
        for name in (
            "metrics.jsonl",
            "environment.json",
            "config.yaml",
            "log.txt",
            "attempts.jsonl",
        )
    }
    for p in planned:
        run = results / "runs" / p.spec.run_id
        run.mkdir()
        for name, text in texts.items():
            (run / name).write_bytes(text)
        own = {**result.content, "run_id": p.spec.run_id, "intent_id": p.spec.intent_id}
        (run / "result.json").write_text(result_text(sealed(finite(own))))
    save_plan(
        results,
        describe(load_experiment(str(file), device="cpu"), planned, before=None, command="bench"),
    )
    status, _ = call(
        ablate("status", "many", "--json", "--results", str(results)), env=environment(), cwd=ROOT
    )
    asked = {"status": status}
    for what in (
        "first_look",
        "nothing_to_do",
    ):  # no call made these runs: the first reads them all
        asked[what], out = call(
            ablate("run", str(file), "--no-report", "--results", str(results)),
            env=environment(),
            cwd=ROOT,
        )
        assert "everything is finished" in out, out
    return {
        "runs": len(planned),
        **{f"{what}_{k}": s for what, took in asked.items() for k, s in took.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=50, help="runs of each way (50)")
    parser.add_argument(
        "--many",
        type=int,
        default=0,
        help="finished runs to look at (10000 in `make bench-runner`)",
    )
    parser.add_argument("--steps", type=int, default=1, help="of a run (1)")
    parser.add_argument("--only", nargs="*", help="which ways")
    options = parser.parse_args()
    ways: dict[str, Callable[[Path, int], dict[str, float]]] = {
        "warm workers": lambda f, n: through_runner(f, n, "warm"),
        "fresh workers": lambda f, n: through_runner(f, n, "fresh"),
        "ray": through_ray,
        "slurm": through_slurm,
        "shell loop": through_shell,
        "hydra submitit_local": through_hydra,
    }
    with tempfile.TemporaryDirectory() as place:
        folder, rows = Path(place), {}
        (folder / "bare.py").write_text(BARE)
        text = EXPERIMENT.format(seeds=options.n // 2, steps=options.steps)
        (folder / "bench.yaml").write_text(text)
        for name, way in ways.items():
            if name == "ray" and find_spec("ray") is None:
                continue
            if name == "slurm" and shutil.which("slurmctld") is None:
                continue
            if options.only and name.split()[0] not in options.only and name != "warm workers":
                continue
            took = rows[name] = way(folder, options.n)
            took["overhead_ms"] = 1000 * (took["wall_s"] - took["clocks_s"]) / options.n
            took["overhead_after_start_ms"] = (
                1000 * (took["wall_s"] - took["clocks_s"] - took["start_s"]) / options.n
            )
            took["share"] = took["clocks_s"] / took["wall_s"]
            took["processor_ms"] = 1000 * took["processor_s"] / options.n
            words = ", ".join(f"{k} {v:.2f}" for k, v in took.items())
            print(
                f"{name:22} {took['overhead_ms'] / rows['warm workers']['overhead_ms']:6.1f} x   {words}",
                flush=True,
            )
        if options.many:
            print(
                ", ".join(f"{k} {v:.2f}" for k, v in many(folder, options.many).items()), flush=True
            )


if __name__ == "__main__":
    main()
