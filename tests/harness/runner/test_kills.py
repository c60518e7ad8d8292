"""SIGKILL at random moments loses nothing, repeats nothing, leaves nothing half-written: the exported table is the same."""

from collections import deque
from pathlib import Path

import pytest

from tests.assassin import VICTIMS, Assassin
from tests.fake_matrix import Matrix, ablate

SEED = 20261121
GROUPED = ("--gpus-per-run", "2", "--set", "data.ranks=2", "--set", "data.micro_tokens=256")
WAYS = {  # how runs are made -> options, the longest wait for the next kill, who is there beside the runner
    "warm": ((), 0.4, ("worker",), {}),
    "fresh": (("--worker", "fresh"), 0.4, ("parent", "fork"), {}),
    "group": (GROUPED, 6.0, ("rank",), {"FAKE_STEP_S": "0.02"}),
}


def check_kills(folder: Path, n_kills: int, kinds: tuple[str, ...], seed: int) -> None:
    """The victims are drawn evenly; runners, and some of the workers, in every way in which runs are made."""
    assassin = Assassin(seed)
    victims: dict[str, deque[str]] = {way: deque() for way in WAYS}
    ways = [way for way, (_, _, there, _) in WAYS.items() if set(there) & set(kinds)]
    for i in range(n_kills):
        kind = kinds[i % len(kinds)]
        own = [way for way in ways if kind in WAYS[way][2]]
        in_group = "group" in ways and kind == "worker" and assassin.rng.random() < 0.1
        victims["group" if in_group else assassin.rng.choice(own or ways)].append(kind)
    for way in ways:
        options, span_s, _, fake = WAYS[way]
        assassin.rng.shuffle(victims[way])
        (folder / way).mkdir()
        calm = Matrix(folder / way, n_seeds=6)
        assert calm.run(*options)[0] == 0
        while victims[way]:
            place = folder / f"{way}{assassin.kills.total()}"
            place.mkdir()
            matrix = Matrix(place, n_seeds=6, KILL_IN_WRITE=str(place / "kill_in_write"), **fake)
            assassin.hunt(way, matrix, victims[way], options, span_s)
            assert matrix.table() == calm.table(), assassin.log
            assert set(matrix.statuses().values()) == {"finished"}
            code, out, _ = matrix.run(*options)
            assert (code, "everything is finished" in out) == (0, True)
            assert matrix.table() == calm.table()
            assert ablate(matrix, "clean", "attempts").code == 0
            assert matrix.trailing() == []
            assert matrix.table() == calm.table()
    print("\n".join([*assassin.log, assassin.by_kind()]))  # shown by pytest when the test fails
    assert assassin.kills.total() >= n_kills
    assert assassin.n_in_write >= n_kills / 3, assassin.log
    if "rank" in kinds:
        assert assassin.n_training >= assassin.kills["rank"] / 4, assassin.log
    fewest = 2 * n_kills / (3 * len(kinds))
    assert all(assassin.kills[kind] >= fewest for kind in kinds), assassin.by_kind()


def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 20, ("runner", "worker"), SEED)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_hundred_kills_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 100, VICTIMS, SEED + 1)
