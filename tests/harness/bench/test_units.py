"""Units: what the records' own functions made of their inputs, and one wrong number."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from harness.__main__ import main
from harness.bench.parity import check_unit
from harness.bench.unit import Arrays, Unit, deviation
from harness.bench.units import UNITS, unit_of
from harness.bench.units_bigram import exactly
from harness.bench.units_networks import CHANNELS
from harness.errors import UserError

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDER = DATA / "units"
COMPARED = yaml.safe_load((DATA / "compared.yaml").read_text(encoding="utf-8"))


def test_every_unit_has_its_numbers() -> None:
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(UNITS)


@pytest.mark.parametrize("name", UNITS)
def test_a_function_of_a_record_is_reproduced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every number that it gave: none is passed over."""
    compared: list[int] = []

    def counted(unit: Unit, arrays: Arrays) -> float:
        pairs = [*unit.pairs(arrays)]
        compared.extend((len(pairs), sum(theirs.size for theirs, _ in pairs)))
        return deviation(dataclasses.replace(unit, pairs=lambda _: iter(pairs)), arrays)

    monkeypatch.setattr("harness.bench.parity.deviation", counted)
    result = check_unit(FOLDER / f"{name}.npz")
    assert result.passed, result.deviations
    assert compared == COMPARED[name]


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


def test_a_figure_of_another_shape_is_no_figure() -> None:
    short, long = np.zeros(2), np.zeros(3)
    unit = Unit(pairs=lambda arrays: [(short, long)], bound=1.0)
    with pytest.raises(ValueError, match=r"figures of shape \(2,\), here \(3,\)"):
        deviation(unit, {})
    with pytest.raises(ValueError, match=r"rows of shape \(2,\), here \(3,\)"):
        exactly(short, torch.zeros(3))
    told = Unit(pairs=lambda arrays: [(np.array([4.0, -8.0]), np.array([4.0, -6.0]))], bound=1.0)
    assert deviation(told, {}) == 2.0
    assert deviation(dataclasses.replace(told, relative=True), {}) == 0.25


def test_other_records_and_inputs_go_by_the_rule_before_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unit_of("normuon_r45") is UNITS["normuon_r43_cautious"]
    assert unit_of("normuon_r99_wide") is UNITS["normuon_r48"]
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


def test_every_coefficient_of_record_81_has_a_channel_of_its_own() -> None:
    assert sorted(CHANNELS["last"]) == [*range(14)]  # of sixteen
    assert CHANNELS["post"] == [*range(8, 13)]
