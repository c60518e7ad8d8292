"""Schedules against the formulas, change points and recorded values of the records."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.optim.schedule import (
    last_tied_step,
    lr_factor,
    muon_momentum,
    next_token_weights,
    passed_fractions,
    prefix_weight,
    rate_step,
    stage_at,
    stage_starts,
    stages_passed,
    window_tokens,
)

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
RECORDS = sorted(path.stem for path in GOLDEN.glob("r*.json"))
WINDOW_KIND = {"r12": "token", "r14": "token", "r15": "clipped", "r17": "block", "r18": "block"}
WARMUP = {"r14": "tokens", "r15": "tokens", "r17": "tokens", "r18": "blocks"}


def recorded(record: str) -> tuple[dict, dict[str, np.ndarray]]:
    with np.load(GOLDEN / f"{record}.npz") as arrays:
        return json.loads((GOLDEN / f"{record}.json").read_text()), dict(arrays)


@pytest.mark.parametrize("record", RECORDS)
def test_rates_are_those_of_the_record(record: str) -> None:
    facts, arrays = recorded(record)
    config = facts["config"]
    expected = np.array(
        [
            [
                group["base_lr"]
                * lr_factor(
                    step,
                    steps=config["num_iterations"],
                    cooldown_steps=config["decay_iterations"],
                    cooldown_frac=config["cooldown_frac"],
                )
                for group in facts["optimizer_groups"]
            ]
            for step in range(config["num_iterations"])
        ]
    )
    np.testing.assert_array_equal(
        expected.astype(arrays["schedule/lr"].dtype), arrays["schedule/lr"]
    )


@pytest.mark.parametrize("record", RECORDS)
def test_momentum_is_that_of_the_record(record: str) -> None:
    facts, arrays = recorded(record)
    config = facts["config"]
    warmup = config["momentum_warmup_steps"] or 0
    expected = np.array(
        [
            muon_momentum(step, end=0.95, warmup_steps=warmup)
            for step in range(config["num_iterations"])
        ]
    )
    np.testing.assert_array_equal(
        expected.astype(arrays["schedule/muon_momentum"].dtype), arrays["schedule/muon_momentum"]
    )


@pytest.mark.parametrize("record", WINDOW_KIND)
def test_window_is_that_of_the_record(record: str) -> None:
    facts, arrays = recorded(record)
    config, kind = facts["config"], WINDOW_KIND[record]
    warmup = WARMUP[record] if config["window_end_tokens"] else None
    end = config["window_end_tokens"] or config["window_fixed_tokens"]
    steps = config["num_iterations"]
    windows = [
        window_tokens(step, steps=steps, end=end, kind=kind, warmup=warmup)
        for step in range(steps + 1)
    ]
    np.testing.assert_array_equal(windows, arrays["schedule/window"])


def change_points(steps: int, kind: str, warmup: str = "tokens") -> list[tuple[int, int]]:
    """(step, new window), for every step whose window is not that of the step before."""
    windows = [
        window_tokens(step, steps=steps, end=1792, kind=kind, warmup=warmup)
        for step in range(steps + 1)
    ]
    return [(step, new) for step, (old, new) in enumerate(pairwise(windows), start=1) if new != old]


@pytest.mark.parametrize(
    ("steps", "at"),
    [  # ladder 5.7: records 16, 17, 18
        (1480, [110, 220, 329, 439, 549, 658, 768, 878, 987, 1097, 1206, 1316, 1426]),
        (1490, [111, 221, 332, 442, 552, 663, 773, 883, 994, 1104, 1215, 1325, 1435]),
        (1390, [103, 206, 309, 412, 515, 618, 721, 824, 927, 1030, 1133, 1236, 1339]),
    ],
)
def test_block_window_changes_at_the_published_steps(steps: int, at: list[int]) -> None:
    for warmup in ("tokens", "blocks"):
        assert change_points(steps, "block", warmup) == list(zip(at, range(2, 15)))
        assert window_tokens(0, steps=steps, end=1792, kind="block", warmup=warmup) == 1


@pytest.mark.parametrize("end", [448, 512, 640, 1024, 1792])
def test_block_windows_are_the_scripts_own_to_the_last_rounding(end: int) -> None:
    """At a boundary floating-point order decides; integers would be right at other steps (12 steps to 1792: step 8)."""
    for steps in range(8, 25):
        for step in range(steps + 1):
            f = step / steps
            for warmup, script in {
                "tokens": int(((1 - f) * 64 + f * end + 64) // 128),
                "blocks": int(((1 - f) * 128 + f * (end + 64)) // 128),
            }.items():
                assert (
                    window_tokens(step, steps=steps, end=end, kind="block", warmup=warmup) == script
                )
    assert window_tokens(8, steps=12, end=1792, kind="block", warmup="tokens") == 9


@pytest.mark.parametrize(
    ("steps", "kind", "first"),
    [
        (1750, "token", [65, 130, 195]),
        (1530, "token", [57, 114, 170, 227]),
        (1480, "clipped", [55, 110, 165, 220]),
    ],
)
def test_token_window_changes_at_the_published_steps(
    steps: int, kind: str, first: list[int]
) -> None:
    points = change_points(steps, kind)
    assert points[: len(first)] == list(zip(first, range(128, 1793, 64)))
    assert points[-1] == (steps, 1792)
    if steps == 1750:
        assert points[-2] == (1686, 1728)


@pytest.mark.parametrize("step", [0, 700, 1480])
def test_without_warmup_the_window_is_constant(step: int) -> None:
    for kind, expected in {"token": 1000, "clipped": 1000, "block": 7}.items():
        assert window_tokens(step, steps=1480, end=1000, kind=kind, warmup=None) == expected


# records 2, 3, 8, 9, 12: steps, warm-up, cooldown, first decayed step (ladder 1E)
@pytest.mark.parametrize(
    ("steps", "warmup", "cooldown", "first_decayed"),
    [
        (9536, 256, 2048, 7489),
        (7000, 250, 2000, 5001),
        (4578, 0, 1308, 3271),
        (3200, 0, 914, 2287),
        (1875, 0, 562, 1314),
    ],
)
def test_rate_warms_up_holds_and_cools_down(
    steps: int, warmup: int, cooldown: int, first_decayed: int
) -> None:
    factors = [
        lr_factor(step, steps=steps, warmup_steps=warmup, cooldown_steps=cooldown)
        for step in range(steps)
    ]
    assert factors[:warmup] == [(step + 1) / warmup for step in range(warmup)]
    assert factors[warmup:first_decayed] == [1.0] * (first_decayed - warmup)
    assert factors[first_decayed:] == [
        (steps - step) / cooldown for step in range(first_decayed, steps)
    ]
    assert factors[-1] == 1 / cooldown


def test_cooldown_by_fraction_is_record_18s_formula() -> None:
    factors = [lr_factor(step, steps=1390, cooldown_frac=0.4) for step in range(1390)]
    assert factors == [
        1.0 if 1 - step / 1390 >= 0.4 else (1 - step / 1390) / 0.4 for step in range(1390)
    ]
    assert next(step for step, factor in enumerate(factors) if factor < 1) == 835
    assert factors[-1] == pytest.approx(1 / 556)


def test_cooldown_ends_at_its_floor_which_leaves_the_rest_alone() -> None:
    plain = [lr_factor(step, steps=100, warmup_steps=10, cooldown_steps=40) for step in range(101)]
    floored = [
        lr_factor(step, steps=100, warmup_steps=10, cooldown_steps=40, floor=0.1)
        for step in range(101)
    ]
    assert floored[:61] == plain[:61]
    assert floored[61:] == pytest.approx([w + (1 - w) * 0.1 for w in plain[61:]])
    assert floored[100] == pytest.approx(0.1)
    assert plain[100] == 0


def test_without_cooldown_the_rate_is_constant() -> None:
    assert {lr_factor(step, steps=10) for step in range(11)} == {1.0}
    assert lr_factor(0, steps=4, cooldown_steps=8) == 0.5, "a longer one began before the run"


def test_two_cooldowns_are_a_programming_error() -> None:
    with pytest.raises(AssertionError):
        lr_factor(0, steps=10, cooldown_steps=3, cooldown_frac=0.4)


def test_momentum_rises_linearly_and_stays() -> None:
    values = [muon_momentum(step, end=0.95, warmup_steps=500) for step in range(600)]
    assert values[0] == 0.85
    assert values[250] == pytest.approx(0.9)
    assert set(values[500:]) == {0.95}
    assert {muon_momentum(step, end=0.9, warmup_steps=0) for step in range(5)} == {0.9}


def test_the_momentum_falls_back_over_the_last_updates() -> None:
    """From the update after steps - cooldown_steps on, towards where its warm-up began."""
    momenta = [
        muon_momentum(step, end=0.95, warmup_steps=300, steps=1000, cooldown_steps=50)
        for step in range(1000)
    ]
    assert momenta[0] == 0.85
    assert set(momenta[300:951]) == {0.95}
    np.testing.assert_allclose(momenta[951:], 0.95 - 0.1 * np.arange(1, 50) / 50, atol=1e-12)


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize(
    ("rounding", "starts", "passed"),
    [
        ("nearest", [0, 2, 5, 8], {0: 0.0, 1: 0.5, 2: 1.0, 4: 1 + 2 / 3, 9: 3.5, 10: 4.0, 99: 4.0}),
        ("next", [0, 3, 5, 8], {0: 0.0, 1: 0.4, 3: 1.2, 5: 2.0, 9: 3.6, 10: 4.0, 99: 4.0}),
        ("next_of_one_more", [0, 3, 6, 9], {0: 0.0, 1: 0.4, 3: 1.2, 9: 3.6, 10: 4.0, 99: 4.0}),
    ],
)
def test_four_stages_of_ten_updates_begin_and_pass(
    rounding: str, starts: list[int], passed: dict[int, float]
) -> None:
    assert stage_starts(10, 4, rounding) == starts
    assert stage_starts(11, 4, "next_of_one_more") == [0, 3, 6, 9]
    found = {step: stages_passed(step, steps=10, n_stages=4, rounding=rounding) for step in passed}
    assert found == pytest.approx(passed)
    stages = [sum(start <= step for start in starts) - 1 for step in range(12)]
    assert [stage_at(step, starts) for step in range(12)] == stages
    assert stage_at(1, [2, 5]) == 0, "before all it is the first"


@pytest.mark.parametrize(
    ("n_stages", "hundredths", "changes"),
    [
        # of 900 updates 1/3 and 2/3 are 300 and 600; 0.33 and 0.66 are 297 and 594
        (3, False, {0: 0, 300: 0, 301: 1, 600: 1, 601: 2}),
        (3, True, {297: 0, 298: 1, 594: 1, 595: 2}),
        (4, True, {225: 0, 226: 1, 450: 1, 451: 2, 675: 2, 676: 3}),
    ],
)
def test_a_fraction_has_passed_at_the_first_update_after_it(
    n_stages: int, hundredths: bool, changes: dict[int, int]
) -> None:
    found = {
        step: passed_fractions(step, steps=900, n_stages=n_stages, hundredths=hundredths)
        for step in changes
    }
    assert found == changes


def test_in_an_extension_rates_stay_or_go_on_cooling() -> None:
    def at(step: int, form: str) -> tuple[float, int]:
        return rate_step(step, steps=110, extension_steps=10, form=form)

    assert [at(step, "cooling") for step in (0, 100, 110)] == [(0, 110), (100, 110), (110, 110)]
    assert [at(step, "floor") for step in (99, 100, 110)] == [(99, 100), (100, 100), (100, 100)]
    assert [at(step, "almost_floor") for step in (99, 100)] == [(99, 100), (99.99, 100)]


def test_further_tokens_weigh_less_one_stage_after_another() -> None:
    full = (1.0, 0.5, 0.25)
    weights = {passed: next_token_weights(passed, full) for passed in (0, 0.5, 1, 1.5, 2, 9)}
    assert weights == {
        **{0: full, 0.5: (1.0, 0.5, 0.125), 1: (1.0, 0.5), 1.5: (1.0, 0.25)},
        **{2: (1.0,), 9: (1.0,)},
    }
    assert next_token_weights(0, (1.0, 0.0)) == (1.0,)
    prefixes = [prefix_weight(passed, 0.5) for passed in (0, 1, 1.5, 2, 3)]
    assert prefixes == [0.5, 0.5, 0.25, 0.0, 0.0]


def test_a_cooldown_of_whole_updates_begins_at_one_and_its_peak_is_as_said() -> None:
    """Of 0.35 of ten updates those from the sixth on, which is 6.5 rounded down: four of them."""
    fields = {"steps": 10, "cooldown_frac": 0.35, "floor": 0.1, "peak": 2.0}
    whole = [lr_factor(step, whole_updates=True, **fields) for step in (0, 6, 7, 9, 10, 11)]
    assert whole == pytest.approx([2.0, 2.0, 1.525, 0.575, 0.1, 0.1])
    plain = [lr_factor(step, **fields) for step in (6, 7, 10, 11)]
    assert plain == pytest.approx([2.0, 2 * 6 / 7 + 0.1 / 7, 0.1, 0.1])
    warm = [lr_factor(step, steps=10, warmup_steps=4, peak=2.0) for step in range(5)]
    assert warm == [0.5, 1.0, 1.5, 2.0, 2.0]


@pytest.mark.parametrize(
    ("rounding", "ends", "every", "last"),
    [
        ("next", "after_adam", 1, 34),
        ("next", "after_adam", 2, 35),
        ("next", "after_adam", 3, 35),
        ("next", "after_adam", 7, 34),
        ("nearest", "after_adam", 1, 33),
        ("next", "before_pass", 2, 33),
        ("nearest", "before_pass", 2, 32),
    ],
)
def test_the_last_update_as_one_follows_the_share_of_all(
    rounding: str, ends: str, every: int, last: int
) -> None:
    found = last_tied_step(100, until=1 / 3, every=every, rounding=rounding, ends=ends)
    assert found == last


@pytest.mark.parametrize(
    ("step", "blocks"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (9, 5), (10, 5)]
)
def test_a_window_that_is_rounded_up_has_a_block_at_least(step: int, blocks: int) -> None:
    """From nothing to 640 tokens over ten updates."""
    form = {"kind": "block", "warmup": "next_block"}
    assert window_tokens(step, steps=10, end=640, **form) == blocks
