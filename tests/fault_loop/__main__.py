"""python -m tests.fault_loop --hours 2 --seed 1: random faults on one results folder, a small matrix each round.

After each round every run has finished once, what finished before is as it was byte for byte, losses and curves are those of
an undisturbed matrix, the page is verified against the folder, no process and no half-written file is left. --kills 300:
SIGKILLs alone, until there were so many. It prints a line a round and a table in the end; what was lost makes the exit code 1.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from harness.run.results import read_result
from tests.assassin import Assassin
from tests.fake_matrix import EXPERIMENT, Matrix, end_started
from tests.fault_loop.faults import FAULTS, MOST_CALLS, OF_A_DISK, WAYS, Round, Way
from tests.fault_loop.folder import (
    Disk,
    Seen,
    leftovers,
    losses,
    n_finished,
    none_strays,
    runs_of,
    said_by,
)

ALL_EVERY = 20  # rounds, after which every run of the folder is looked at again
TABLE_EVERY = 25


class FaultLoop:
    """Rounds on one folder, and the account of them."""

    def __init__(self, place: Path, seed: int, n_seeds: int = 3) -> None:
        self.place, self.n_seeds = place, n_seeds
        self.assassin = Assassin(seed)
        self.disk = Disk(place / "disk")
        self.results = self.disk.place / "results"
        self.seen = Seen(self.results)
        self.mark = f"fault-loop-{uuid.uuid4().hex}"
        self.n_rounds = self.n_runs = 0
        self.rounds: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()  # that the faults of a kind cost
        self.lost: dict[str, list[str]] = {}

    def bag(self, *, kills_alone: bool) -> Iterator[str]:
        """Faults in an order that is drawn, each as often as the others, kills twice as often."""
        kills = [name for name in FAULTS if name.startswith("SIGKILL")]
        others = [n for n in FAULTS if n not in kills and (self.disk.own or n not in OF_A_DISK)]
        bag = kills if kills_alone else [*kills, *kills, *others]
        while True:
            yield from self.assassin.rng.sample(bag, len(bag))

    def round(self, fault: str) -> list[str]:
        """What was lost in a round: nothing."""
        self.n_rounds += 1
        name = f"r{self.n_rounds:04}"
        make, ways = FAULTS[fault]
        way = WAYS[self.assassin.rng.choice(ways)]
        place = self.place / name
        place.mkdir()
        calm = self.matrix(name, place, place / "calm", way)
        code, out, err = calm.run(*way.calm)
        assert code == 0, f"the undisturbed matrix: {out}{err}"
        planned = runs_of(calm.results, name)
        assert len(planned) == 2 * self.n_seeds
        expected = losses(calm.results, planned)
        shutil.rmtree(calm.results)
        matrix = self.matrix(name, place, self.results, way)
        matrix.environment["KILL_IN_WRITE"] = str(place / "kill_in_write")
        now = Round(
            matrix=matrix,
            way=way,
            results=self.results,
            disk=self.disk,
            seen=self.seen,
            assassin=self.assassin,
            name=name,
        )
        self.hits[fault] += make(now)
        self.rounds[fault] += 1
        wrong = [*now.said, *self.wrong_in(now, expected)]
        self.attempts[fault] += self.n_lost_attempts(now)
        if wrong:
            self.lost.setdefault(fault, []).extend(f"round {self.n_rounds}: {w}" for w in wrong)
        else:
            shutil.rmtree(place)
        end_started()
        return wrong

    def wrong_in(self, now: Round, expected: dict[tuple[str, int], str]) -> Iterator[str]:
        """What does not hold of the folder after a round."""
        for _ in range(MOST_CALLS):  # what was harmed after a call had looked at it is done again
            code, out, err = now.matrix.run(*now.way.options)
            if (code, err) != (0, ""):
                yield f"a calm call ended with {code}: {err[-2000:]}"
            if "everything is finished" in out:
                break
        else:
            yield "it is never finished"
        if left := none_strays(self.mark):
            yield f"processes that outlived their runner: {left}"
        again = self.seen.healed()  # a run whose result was deleted has finished twice
        self.seen.look()
        runs = now.runs()
        found = losses(self.results, runs)
        yield from (
            f"{key}: {found.get(key)}, not {v}"
            for key, v in expected.items()
            if found.get(key) != v
        )
        for run_id in runs.values():
            n_results, n_ends = n_finished(self.results / "runs" / run_id)
            if n_results != 1 or (n_ends > 1 and run_id not in again):
                yield f"{run_id} has {n_results} results and {n_ends} attempts that finished"
        looked_at = None if self.n_rounds % ALL_EVERY == 0 else set(runs.values())
        yield from (f"{run_id} was replaced" for run_id in self.seen.changed(looked_at))
        self.n_runs += len(runs)
        page = now.matrix.file.with_suffix(".html")
        for words in (
            ("clean", "attempts", "--results", self.results),
            ("report", now.name, "-o", page, "--results", self.results),
            ("verify", page, "--results", self.results),
        ):
            code, out = said_by(*words)
            if code != 0 or "Traceback" in out:
                yield f"{words[0]} ended with {code}: {out[-2000:]}"
        yield from (f"left over: {path}" for path in leftovers(self.results))

    def n_lost_attempts(self, now: Round) -> int:
        """Attempts beside those that gave the results: they are counted from 1."""
        results = [read_result(self.results / "runs" / run_id) for run_id in now.runs().values()]
        return sum((result.attempt or 1) - 1 for result in results if result is not None)

    def table(self) -> str:
        """By fault: rounds, how often it was made, what it cost, what was lost."""
        lines = [f"{'fault':<46}{'rounds':>8}{'made':>8}{'attempts':>10}{'lost':>6}"]
        for name in FAULTS:
            n_lost = len(self.lost.get(name, []))
            lines.append(
                f"{name:<46}{self.rounds[name]:>8}{self.hits[name]:>8}{self.attempts[name]:>10}{n_lost:>6}"
            )
        totals = (self.rounds.total(), self.hits.total(), self.attempts.total(), self.n_lost)
        lines.append(f"{'all':<46}{totals[0]:>8}{totals[1]:>8}{totals[2]:>10}{totals[3]:>6}")
        lines.append(
            f"{self.n_runs} runs in {len(self.seen.seals)} folders; kills: {self.assassin.by_kind()}"
        )
        lines.append(
            f"{self.assassin.n_in_write} of {self.assassin.kills.total()} kills in a write"
        )
        lines += [f"{fault}: {what}" for fault, found in self.lost.items() for what in found]
        return "\n".join(lines)

    @property
    def n_lost(self) -> int:
        return sum(map(len, self.lost.values()))

    def go_on(self, lasts: Callable[[], bool], *, kills_alone: bool = False) -> None:
        """Rounds, with a line each, as long as it lasts; then everything is looked at once more."""
        for fault in self.bag(kills_alone=kills_alone):
            if not lasts():
                break
            began = time.monotonic()
            wrong = self.round(fault)
            told = "; ".join(wrong)[:4000] or "nothing lost"
            print(f"{self.n_rounds} {fault}: {time.monotonic() - began:.0f} s, {told}", flush=True)
            if self.n_rounds % TABLE_EVERY == 0:
                print(self.table(), flush=True)
        changed = self.seen.changed()
        if changed:
            self.lost.setdefault("all", []).append(f"replaced: {changed}")

    def end(self) -> None:
        self.seen.end()
        self.disk.give_back()

    def matrix(self, name: str, place: Path, results: Path, way: Way) -> Matrix:
        fake = {"FAULT_LOOP": self.mark, "FAKE_STEP_S": "0.02", **way.fake}
        matrix = Matrix(place, results=results, **fake)
        content = yaml.safe_load(EXPERIMENT) | {"name": name, "seeds": self.n_seeds}
        content["set"] |= {"optim.adam_eps": 1e-10 + self.n_rounds * 1e-14}  # a question of its own
        matrix.file = place / f"{name}.yaml"
        matrix.file.write_text(yaml.safe_dump(content))
        return matrix


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_loop", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="how long")
    parser.add_argument("--kills", type=int, default=0, help="SIGKILLs alone, so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the draw")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="fault-loop-"))
    os.environ["XDG_STATE_HOME"] = str(place / "state")  # the marks of launches are its own
    print(f"seed {options.seed}, in {place}", flush=True)
    loop = FaultLoop(place, options.seed)
    if not loop.disk.own:
        print("no disk of its own can be mounted here: it is never full, never read-only")
    end = time.monotonic() + options.hours * 3600
    try:
        loop.go_on(
            lambda: loop.assassin.kills.total() < options.kills or time.monotonic() < end,
            kills_alone=options.kills > 0 and not options.hours,
        )
        print(f"\n{loop.table()}", flush=True)
    finally:
        loop.end()
    if not loop.lost:
        shutil.rmtree(place)
    return int(bool(loop.lost))


if __name__ == "__main__":
    sys.exit(main())
