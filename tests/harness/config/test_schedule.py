"""Stages, extension and what they give an update, against values written out here."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.config.run import RunConfig, flat, with_fields
from harness.config.scales import with_budget
from harness.config.schedule import (
    changes_stage,
    first_of_a_kind,
    longest_sequence,
    schedule_at,
    starts_of,
    tokens_trained,
    windows_at,
)
from harness.config.validate import check_config
from harness.errors import UserError


def config(**fields: Any) -> RunConfig:
    """The plain configuration with these fields of its schedule and loss: schedule__steps."""
    made = with_fields(
        RunConfig(), {name.replace("__", "."): value for name, value in fields.items()}
    )
    check_config(made)
    return made


def factors(**fields: Any) -> list[float]:
    made = config(**fields)
    return [schedule_at(made, step).lr_factor for step in range(made.schedule.steps)]


@pytest.mark.parametrize(
    ("steps", "start", "expected"),
    [
        (10, "nearest", [0, 3, 7]),
        (10, "next", [0, 4, 7]),
        (10, "next_of_one_more", [0, 4, 8]),
        (9, "next_of_one_more", [0, 4, 7]),
    ],
)
def test_a_stage_begins_at_a_whole_update(steps: int, start: str, expected: list[int]) -> None:
    made = config(schedule__steps=steps + 2, schedule__extension_steps=2, schedule__stages=3,
                  schedule__stage_start=start)  # fmt: skip
    assert starts_of(made) == expected


def test_a_half_goes_to_the_even_update() -> None:
    assert starts_of(config(schedule__steps=5, schedule__stages=2)) == [0, 2]
    assert starts_of(config(schedule__steps=7, schedule__stages=2)) == [0, 4]


PACKED = {
    "data.alignment": "packed",
    "data.loader": "global",
    "data.seq_len": 65536,
    "model.attn_mask": "document",
    "model.attn_kernel": "dense",
}
COOLED = {
    "schedule__steps": 10,
    "schedule__extension_steps": 2,
    "schedule__cooldown_frac": 0.5,
    "schedule__lr_floor": 0.1,
}


def test_the_cooldown_ends_before_the_extension_which_stays_at_its_floor() -> None:
    fall = [1 - 0.9 * k / 4 for k in range(4)]
    assert factors(**COOLED) == pytest.approx([1, 1, 1, 1, *fall, 0.1, 0.1])
    almost = factors(**COOLED, schedule__extension_rate="almost_floor")
    assert almost == pytest.approx([1, 1, 1, 1, *fall, *[0.1 + 0.9 * 0.0001 / 0.5] * 2])
    cooling = factors(**COOLED, schedule__extension_rate="cooling")
    assert cooling == pytest.approx([*[1] * 5, *(1 - 0.9 * k / 5 for k in range(5))])


def test_rates_jump_with_the_stages_and_cool_from_where_they_are() -> None:
    stages = {"schedule__stages": 2, "schedule__stage_rates": (1.0, 2.0)}
    fall = [2 * (1 - k / 4) + 0.1 * k / 4 for k in range(4)]
    assert factors(**COOLED, **stages) == pytest.approx([1, 1, 1, 1, *fall, 0.1, 0.1])
    past = factors(**COOLED, **stages, schedule__stage_rates_after="fraction")
    assert past == pytest.approx([*[1] * 5, *fall[1:], 0.1, 0.1])


def test_a_cooldown_from_an_update_on_has_whole_ones() -> None:
    fields = {"schedule__steps": 9, "schedule__cooldown_frac": 0.5}
    by_fraction = [1 - step / 9 for step in range(9)]
    assert factors(**fields) == pytest.approx([min(2 * left, 1) for left in by_fraction])
    by_update = factors(**fields, schedule__cooldown_from="update")
    assert by_update == pytest.approx([1, 1, 1, 1, *((9 - step) / 5 for step in range(4, 9))])


@pytest.mark.parametrize("start", ["nearest", "next"])
def test_weights_of_losses_fall_one_stage_after_another(start: str) -> None:
    made = config(schedule__steps=8, schedule__extension_steps=2, schedule__stages=3,
                  loss__next_tokens=(1.0, 0.5, 0.25), loss__prefix_weight=0.4,
                  schedule__stage_start=start)  # fmt: skip
    values = [schedule_at(made, step) for step in range(8)]
    assert [v.next_tokens for v in values] == [
        (1.0, 0.5, 0.25),
        (1.0, 0.5, 0.125),
        (1.0, 0.5),
        (1.0, 0.25),
        *[(1.0,)] * 4,
    ]
    assert [v.prefix_weight for v in values] == [0.4, 0.4, 0.4, 0.2, 0, 0, 0, 0]


WINDOWS = {
    **PACKED,
    "model.attn_window": "inclusive",
    "model.attn_window_layers": (0,),
    "schedule.steps": 7,
    "schedule.stages": 2,
}


@pytest.mark.parametrize(
    ("extension", "windows", "expected"),
    [
        (0, (128, 256), [128, 128, 128, 128, 256, 256, 256, 256]),
        (0, (128, 256, 512), [128, 128, 128, 128, 256, 256, 256, 512]),
        (1, (128, 256), [128, 128, 128, 256, 256, 256, 256, 256]),
        (1, (128, 256, 512), [128, 128, 128, 256, 256, 256, 512, 512]),
        (1, (128, 256, 512, 640), [128, 128, 128, 256, 256, 256, 512, 640]),
    ],
)
def test_windows_go_by_stages_the_extension_and_the_last_validation(
    extension: int, windows: tuple[int, ...], expected: list[int]
) -> None:
    fields = {**WINDOWS, "schedule.extension_steps": extension, "schedule.windows": windows}
    made = with_fields(RunConfig(), fields)
    check_config(made)
    assert [windows_at(made, step) for step in range(8)] == [(w, w // 2) for w in expected]
    short = with_fields(made, {"schedule.windows_short": (64, 96)})
    check_config(short)
    assert {windows_at(short, step)[1] for step in range(4, 8)} == {96}
    blocks = with_fields(made, {"model.attn_window": "counted"})
    assert windows_at(blocks, 7) == (windows[-1] // 128, windows[-1] // 128 // 2)


def test_a_window_that_grows_to_the_next_block_has_one_at_least() -> None:
    made = with_fields(
        RunConfig(),
        {
            **PACKED,
            "model.attn_window": "counted",
            "schedule.window_warmup": "next_block",
            "schedule.window_tokens": 1728,
            "schedule.steps": 27,
        },
    )
    check_config(made)
    expected = [max(1, -(-64 * step // 128)) for step in range(28)]
    assert [windows_at(made, step) for step in range(28)] == [(n,) for n in expected]


def test_without_stages_a_weight_falls_over_the_whole_run() -> None:
    made = config(schedule__steps=4, loss__next_tokens=(1.0, 0.5))
    assert [schedule_at(made, step).next_tokens for step in range(4)] == [
        (1.0, 0.5),
        (1.0, 0.375),
        (1.0, 0.25),
        (1.0, 0.125),
    ]


def test_scalars_rest_from_a_change_of_the_long_window_or_the_batch() -> None:
    made = with_fields(
        RunConfig(),
        {
            **PACKED,
            **WINDOWS,
            "schedule.steps": 12,
            "schedule.stages": 4,
            "schedule.windows": (128, 256, 256, 256),
            "schedule.windows_short": (64, 64, 128, 128),
            "schedule.batch_growth": (1, 1, 1, 2),
            "optim.scalar_freeze_steps": 2,
        },
    )
    rest = [step for step in range(12) if schedule_at(made, step).scalars_rest]
    assert rest == [3, 4, 9, 10]  # the short window alone, at 6, is no change


@pytest.mark.parametrize(
    ("steps", "until", "start", "last"),
    [
        (1840, 2 / 3, "next", 1227),  # of records 54 to 64: two thirds upwards, then odd
        (1535, 2 / 3, "nearest", 1023),  # of record 65 on: 1023.3 is nearest to 1023
        (1535, 2 / 3, "next", 1025),
        (1535, 1.0, "next", 1574),  # tied through the extension, too
    ],
)
def test_table_and_head_part_after_an_update_of_adam(
    steps: int, until: float, start: str, last: int
) -> None:
    made = with_fields(
        RunConfig(),
        {
            "schedule.steps": steps + 40,
            "schedule.extension_steps": 40,
            "schedule.stage_start": start,
            "optim.adam_every": 2,
            "optim.tie_until": until,
        },
    )
    tied = [schedule_at(made, step).tied for step in range(steps + 40)]
    assert tied == [step <= last for step in range(steps + 40)]


def test_record_53_parts_them_before_the_pass_at_that_share() -> None:
    """1253.3 upwards: the pass of update 1254 reads the copy, whether Adam acts there or not."""
    made = with_fields(
        RunConfig(),
        {
            "schedule.steps": 1920,
            "schedule.extension_steps": 40,
            "schedule.stage_start": "next",
            "optim.adam_every": 2,
            "optim.tie_until": 2 / 3,
            "optim.tie_ends": "before_pass",
        },
    )
    assert [schedule_at(made, step).tied for step in (0, 1253, 1254, 1919)] == [True] * 2 + [
        False
    ] * 2


def test_updates_of_one_kind_are_named_by_their_first_one() -> None:
    falling = config(schedule__steps=8, schedule__extension_steps=2, schedule__stages=3,
                     loss__next_tokens=(1.0, 0.5, 0.25), loss__prefix_weight=0.4)  # fmt: skip
    assert first_of_a_kind(falling) == [0, 2, 4]
    grown = {**PACKED, "schedule.steps": 12, "schedule.extension_steps": 3, "schedule.stages": 3}
    made = with_fields(RunConfig(), {**grown, "schedule.batch_growth": (1, 2, 1)})
    assert first_of_a_kind(made) == [0, 3]
    assert [changes_stage(made, step) for step in (0, 2, 3, 4, 6, 9)] == [
        *(False, False, True, False, True, False),
    ]
    assert first_of_a_kind(config(schedule__steps=4, loss__prefix_weight=0.4)) == [0]
    last = with_fields(made, {"schedule.batch_growth": (1, 2, 3)})
    assert first_of_a_kind(last) == [0, 3, 6]
    assert tokens_trained(last, range(2, 7)) == made.data.batch_tokens * (1 + 3 * 2 + 3)
    assert tokens_trained(config(), range(2, 7)) == 5 * made.data.batch_tokens


@pytest.mark.parametrize(
    ("fields", "longest"),
    [
        ({}, 1024),
        ({"schedule.batch_growth": (1, 3, 2)}, 3072),
        ({"data.val_seq_len": 2048}, 2048),
        ({"data.val_seq_len": 2048, "schedule.batch_growth": (1, 3)}, 3072),
        ({"data.val_seq_len": 512}, 1024),
    ],
)
def test_the_longest_sequence_is_of_a_grown_pass_or_of_the_validation(
    fields: dict[str, Any], longest: int
) -> None:
    assert longest_sequence(with_fields(RunConfig(), fields)) == longest


def test_a_shorter_budget_has_as_large_a_part_of_extension() -> None:
    before = flat(config(schedule__steps=400, schedule__extension_steps=40))
    after = with_budget({**before, "schedule.steps": 100}, before)
    assert after["schedule.extension_steps"] == 10


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule.steps": 4, "schedule.stages": 5}, "schedule.stages=5 do not fit into"),
        (
            {"schedule.stages": 3, "schedule.stage_rates": (1.0, 2.0)},
            "schedule.stage_rates lists 2 values, but schedule.stages is 3",
        ),
        (
            {"schedule.steps": 4, "schedule.extension_steps": 5},
            r"schedule.warmup_steps \+ schedule.cooldown_steps \+ schedule.extension_steps = 5",
        ),
        (
            {"schedule.steps": 10, "schedule.cooldown_frac": 1.0, "schedule.warmup_steps": 1},
            "schedule.warmup_steps=1 and the last",
        ),
        (
            {"schedule.stages": 2, "schedule.batch_growth": (0, 1)},
            "data.alignment to be switched on",
        ),
        (
            {**PACKED, "schedule.stages": 2, "schedule.batch_growth": (0, 1)},
            r"schedule.batch_growth=\[0, 1\] must all be greater than 0",
        ),
        (
            {**PACKED, "schedule.stages": 2, "data.max_doc_len": (64, 64, 64)},
            "data.max_doc_len lists 3 values, but schedule.stages is 2",
        ),
        ({**PACKED, "data.max_doc_len": (-1,)}, r"data.max_doc_len=\[-1\] must be greater than 0"),
        ({**PACKED, "data.max_doc_len": (0,)}, r"data.max_doc_len=\[0\] must be greater than 0"),
        (
            {**WINDOWS, "schedule.windows": (1, 2, 3, 4)},
            "schedule.windows is a list of 4, but must list those of the schedule.stages=2",
        ),
        ({**WINDOWS, "schedule.windows": (1, -2)}, r"schedule.windows=\[1, -2\] must not be"),
        ({**WINDOWS, "model.attn_window_layers": (12,)}, "attn_window_layers lists layer 12"),
        ({**WINDOWS, "schedule.windows": (1,)}, "schedule.windows is a list of 1, but"),
        (
            {**WINDOWS, "schedule.windows": (0, 64), "model.window_yarn": True},
            "model.window_yarn follows schedule.windows",
        ),
        ({"optim.scalar_freeze_steps": 3}, "scalar_freeze_steps=3 counts from a change of"),
        ({"loss.next_tokens": (1.0, 0.0)}, r"loss.next_tokens=\[1.0, 0.0\] must be greater than 0"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    fields: dict[str, Any], message: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        check_config(with_fields(RunConfig(), fields))
    kept_line(str(refused.value))
