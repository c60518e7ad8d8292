"""What looks at a question leave behind: which results count beside the plan's own, and which arms are not judged."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.run.ledger import Ledger, Look, Seen, claims_of
from harness.run.plan import Lock, Plan, PlanArm, PlanRun, SeedsRule
from harness.run.stream import place_of
from reports.inputs.memory import CHOOSES, Memory, remember

ARMS = ("base", "a", "b")


def plan_of(*seeds: int, arms: Sequence[str] = ARMS[:2], **how: Any) -> Plan:
    """One run of every arm and seed, named by them; its block is its place among the seeds."""
    runs = []
    for block, seed in enumerate(seeds):
        for arm in arms:
            run = f"{arm}{seed}"
            runs.append(
                PlanRun(
                    arm=arm,
                    seed=seed,
                    replicate=0,
                    budget=100,
                    role="loss",
                    block=block,
                    run_id=run,
                    intent_id=f"i-{run}",
                )
            )
    rows = tuple(PlanArm(name=arm, of=arm, fields={"x": arm}) for arm in arms)
    return Plan(name="mine", baseline="base", arms=rows, seeds=seeds, runs=tuple(runs), **how)


def value(arm: str, seed: int) -> float:
    return 3.0 + ARMS.index(arm) / 10 + seed / 100


def look(at: int, plan: Plan, *, seeds: Sequence[int] | None = None, **how: Any) -> Look:
    """A look at all of a plan's runs, or at those of some seeds, in the hour `at`."""
    claims = claims_of(plan)
    seen = []
    for run in plan.runs:
        if seeds is None or run.seed in seeds:
            assert run.seed is not None
            seen.append(
                Seen(
                    claim=claims[run.arm],
                    seed=run.seed,
                    intent_id=run.intent_id,
                    run_id=run.run_id,
                    val_loss=value(run.arm, run.seed),
                    train_time_s=1.0,
                )
            )
    usual: dict[str, Any] = {
        "at": f"2026-01-01T{at:02}:00:00.000+00:00",
        "by": "compare",
        "experiment": plan.name,
        "confirm": plan.confirm,
        "baseline": claims[plan.baseline],
        "arms": {claim: arm for arm, claim in claims.items() if arm != plan.baseline},
        "seeds": plan.seeds,
        "results": tuple(seen),
    }
    return Look(**usual | how)


class Folder:
    """A results folder whose runs have the values that were seen, unless they are another or gone."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.gone: set[str] = set()
        self.other: set[str] = set()
        self.taken: dict[str, str] = {}
        for arm in ARMS:
            for seed in range(12):
                self.write(f"{arm}{seed}")

    def write(self, run: str, **how: Any) -> None:
        config = {"budget": 100, "role": "loss", "replicate": 0, "source": {"digest": "c"}} | how
        (self.runs / run).mkdir(parents=True, exist_ok=True)
        (self.runs / run / "config.yaml").write_text(yaml.safe_dump(config))

    def value_of(self, run: str) -> tuple[float | None] | None:
        if run in self.gone:
            return None
        return (value(run.rstrip("0123456789"), int(run.lstrip("base"))) + (run in self.other),)

    def remember(self, plan: Plan, *looks: Look) -> tuple[Memory, Plan]:
        ledger = Ledger(looks=looks, gone=self.taken)
        return remember(plan, ledger, self.runs, self.value_of)

    def added(self, plan: Plan, *looks: Look) -> list[str]:
        """The runs that count beside the plan's own."""
        return [run.run_id for run in self.remember(plan, *looks)[1].runs[len(plan.runs) :]]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("family", "n", "share", "level"),
    [(0, 3, 1.0, 0.95), (8, 2, 0.25, 0.9875), (4, 4, 1.0, 0.95), (2, 4, 1.0, 0.95)],
)
def test_changes_have_their_share_of_the_error_of_their_family(
    family: int, n: int, share: float, level: float
) -> None:
    memory = Memory(family=family)
    assert memory.share(n) == share
    assert memory.level(0.95, n) == pytest.approx(level)
    assert Memory.from_mapping(memory.to_mapping()) == memory


def test_what_was_seen_as_planned_changes_nothing(folder: Folder) -> None:
    plan = plan_of(0, 1, 2)
    assert folder.remember(plan) == (Memory(), plan)
    assert folder.remember(plan, look(1, plan, seeds=[0]), look(2, plan)) == (
        Memory(family=1),
        plan,
    )
    for at in (2, 3):
        other = look(at, plan_of(0, 1, 2, 3), experiment="other")
        assert folder.remember(plan, look(2, plan), other) == (Memory(family=1), plan)


def test_other_seeds_that_were_seen_before_count_where_an_arm_had_them(folder: Folder) -> None:
    plan = plan_of(0, 1)
    before = look(1, plan_of(0, 1, 5, 6))
    only_base = replace(before, results=tuple(s for s in before.results if s.seed != 6 or s == before.results[6]))  # fmt: skip
    for looks in ((before,), (before, look(2, plan))):
        memory, whole = folder.remember(plan, *looks)
        assert memory.changed and not memory.lost
        assert whole.seeds == (0, 1, 5, 6)
        assert [run.run_id for run in whole.runs[4:]] == ["base5", "a5", "base6", "a6"]
        assert [run.block for run in whole.runs[4:]] == [7, 7, 8, 8]  # none that the plan has
        (note,) = memory.notes
        assert "(mine; 4 seeds from 2026-01-01T01:00 on)" in note
    assert folder.added(plan, only_base) == ["base5", "a5"]
    bare = replace(plan, runs=tuple(replace(run, block=None) for run in plan.runs))
    _, whole = folder.remember(bare, only_base)
    assert [run.block for run in whole.runs[4:]] == [6, 6]


def test_a_run_of_another_length_role_or_code_does_not_count(folder: Folder) -> None:
    plan, before = plan_of(0), look(1, plan_of(0, 5))
    assert folder.added(plan, before) == ["base5", "a5"]
    for how, told in (
        ({"budget": 90}, False),
        ({"role": "timing"}, False),
        ({"source": {"digest": "d"}}, True),
        ({"source": {"digest": "b"}}, True),
    ):
        folder.write("a5", **how)
        memory, whole = folder.remember(plan, before)
        assert whole.runs == plan.runs
        assert any("1 result of these arms was" in note for note in memory.notes) == told, how


@pytest.mark.parametrize("how", [{"budget": 90}, {"role": "timing"}])
def test_behind_results_of_another_length_or_role_those_of_this_one_count(
    folder: Folder, how: dict[str, Any]
) -> None:
    for run in ("base5", "a5"):
        folder.write(run, **how)
    assert folder.added(plan_of(0), look(1, plan_of(0, 5, 6))) == ["base6", "a6"]


@pytest.mark.parametrize(
    ("older", "gone", "n_other"),
    [((), set(), 1), ((), {"a10"}, 1), (("a1",), set(), 1), (("a1",), {"a10"}, 0)],
)
def test_a_result_of_other_code_counts_while_it_stands_for_a_run_that_is_not_made(
    folder: Folder, older: tuple[str, ...], gone: set[str], n_other: int
) -> None:
    seen = plan_of(0, 1)
    *runs, last = seen.runs
    plan = replace(seen, runs=(*runs, replace(last, run_id="a10", older=older)))
    folder.gone = gone
    told = ["Beside the runs here, 1 result of these arms was seen under other code: not counted."]
    assert [*folder.remember(plan, look(1, seen))[0].notes] == told * n_other


def test_the_code_of_an_arm_is_that_of_its_first_run_that_recorded_one(folder: Folder) -> None:
    plan, before = plan_of(0, 1), look(1, plan_of(0, 1, 5))
    (folder.runs / "a0" / "config.yaml").unlink()
    folder.write("a1", source={"digest": "d"})
    folder.write("a5", source={"digest": "d"})
    assert folder.added(plan, before) == ["base5", "a5"]
    folder.write("b1", source={"digest": "e"})
    folder.write("b5", source={"digest": "e"})
    plans = [plan_of(*seeds, arms=ARMS) for seeds in ((0, 1), (0, 1, 5))]
    (folder.runs / "b0" / "config.yaml").unlink()
    assert folder.added(plans[0], look(1, plans[1])) == ["base5", "a5", "b5"]
    (folder.runs / "a1" / "config.yaml").unlink()  # none of its own: that of the others
    folder.write("a5")
    assert folder.added(plan, before) == ["base5", "a5"]


def test_what_a_rule_of_its_own_added_is_no_other_plan(folder: Folder) -> None:
    rule = SeedsRule(least=1, most=9, stop={})
    plan = plan_of(0, 1, 2, seeds_rule=rule)
    assert not folder.remember(plan, look(1, plan_of(0, 1)))[0].changed
    for other in (
        look(1, plan_of(1, 0)),  # no beginning of these seeds
        look(1, plan_of(0, 1), experiment="other"),
        look(1, plan_of(0, 1), experiment="first"),
    ):
        assert folder.remember(plan, other)[0].changed
    assert folder.remember(replace(plan, seeds_rule=None), look(1, plan_of(0, 1)))[0].changed


@pytest.mark.parametrize(
    ("gone", "lost", "how"),
    [
        ({"a2"}, "", ""),  # the last of them: those before it are a sequence
        ({"a1"}, "seed 1", ""),
        ({"base0"}, "seed 0", " (clean, 2026)"),
        ({"a1", "base2"}, "seeds 1, 2", ""),
        ({"a0", "a1", "a2"}, "", ""),
    ],
)
def test_results_that_are_gone_from_between_leave_an_arm_unjudged(
    folder: Folder, gone: set[str], lost: str, how: str
) -> None:
    plan = plan_of(0, 1, 2)
    folder.gone = gone
    if how:
        folder.taken = {"base0": "clean, 2026"}
    before = look(1, plan)
    left = [2] if lost == "seeds 1, 2" else []
    if left:  # another seed after them
        plan, before = plan_of(0, 1, 2, 3), look(1, plan_of(0, 1, 2, 3))
    memory, _ = folder.remember(plan, before)
    why = f"the results at {lost} were seen and are gone{how}; ask again on fresh seeds"
    assert dict(memory.lost) == ({"a": why} if lost else {})
    assert memory.changed


def test_results_are_gone_from_between_where_one_that_was_seen_at_another_seed_is_behind(
    folder: Folder,
) -> None:
    folder.gone = {"a1"}
    assert "seed 1 were" in folder.remember(plan_of(0, 1), look(1, plan_of(0, 1, 5)))[0].lost["a"]


def test_a_result_of_the_baseline_at_a_seed_that_no_arm_had_may_go(folder: Folder) -> None:
    before = look(1, plan_of(0))
    folder.gone = {"base0"}
    alone = replace(before, results=before.results[:1])
    assert folder.remember(plan_of(3, 4), alone)[0].lost == {}
    assert [*folder.remember(plan_of(0, 4), alone)[0].lost] == ["a"]


def test_results_that_are_other_ones_leave_their_arm_unjudged_or_all_if_the_baselines(
    folder: Folder,
) -> None:
    plan = plan_of(0, 1, arms=ARMS)
    folder.other = {"b1"}
    assert folder.remember(plan, look(1, plan))[0].lost == {
        "b": "the results at seed 1 are other ones than were seen; ask again on fresh seeds"
    }
    folder.other = {"base1"}
    assert set(folder.remember(plan, look(1, plan))[0].lost) == {"a", "b"}


def test_seeds_that_were_picked_by_their_baseline_judge_nothing(
    folder: Folder, kept_line: Callable[[str], None]
) -> None:
    """Seeds 0 to 4 of the baseline were seen before the plan; those left out before others count as picked."""
    seen = look(1, plan_of(0, 1, 2, 3, 4), arms={"other": "other"})
    baseline = replace(seen, results=tuple(s for s in seen.results if s.claim == seen.baseline))
    locks = (Lock(locked="2026-01-01T02", digest="", plan={}),)

    def lost(*seeds: int, locks: Any = locks) -> Any:
        return folder.remember(plan_of(*seeds, locks=locks), baseline)[0].lost

    kept_line(lost(1, 3)["a"])
    assert lost(0, 1, 2) == {} and lost(7, 8) == {}
    assert "at seed 0 were seen" in lost(1)["a"]
    early = (Lock(locked="2026-01-01T00", digest="", plan={}), *locks)
    assert lost(1, 3, locks=early) == {}
    assert "at seeds 0, 2 were" in lost(1, 3, locks=())["a"]
    whole = look(1, plan_of(0, 1, 2, 3, 4, arms=ARMS))
    arms = tuple(s for s in whole.results if s.claim != whole.baseline)
    folder.gone = {f"{arm}{seed}" for arm in ARMS for seed in (0, 2)}
    for results, why in ((whole.results, "are left out"), (arms, "were seen and are gone")):
        memory, _ = folder.remember(plan_of(1, 3, arms=ARMS), replace(whole, results=results))
        assert [arm for arm, said in memory.lost.items() if why in said] == ["a", "b"]


def test_a_confirmation_is_none_where_its_seeds_were_seen_before_its_lock(
    folder: Folder, kept_line: Callable[[str], None]
) -> None:
    locks = (Lock(locked="2026-01-01T02", digest="", plan={}),)
    plan = plan_of(1000, 1001, confirm=True, locks=locks)
    before = look(1, replace(plan, name="first", confirm=False))
    memory, whole = folder.remember(plan, replace(before, results=before.results[:3]))
    assert not whole.confirm
    (note,) = memory.notes
    kept_line(note)
    after = look(3, replace(plan, confirm=False))
    assert folder.remember(plan, after) == (Memory(family=1), plan)
    others = look(1, plan_of(0, 1))
    assert folder.remember(plan, others)[1].confirm
    unlocked = replace(plan, locks=())
    assert folder.remember(unlocked, look(1, plan)) == (Memory(family=1), unlocked)
    explored = replace(plan, confirm=False)
    assert folder.remember(explored, look(1, explored)) == (Memory(family=1), explored)


def test_every_change_that_was_asked_about_a_baseline_is_of_its_family(
    folder: Folder, kept_line: Callable[[str], None]
) -> None:
    plan = plan_of(0, 1)
    other = look(1, plan_of(0, 1, arms=("base", "b")), experiment="first")
    memory, _ = folder.remember(plan, other)
    assert (memory.family, memory.changed) == (2, False)
    (note,) = memory.notes
    kept_line(note)
    elsewhere = replace(other, baseline="another")
    assert folder.remember(plan, elsewhere)[0] == Memory(family=1)
    both = plan_of(0, 1, arms=ARMS)
    assert folder.remember(both, other, look(2, both))[0] == Memory(family=2)
    third = replace(look(0, plan, experiment="third"), arms={"c": "c"})  # was asked before all
    memory, _ = folder.remember(both, other, third, look(2, both))
    assert memory.family == 3 and "these 2 hold for all 3 at once" in memory.notes[0]
    assert memory.notes[0].endswith("with a chance of up to 9%: confirm what pleased.")


def test_a_candidate_of_a_stream_is_judged_at_its_part(
    folder: Folder, kept_line: Callable[[str], None]
) -> None:
    plan = plan_of(0, stream=place_of("daily", 3, 1))
    assert plan.stream is not None
    for looks in ((), (look(1, plan),)):
        memory, _ = folder.remember(plan, *looks)
        assert memory.family == plan.stream.parts > 1
        assert len(memory.notes) == 1
    kept_line(memory.notes[0])


@pytest.mark.parametrize("how", [{"imported": True}, {"evidence": "above"}])
def test_of_what_was_not_made_here_nothing_is_remembered(
    folder: Folder, how: dict[str, Any]
) -> None:
    plan = plan_of(0, 1, **how)
    assert folder.remember(plan, look(1, plan_of(0, 1, 5))) == (Memory(), plan)


def test_runs_that_choose_among_their_arms_judge_none() -> None:
    plan: Any = replace(plan_of(0, arms=ARMS), halving=object())
    assert Memory().of_plan(plan).lost == {"a": CHOOSES, "b": CHOOSES}
    assert Memory(family=2).of_plan(plan_of(0)) == Memory(family=2)


def test_what_was_explored_and_what_confirmed_it_know_of_one_another(folder: Folder) -> None:
    explored, fresh = plan_of(0, 1), replace(plan_of(10, 11), name="mine_confirm", confirm=True)
    other = plan_of(10, 11, arms=("base", "b"), confirm=True)
    sweep = replace(explored, name="mine.grid")
    looks = [look(1, explored), look(2, sweep), look(3, fresh), look(4, fresh)]
    assert folder.remember(explored, *looks)[0].confirmed_by == ("mine_confirm",)
    assert folder.remember(explored, *looks)[0].confirms == ()
    memory = folder.remember(fresh, *looks)[0]
    assert (memory.confirmed_by, memory.confirms) == ((), ("mine",)), "a grid chooses rates alone"
    assert folder.remember(sweep, *looks)[0].confirmed_by == ()
    alone = folder.remember(explored, look(1, explored), look(2, other))[0]
    assert alone.confirmed_by == (), "another change was asked about"
    assert Memory.from_mapping(memory.to_mapping()) == memory
