"""SIGKILL at random moments loses nothing, repeats nothing, leaves nothing half-written: the exported table is the same."""

import random
from pathlib import Path

import pytest
from fake_matrix import Matrix, gone, kill, wait_for, workers_of

SEED = 20261121


def kill_often(folder: Path, n_kills: int, rng: random.Random, log: list[str]) -> list[Matrix]:
    """Matrices run to their end under n_kills kills of runners and workers, a third of them in the middle of a write."""
    matrices, in_write = [], folder / "kill_in_write"
    while len(log) < n_kills:
        place = folder / str(len(matrices))
        place.mkdir()
        matrix = Matrix(place, n_seeds=6, KILL_IN_WRITE=str(in_write))
        matrices.append(matrix)
        for _ in range(n_kills + 10):
            process = matrix.start()
            while process.poll() is None and len(log) < n_kills:
                n_writes = sum(line.startswith("write") for line in log)
                kind = "write" if n_writes <= len(log) / 3 else rng.choices(["worker", "runner"], [5, 1])[0]
                delay_s = rng.uniform(0.0, 0.4)
                try:
                    process.wait(delay_s)
                    break
                except Exception:  # still running: now
                    workers = workers_of(process.pid)
                if kind == "write" and workers:
                    in_write.touch()
                    wait_for(lambda p=process: not in_write.exists() or p.poll() is not None)
                    if in_write.exists():
                        in_write.unlink()
                        continue
                elif kind == "worker" and workers:
                    kill(rng.choice(workers))
                elif kind == "runner":
                    kill(process.pid)
                    process.wait()
                    wait_for(lambda w=workers: all(map(gone, w)))  # no worker outlives its runner
                else:
                    continue
                log.append(f"{kind} after {delay_s:.3f} s")
            process.communicate(timeout=120)
            if process.returncode == 0:
                break
        assert process.returncode == 0, log
    return matrices


def check_kills(tmp_path: Path, n_kills: int, seed: int) -> None:
    log: list[str] = []
    print(f"kills of seed {seed}")  # shown by pytest when the test fails
    (tmp_path / "calm").mkdir()
    calm = Matrix(tmp_path / "calm", n_seeds=6)
    assert calm.run()[0] == 0
    expected = calm.table()
    for matrix in kill_often(tmp_path, n_kills, random.Random(seed), log):
        assert matrix.table() == expected, log
        assert set(matrix.statuses().values()) == {"finished"}
        code, out, _ = matrix.run()
        assert (code, "everything is finished" in out) == (0, True)
        assert matrix.table() == expected
    assert len(log) == n_kills
    assert sum(line.startswith("write") for line in log) >= n_kills / 3, log


def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 20, SEED)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_kills_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 100, SEED + 1)
