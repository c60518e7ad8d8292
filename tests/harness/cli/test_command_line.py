"""The command line as a user meets it: answers, exit codes, one line for bad input, JSON for scripts."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.__main__ import main

ROOT = Path(__file__).resolve().parents[3]


def test_the_words_after_the_programs_name_are_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "records", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0 and '"r18"' in capsys.readouterr().out


def test_toggles_tell_what_a_script_needs(ablate: Any) -> None:
    rows = {r["name"]: r for r in ablate("toggles", "--json").json}
    assert {"name", "record", "doc", "default", "choices", "requires", "conflicts"} <= set(
        rows["model.logit_softcap"]
    )
    assert {"value": 15.0, "record": "r18"} in rows["model.logit_softcap"]["choices"]
    assert rows["model.head_init"]["requires"] == [
        {"value": "*", "field": "model.tied_head", "values": [False]}
    ]


def test_records_are_listed_in_order_and_resolve_with_origins(ablate: Any) -> None:
    names = [r["name"] for r in ablate("records", "--json").json]
    assert names == ["r02", "r03", "r03pre", *(f"r{i:02d}" for i in range(4, len(names) + 1))]
    assert len(names) >= 49
    r12 = ablate("records", "r12", "--json").json
    assert r12["values"]["model.attn_kernel"] == "flex"
    assert r12["origins"]["model.logit_softcap"] == "r09 softcap"
    assert "r12 long_sequences" in ablate("records", "r12").out
    tiny = ablate("records", "r12", "--scale", "tiny", "--json").json
    assert tiny["origins"]["model.n_layer"] == r12["origins"]["model.n_layer"] + ", scale tiny"
    for field, value in r12["values"].items():
        assert tiny["origins"][field].endswith(", scale tiny") == (tiny["values"][field] != value)


def test_a_diff_names_the_change_behind_every_field(ablate: Any) -> None:
    rows = {r["field"]: r for r in ablate("diff", "r07", "r08", "--json").json}
    assert rows["optim.muon_lr"] == {
        "field": "optim.muon_lr",
        "a": 3.6e-4,
        "b": 0.02,
        "change": "r08 muon_scale",
    }
    assert "same configuration" in ablate("diff", "r06", "r07").out


def test_doctor_says_what_is_missing_and_how_to_get_it(ablate: Any) -> None:
    Path("notes.txt").write_text("".join(f"note {n}\n" for n in range(200)))
    text = ("data", "prepare", "text", "notes.txt", "--by", "line", "--name", "mine")
    assert ablate(*text).code == 0
    rows = {r["what"]: r for r in ablate("doctor", "--json").json}
    assert rows["torch"]["ok"]
    mine, missing = rows["corpus mine"], rows["corpus stdlib"]
    assert (mine["ok"], Path(mine["found"]).name, mine["advice"]) == (True, "mine", None)
    assert (missing["ok"], missing["found"]) == (False, "none")
    assert "ablate data prepare stdlib" in missing["advice"]
    assert ablate("doctor").out.splitlines()[0].split() == ["what", "found", "advice"]


def test_plan_counts_runs_before_anything_is_spent(ablate: Any) -> None:
    assert ablate("data", "prepare", "stdlib").code == 0
    plan = ablate("plan", "quickstart", "--json").json
    assert plan["runs"] == sum(a["runs"] for a in plan["arms"])
    assert plan["done"] == 0
    assert {a["arm"] for a in plan["arms"]} > {"baseline"}
    assert not (Path.cwd() / "results").exists()


BAD = (  # arguments -> what the line must say
    (["tugles"], "Did you mean 'toggles'"),
    (["toggles", "--jsno"], "No such option"),
    (["records", "r8"], "unknown record 'r8'; did you mean 'r08'?"),
    (["records", "r009"], "unknown record 'r009'; did you mean 'r09'?"),
    (["records", "r08", "--scale", "tyni"], "did you mean 'tiny'?"),
    (["diff", "r08", "r08"], "name two"),
    (["plan", "quickstrat"], "unknown experiment 'quickstrat'; did you mean 'quickstart'?"),
    (["run", "missing.yaml"], "missing.yaml: no such experiment file"),
    (
        ["run", "quickstart", "--set", "model.n_layers=3"],
        "model.n_layers is not a field of model; did you mean 'model.n_layer'?",
    ),
    (["run", "quickstart", "--set", "model.n_layer"], "must be KEY=VALUE"),
    (["run", "quickstart", "--set", "model.n_layer=[3"], "cannot read the value"),
    (["run", "quickstart", "--seeds", "0"], "--seeds 0: must be from 1 to 1000"),
    (["run", "quickstart", "--worker", "hot"], "must be warm or fresh"),
    (["run", "quickstart", "--max-parallel", "0"], "at least 1"),
    (["status"], "no runs here"),
    (["clean"], "results folder results: no runs here; name another with --results"),
    (["push", "there"], "results folder results: no runs here; name another with --results"),
    (["report", "nothing"], "unknown experiment 'nothing'"),
    (["verify", "nothing.html"], "no such file"),
    (["parity", "nowhere"], "no recorded trajectories here"),
    (["data", "check", "nowhere"], "nowhere"),
    (["data", "prepare", "stdlob"], "stdlib"),
    (["data", "prepare", "text"], "name the files and the corpus"),
    (["data", "prepare", "stdlib", "x.txt"], "data prepare stdlib: takes no paths; for your own"),
    (["data", "prepare", "stdlib", "--name", "x"], "data prepare stdlib: --name is for text"),
    (["data", "prepare", "stdlib", "--by", "line"], "data prepare stdlib: --by is for text"),
    (["data", "prepare", "text", ".", "--shards", "2"], "--shards is for fineweb10B: leave it out"),
    (["significance", "3.28"], "track1"),
    (["significance", "--rule", "track9", "3.28", "3.29"], "unknown rule 'track9'"),
    (["significance", "3.28", "soon"], "soon"),
    (["significance", "--rule", "track3-pair", "--old-mean", "3.28"], "needs --old-n"),
)


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_one_line_and_exit_2(
    ablate: Any, arguments: list[str], words: str, kept_line: Callable[[str], None]
) -> None:
    ran = ablate(*arguments)
    assert ran.code == 2
    assert words in ran.err
    said = [line for line in ran.err.splitlines() if not line.startswith("preparing")]
    assert len(said) == 1
    assert "Traceback" not in ran.err
    if not said[0].startswith("ablate: No such"):  # which are a library's words
        kept_line(said[0])


def test_a_device_that_the_cluster_does_not_have_is_refused(ablate: Any) -> None:
    Path("site.yaml").write_text("device: cpu\n")
    cluster = ("--executor", "slurm", "--cluster", "site.yaml")
    ran = ablate("run", "quickstart", *cluster, "--set", "device=cuda")
    assert ran.code == 2
    assert "--set device=cuda: cluster.yaml says cpu: change it there" in ran.err


def test_help_and_listings_do_not_import_torch() -> None:
    code = (
        "import sys\nfrom harness.__main__ import main\n"
        "for a in (['--help'], ['toggles'], ['records'], ['diff', 'r07', 'r08']):\n"
        "    try: main(a)\n    except SystemExit as e: assert not e.code\n"
        "assert not {'torch', 'numpy', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules), sorted(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


def test_significance_reads_numbers_in_any_common_separation(
    ablate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    said = []
    for text in (
        "3.27 3.275 3.276",
        "3.27,3.275,3.276",
        "[3.27, 3.275, 3.276]",
        "3.27\n3.275\n3.276\n",
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        said.append(ablate("significance", "--json").json)
    assert all(s == said[0] for s in said)
    assert set(said[0]) == {"rule", "n", "mean", "sd", "statistic", "p", "threshold", "significant"}
    assert ablate("significance", "3.27", "3.275", "3.276").code == 0


@pytest.mark.slow
def test_a_matrix_goes_the_whole_way_and_a_second_call_does_nothing(ablate: Any) -> None:
    small = ["--set", "schedule.steps=4", "--seeds", "2", "--results", "r"]
    first = ablate("run", "minute", *small)
    assert first.code == 0, first.err
    page = Path("r/experiments/minute/report.html")
    assert page.stat().st_size > 10_000
    before = page.stat().st_mtime_ns
    second = ablate("run", "minute", *small)
    assert second.code == 0
    assert "everything is finished" in second.out
    assert page.stat().st_mtime_ns == before
    fewer = ablate("run", "minute", *small, "--seeds", "1")  # nothing to run, but another plan
    assert (fewer.code, page.stat().st_mtime_ns > before) == (0, True)
    said = re.sub("<[^>]*>", "", page.read_text())
    assert "the plan was changed once after the first launch: seeds" in said
    assert ablate("run", "minute", *small).code == 0
    assert ablate("verify", str(page), "--results", "r").code == 0
    rows = ablate("compare", "minute", "--results", "r", "--json").json["comparisons"]
    assert {r["arm"] for r in rows} == {"untied_head", "post_embed_norm"}
    assert all(
        {"estimand", "delta", "low", "high", "p", "n", "looks", "verdict", "next_action"} <= set(r)
        for r in rows
    )
    assert all(
        r["status"] == "finished"
        for r in ablate("status", "minute", "--results", "r", "--json").json
    )
    ablate("export", "minute", "-o", "t.csv", "--results", "r")
    assert len(Path("t.csv").read_text().splitlines()) == 7


def test_a_fault_of_the_program_is_one_line_too(
    ablate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise TypeError("unhashable\nand more")

    monkeypatch.setattr("harness.bench.doctor.examine", broken)
    ran = ablate("doctor")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "TypeError: unhashable; nothing was lost; run it again with --debug" in ran.err
    with pytest.raises(TypeError):
        main(["doctor", "--debug"])
