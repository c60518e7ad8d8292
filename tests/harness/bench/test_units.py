"""Units: what the records' own functions made of their inputs, and one wrong number."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from harness.__main__ import main
from harness.bench.parity import check_unit
from harness.bench.unit import Arrays, Unit, deviation
from harness.bench.units import OTHERS, RULES, UNITS, unit_of
from harness.bench.units_bigram import exactly
from harness.bench.units_data import shards_of
from harness.bench.units_matrices import gradient_of
from harness.bench.units_model import RECORDS
from harness.bench.units_networks import (
    CHANNELS,
    Origin,
    in_tolerances,
    parts_of,
    sized,
    weight,
)
from harness.bench.units_schedule import settings_of
from harness.config.presets import preset_values, to_config
from harness.data.shards import open_shard
from harness.errors import UserError
from harness.model.coefficients import HIDDEN
from harness.model.gpt import GPT
from harness.model.tokens import Tokens

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDER = DATA / "units"
COMPARED = yaml.safe_load((DATA / "compared.yaml").read_text(encoding="utf-8"))


def test_every_unit_has_its_numbers() -> None:
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(UNITS)


@pytest.mark.parametrize("name", UNITS)
def test_a_function_of_a_record_is_reproduced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every number that it gave: none is passed over; as closely as is said of it."""
    compared: list[int] = []

    def counted(unit: Unit, arrays: Arrays) -> float:
        pairs = [*unit.pairs(arrays)]
        compared.extend((len(pairs), sum(theirs.size for theirs, _ in pairs)))
        return deviation(dataclasses.replace(unit, pairs=lambda _: iter(pairs)), arrays)

    monkeypatch.setattr("harness.bench.parity.deviation", counted)
    result = check_unit(FOLDER / f"{name}.npz")
    assert result.passed, result.deviations
    unit = UNITS[name]
    kind = "relative" if unit.relative else "absolute"
    assert [*compared, unit.bound, kind] == COMPARED[name]


EPS = {"by_dtype": float(np.finfo(np.float32).eps)}  # of a norm of fp32, by its name
WRONG = {  # unit: an array of its outcome
    "polar_express": "wide/polar_express",
    "normuon_r41": "second/attn",
    "normuon_r42": "second/mlp",
    "normuon_r43_cautious": "proj/param",
    "normuon_r48": "gate1/param",
    "muon_per_head": "qk_bank/second",
    "adam_records": "param_eps1e-08",
    "cautious_weight_decay": "adam_r53/param",
    "adam_every_second": "muon_param",
    "scalar_freeze": "param",
    "retie_untie": "embed",
    "smear": "grad/gate",
    "bigram": "hash/big",
    "backout": "grad/saved",
    "skip_gate": "gated/grad/gate",
    "logit_cap": "r54/grad",
    "attn_scale": "ve/grad/ve",
    "attn_gate": "grad/gate",
    "attn_lambda_r47": "grad/lambdas",
    "attn_lambda_r48": "grad/lambdas",
    "key_offset_r49": "grad/qkv",
    "key_offset_r62": "grad/x",
    "paired_heads": "grad/qkv",
    "paired_heads_value": "grad/ve",
    "xsa_r82": "grad/alpha",
    "xsa_r86": "grad/gate",
    "dc_mha": "grad/dc1",
    "dc_correction": "grad/w1_raw",
    "mudd_coef": "grad/w2",
    "value_gate_r55": "grad/value_gate",
    "value_gate_r70": "grad/value_gate",
    "r20_forward": "stream",
    "r21_forward": "loss",
    "r28_forward": "grad_norm",
    "r32_forward": "stream",
    "r35_forward": "grad_norm",
    "r40_forward": "stream",
    "r49_forward": "loss",
    "r51_forward": "stream",
    "r58_forward": "grad_norm",
    "r62_forward": "grad_norm",
    "r70_forward": "stream",
    "r77_forward": "loss",
    "r80_forward": "grad_norm",
    "r82_forward": "stream",
    "r85_forward": "grad_norm",
    "window_long_short": "short/n6",
    "yarn": "paired/rotated3",
    "vo_init": "out/o",
    "fp8_head": "r51/gx_row0",
    "window_yarn": "scale2",
    "window_schedule": "r42/window_short",
    "batch_size_schedule": "r74/split_step",
    "bos_starts_r26": "shard_pos_span_starts",
    "bos_aligned": "packed/rank1/batch2/inputs",
    "validation_packing": "targets",
    "sigmoid_softcap": "loss_r22",
    "asymmetric_rescale": "grad",
    "mtp_loss": "grad2",
    "prefix_loss": "grad_exact1",
    "lr_momentum_schedule_a": "r46/lr_factor",
    "lr_momentum_schedule_b": "r62/muon_momentum",
    "lr_momentum_schedule_c": "r89/lr_factor",
    "mtp_prefix_schedule": "r88/prefix_weight",
}


@pytest.mark.parametrize(
    "name",
    [  # a whole network is as dear as it is to reproduce
        pytest.param(n, marks=[pytest.mark.slow] * (n.endswith("_forward") and n != "r20_forward"))
        for n in UNITS
    ],
)
def test_one_wrong_number_fails(name: str, tmp_path: Path) -> None:
    arrays = dict(np.load(FOLDER / f"{name}.npz"))
    size = np.max(np.abs(arrays[WRONG[name]])) if UNITS[name].relative else 1.0
    wrong = np.array(arrays[WRONG[name]])
    if wrong.dtype.kind == "f":
        wrong.flat[-1] += 2 * UNITS[name].bound * size
    else:
        wrong.flat[-1] ^= 1
    arrays[WRONG[name]] = wrong
    np.savez(tmp_path / f"{name}.npz", **arrays)
    assert not check_unit(tmp_path / f"{name}.npz").passed


def test_a_figure_that_is_missing_is_named(tmp_path: Path) -> None:
    arrays = dict(np.load(FOLDER / "adam_records.npz"))
    del arrays["betas"]
    np.savez(tmp_path / "adam_records.npz", **arrays)
    with pytest.raises(UserError, match=r"adam_records\.npz: betas"):
        check_unit(tmp_path / "adam_records.npz")


def test_arrays_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    arrays = dict(np.load(FOLDER / "adam_records.npz"))
    np.savez(tmp_path / "adam_records.npz", **{**arrays, "init": arrays["init"][:3]})
    with pytest.raises(UserError, match=r"adam_records\.npz: its arrays do not fit") as refused:
        check_unit(tmp_path / "adam_records.npz")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        *(("muon_per_head", "momentum"), ("muon_per_head", "lr"), ("adam_records", "lr")),
        *(("adam_every_second", "muon_momentum"), ("cautious_weight_decay", "muon/lr_t")),
        *(("vo_init", "in/noise_v"), ("mudd_coef", "grad/w2"), ("r20_forward", "grad_norm")),
        ("muon_per_head", "vo_bank/grad"),
    ],
)
def test_a_unit_with_an_array_cut_short_is_refused_and_not_compared_as_far_as_it_goes(
    name: str, array: str, tmp_path: Path
) -> None:
    arrays = dict(np.load(FOLDER / f"{name}.npz"))
    whole = arrays[array]
    short = whole[:, :-1] if array == "vo_bank/grad" else whole[:-1]
    np.savez(tmp_path / f"{name}.npz", **{**arrays, array: short})
    with pytest.raises(UserError, match="its arrays do not fit each other"):
        check_unit(tmp_path / f"{name}.npz")


def test_a_unit_whose_last_matrices_have_no_start_is_refused(tmp_path: Path) -> None:
    arrays = dict(np.load(FOLDER / "muon_per_head.npz"))
    for part in ("init", "second"):
        arrays[f"vo_bank/{part}"] = arrays[f"vo_bank/{part}"][:-1]
    arrays["vo_bank/param"] = arrays["vo_bank/param"][:, :-1]
    np.savez(tmp_path / "muon_per_head.npz", **arrays)
    with pytest.raises(UserError, match="its arrays do not fit each other"):
        check_unit(tmp_path / "muon_per_head.npz")


def test_a_unit_of_caps_holds_those_of_all_records(tmp_path: Path) -> None:
    arrays = dict(np.load(FOLDER / "logit_cap.npz"))
    fewer = {name: array for name, array in arrays.items() if not name.startswith("r54/")}
    np.savez(tmp_path / "logit_cap.npz", **fewer)
    with pytest.raises(UserError, match="its arrays do not fit each other"):
        check_unit(tmp_path / "logit_cap.npz")


def test_a_figure_of_another_shape_is_no_figure() -> None:
    short, long = np.zeros(2), np.zeros(3)
    unit = Unit(pairs=lambda arrays: [(short, long)], bound=1.0)
    with pytest.raises(ValueError, match=r"figures of shape \(2,\), here \(3,\)"):
        deviation(unit, {})
    for theirs, ours in ((short, long), (long, short)):
        words = f"rows of shape {theirs.shape}, here {ours.shape}"
        with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
            exactly(theirs, torch.tensor(ours))
    told = Unit(pairs=lambda arrays: [(np.array([4.0, -8.0]), np.array([4.0, -6.0]))], bound=1.0)
    assert deviation(told, {}) == 2.0
    assert deviation(dataclasses.replace(told, relative=True), {}) == 0.25


def test_other_records_and_inputs_go_by_the_rule_before_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unit_of("normuon_r45") is UNITS["normuon_r43_cautious"]
    assert unit_of("normuon_r43") is unit_of("normuon_r43_wide") is UNITS["normuon_r43_cautious"]
    assert unit_of("normuon_r42_wide") is UNITS["normuon_r42"]
    assert unit_of("normuon_r99_wide") is UNITS["normuon_r48"]
    assert unit_of("paired_heads_value_wide") is UNITS["paired_heads_value"]
    of_networks = [unit_of(f"{record}_forward") for record in ("r19", "r20_wide", "r87", "r020")]
    assert [unit is not None for unit in of_networks] == [True, False, False, False]
    assert unit_of("r20_forward_wide") is not None
    assert unit_of("adam_records_wide") is UNITS["adam_records"]
    assert unit_of("bigram_r67") is unit_of("bigram_r69") is unit_of("bigram_r83_wide")
    assert unit_of("bigram_r68") is unit_of("bigram_r73") is not unit_of("bigram")
    assert unit_of("paired_heads_value_r70") is UNITS["paired_heads_value"]
    assert unit_of("paired_heads_value_r85") is unit_of("paired_heads_value_r89")
    assert unit_of("lr_momentum_schedule_d") is UNITS["lr_momentum_schedule_a"]
    assert unit_of("paired_heads_r62") is UNITS["paired_heads"]
    assert unit_of("normuon_r20") is unit_of("nothing") is None
    shutil.copy(FOLDER / "adam_records.npz", tmp_path / "nothing.npz")
    with pytest.raises(SystemExit) as ended:
        main(["parity", str(tmp_path)])
    assert ended.value.code == 1
    assert "unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figure", "bound"), [("loss", 1e-5), ("stream", 5e-5), ("grad_norm", 1e-3)]
)
def test_a_figure_of_a_network_may_be_off_by_a_share_of_its_largest_value(
    figure: str, bound: float
) -> None:
    """And by a share of a millionth where nothing is left of it."""
    for largest, off in ((4.0, 4.0 * bound), (1e-9, 1e-6 * bound), (0.0, 1e-6 * bound)):
        theirs = np.array([largest / 2, -largest])
        told, ours = in_tolerances(figure, theirs, theirs + off)
        assert ours - told == pytest.approx([1.0, 1.0], rel=1e-6)


def test_later_records_are_the_last_preset_with_what_they_change(tmp_path: Path) -> None:
    for of_all, passed in ((0.0, True), (0.25, False)):
        told = {"r89/prefix_weight": np.full(60, of_all), "r87/prefix_weight": np.ones(60)}
        np.savez(tmp_path / "mtp_prefix_schedule_later.npz", **told)
        assert check_unit(tmp_path / "mtp_prefix_schedule_later.npz").passed == passed
    later = [settings_of(f"r{number}", 60) for number in (86, 87, 88, 89)]
    assert [config.loss.prefix_weight for config in later] == [0.0, 0.0, 0.25, 0.0]
    assert [config.schedule.extension_steps for config in later] == [15, 15, 10, 10]
    assert settings_of("r03", 60).schedule.steps == 60


def test_the_command_passes_on_a_folder_of_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("adam_records", "polar_express"):
        shutil.copy(FOLDER / f"{name}.npz", tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["parity", str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not ended.value.code
    assert torch.get_num_threads() == 1  # recordings are tiny
    assert [(row["record"], row["passed"]) for row in answer["records"]] == [
        ("adam_records", True),
        ("polar_express", True),
    ]
    assert all(
        row["values"] <= answer["bounds"]["units"][row["record"]] for row in answer["records"]
    )
    with pytest.raises(SystemExit) as ended:
        main(["parity", str(tmp_path)])
    assert not ended.value.code
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    deviation = head.index("values")
    assert [(row[0], float(row[deviation]), row[-1]) for row in rows] == [
        (row["record"], pytest.approx(row["values"], rel=0.05), "pass") for row in answer["records"]
    ]


def figures(name: str, arrays: Arrays) -> list[np.ndarray]:
    """What the rule of a unit makes of its inputs."""
    return [ours for _, ours in RULES[name].pairs(arrays)]


def test_a_rule_of_other_records_is_held_as_closely_as_the_one_that_it_varies() -> None:
    for name, unit in OTHERS.items():
        varied = next(UNITS[key] for key in (name.partition("_r")[0], f"{name}_a") if key in UNITS)
        assert (unit.bound, unit.relative) == (varied.bound, varied.relative)


def test_record_85s_gate_of_the_value_row_reads_the_row_in_paired_layers_too() -> None:
    """Half of its twelve channels: without their weights the outcome is that of the other rule."""
    arrays = dict(np.load(FOLDER / "paired_heads_value.npz"))
    rules = ("paired_heads_value", "paired_heads_value_r85")
    assert not np.allclose(*(figures(name, arrays)[0] for name in rules))
    arrays["w/value_gate"] = arrays["w/value_gate"] * (np.arange(12) < 6).astype(np.float32)
    differ = []
    for one, other in zip(*(figures(name, arrays) for name in rules), strict=True):
        differ += [] if np.allclose(one, other) else [(one, other)]
    ((one, other),) = differ
    assert one.shape == (4, 12) and np.allclose(one[:, :6], other[:, :6])


def test_attention_of_units_has_what_that_of_the_records_has_in_common() -> None:
    for record in ("r49", "r62", "r82", "r86"):
        model = to_config(preset_values(record)[0]).model
        for field in ("norm_eps", "qk_norm", "rope_base", "rope_pairs", "attn_mask"):
            named = EPS.get(getattr(RECORDS, field), getattr(RECORDS, field))
            assert named == getattr(model, field)


def test_scales_multiply_or_divide_before_numbers_are_rounded() -> None:
    """So small that the least numbers of eight bits are reached: half as much is another number."""
    arrays = dict(np.load(FOLDER / "fp8_head.npz"))
    scales = np.array([2.0**-7, 2.0**-5, 2.0**-12])
    multiplied = {**arrays, "r19/scales": scales, "r19/multiply": np.array(True)}
    divided = {**arrays, "r19/scales": 1 / scales, "r19/multiply": np.array(False)}
    ours = [figures("fp8_head", told)[:4] for told in (multiplied, divided, arrays)]
    for one, other, plain in zip(*ours, strict=True):
        assert np.array_equal(one, other) and not np.array_equal(one, plain)


def test_a_row_of_another_number_is_wrong_however_near() -> None:
    none, wrong = exactly(np.array([1, 5, 3]), torch.tensor([2, 5, 1]))
    assert (none.tolist(), wrong.tolist()) == ([0, 0, 0], [1, 0, 1])


def test_the_gradient_of_a_summed_loss_is_rounded_before_it_takes_its_share() -> None:
    """8192 times a bit more than half between two numbers of eight bits is the upper one, 8256."""
    G = np.array([1 + 2.0**-8 + 2.0**-14, -1.0], dtype=np.float32)
    assert gradient_of(G, 8192 * 0.3).tolist() == [2480, -2464]  # 0.3 of it, in steps of 16
    assert gradient_of(G, 2.0**-6).tolist() == [2.0**-6 + 2.0**-13, -(2.0**-6)]


@pytest.mark.parametrize(
    ("name", "windows"), [("yarn", "h/windows_blocks"), ("window_yarn", "windows")]
)
def test_what_is_turned_after_a_window_knows_nothing_of_later_ones(
    name: str, windows: str, tmp_path: Path
) -> None:
    arrays = dict(np.load(FOLDER / f"{name}.npz"))
    arrays[windows] = np.append(arrays[windows], 2 * arrays[windows][-1])
    np.savez(tmp_path / f"{name}.npz", **arrays)
    assert check_unit(tmp_path / f"{name}.npz").passed


def test_the_size_of_a_head_is_known_to_four_places() -> None:
    """Of a quarter of it, 0.0125, whose scale is four times as large, the logits are a quarter."""
    arrays = dict(np.load(FOLDER / "fp8_head.npz"))
    smaller = {
        **arrays,
        "r21/w_scale_normal": arrays["r21/w_scale_normal"] / 4,
        "r21/scales": arrays["r21/scales"] * np.array([1, 4, 1]),
    }
    whole, quarter = (figures("fp8_head", told)[4] for told in (arrays, smaller))
    assert np.array_equal(whole, 4 * quarter) and whole.any()


def test_shards_of_a_unit_are_the_arrays_that_are_called_so_by_their_numbers() -> None:
    names = ("inputs", "shard10", "shard2", "shard0", "shard_starts", "x/y/z0")
    arrays = {name: np.arange(n, dtype=np.uint16) for n, name in enumerate(names, start=3)}
    with shards_of(arrays) as paths:
        found = [(path.name, len(open_shard(path))) for path in paths]
    assert found == [("shard0.bin", 6), ("shard2.bin", 5), ("shard10.bin", 4)]


def test_a_token_may_be_the_byte_of_zero() -> None:
    arrays = dict(np.load(FOLDER / "prefix_loss.npz"))
    told = np.array([[0, 65, -1], [65, -1, -1], [0, -1, -1]])
    _, table = next(UNITS["prefix_loss"].pairs({**arrays, "vocab_bytes": told}))
    assert table.tolist() == [2, -1, -1]


def origins(record: str) -> dict[str, Origin]:
    """Of a small network, in records that name no parameter as it is named here."""
    layers = to_config(preset_values(record)[0]).model.n_layer
    sizes = {"h/width": 32, "h/layers": layers, "h/heads": 4}
    config = sized(record, {name: np.array(size) for name, size in sizes.items()})
    model = GPT(config.model, Tokens(vocab_size=257, separator=256, seq_len=64))
    return parts_of(model, config, set())


def test_record_81s_coefficients_are_channels_of_a_maker_of_two_times_eight() -> None:
    parts = origins("r81")
    for n, (maker, channels) in enumerate(CHANNELS.items()):
        up = weight(f"mudd.{n}.up.weight", (HIDDEN, 2, 8))
        bias = weight(f"mudd.{n}.bias", (2, 8))
        ours = [parts[f"mudd.{maker}.{leaf}"].values().numpy() for leaf in ("up.weight", "bias")]
        for row, of_row, channel in zip(*ours, channels, strict=True):
            place = divmod(channel, 8)
            assert np.array_equal(row, up[:, *place]) and of_row == bias[place]
        down = parts[f"mudd.{maker}.down.weight"].values().numpy()
        assert np.array_equal(down, weight(f"mudd.{n}.down.weight", (HIDDEN, 32)))


@pytest.mark.parametrize(("record", "into", "half"), [("r45", 7, 6), ("r52", 6, 5)])
def test_the_one_skip_is_that_of_its_layer_where_every_layer_of_the_second_half_has_one(
    record: str, into: int, half: int
) -> None:
    skip = origins(record)["skip.scale"].values()
    assert skip == weight("skip_weights", (half,), -1.5)[into - half] and -2 < skip < -1


def test_every_coefficient_of_record_81_has_a_channel_of_its_own() -> None:
    assert sorted(CHANNELS["last"]) == [*range(14)]  # of sixteen
    assert CHANNELS["post"] == [*range(8, 13)]
