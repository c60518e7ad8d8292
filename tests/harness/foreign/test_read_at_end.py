"""What is read of a script without a run: its metrics at the end, its data as links, the code that it imports, its own logs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.foreign.arm import default_data, linked, refuse_secrets, refuse_secrets_in
from harness.foreign.collect import Tree, collect
from harness.foreign.linked_data import link_data
from harness.foreign.log_lines import LogError
from harness.foreign.own_lines import OwnReading, seconds_of
from harness.foreign.own_logs import keep_own_logs
from harness.foreign.own_metrics import check_readings, read_metric
from harness.foreign.warm_up import compiles
from harness.provenance.code import Code
from harness.run.foreign import TrainerSpec
from harness.run.readings import OwnMetric, Readings


def reading_of(*texts: str, **more: Any) -> OwnReading:
    metrics = tuple(read_metric(text, where="x") for text in texts)
    return OwnReading(Readings(metrics=metrics, **more))


# ---------------------------------------------------------------- at the end

OBJECTS = {  # the last line that is an object -> what is wrong, or the value
    '{"a": {"b": 0.25}}': 0.25,
    '{"a": {"b": 3}}': 3.0,
    '{"a": {"b": "0.9"}}': "the b '0.9' is not a number",
    '{"a": {"b": true}}': "the b 'True' is not a number",
    '{"a": {"b": [1]}}': "the b '[1]' is not a number",
    '{"a": {"b": null}}': "it has no b: ",
    '{"a": 7}': "it has no b: ",
    "[1]": "it has no b: ",
    '{"a": {"b": 1': "it has no b: ",
}


@pytest.mark.parametrize("line", OBJECTS)
def test_a_field_of_the_last_object_is_a_number_or_is_told(line: str, tmp_path: Path) -> None:
    reading = reading_of("json:a.b")
    reading.feed(line.encode())
    reading.feed(b"the end")
    reading.read_rest(tmp_path)
    expected = OBJECTS[line]
    if isinstance(expected, str):
        assert (reading.lacks() or "").startswith(expected)
        assert reading.values == {}
    else:
        assert (reading.values, reading.problem) == ({"b": expected}, None)


FILES = {  # how the metric is asked for, the file -> what is wrong, or the value
    ("file:out.txt", " 0.5\n"): 0.5,
    ("file:out.txt", "half"): "the out 'half' is not a number",
    ("file:out.txt:a.x", '{"a": {"x": 2}}'): 2.0,
    ("file:out.txt:x", "x = 2"): "out.txt, which holds x, is no JSON",
    ("file:none.txt", "0.5"): "it has no none: ",
}


@pytest.mark.parametrize("asked", FILES)
def test_a_number_in_a_file_that_the_script_wrote(asked: tuple[str, str], tmp_path: Path) -> None:
    text, content = asked
    (tmp_path / "out.txt").write_text(content)
    reading = reading_of(text)
    reading.read_rest(tmp_path)
    expected = FILES[asked]
    if isinstance(expected, str):
        assert (reading.lacks() or "").startswith(expected)
    else:
        assert [*reading.values.values()] == [expected]


def test_behind_a_metric_that_is_not_there_or_is_none_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_text("half")
    (tmp_path / "out.txt").write_text("0.5")
    reading = reading_of("file:gone.txt", "file:word.txt", "a: (.)", "file:out.txt", "json:b")
    reading.feed(b'{"b": 2}')
    reading.read_rest(tmp_path)
    assert reading.values == {"out": 0.5, "b": 2.0}
    both = reading_of("a: (.)", "b: (.)")
    both.feed(b"b: 3")  # a line of the second alone
    assert both.values == {"b": 3.0}
    assert reading.lacks() == "the word 'half' is not a number"


def test_a_file_that_is_no_text_or_too_long_holds_no_number(tmp_path: Path) -> None:
    for content, is_read in (
        (b"\xff1", False),
        (b" " * 2**20 + b"1", False),
        (b" " * (2**20 - 1) + b"1", True),
    ):
        (tmp_path / "n.txt").write_bytes(content)
        reading = reading_of("file:n.txt")
        reading.read_rest(tmp_path)
        assert (reading.values == {"n": 1.0}) == is_read


def test_a_loss_at_the_end_is_the_validation_loss(tmp_path: Path) -> None:
    reading = reading_of("val_loss=json:loss", step_pattern=r"at (\d+)", time_pattern=r"in (\S+)")
    for line in (b"at 20 in 4s", b'{"loss": 3.25}'):
        reading.feed(line)
    assert (reading.lacks() or "").startswith("it has no val_loss: ")
    reading.read_rest(tmp_path)
    final = reading.final()
    assert reading.lacks() is None
    assert (final.val_loss, final.train_time_s, final.steps, final.step_ms) == (3.25, 4.0, 20, 200)


def test_what_the_patterns_do_not_tell_is_unknown() -> None:
    reading = reading_of("val_loss: ([0-9.]+)")
    reading.feed(b"val_loss: 3.25")
    final = reading.final()
    assert (final.val_loss, final.train_time_s, final.step_ms) == (3.25, None, None)
    assert final.steps is None


def test_a_metric_that_is_not_finite_is_an_explosion_and_no_value() -> None:
    reading = reading_of("a: (.+)", step_pattern=r"at (\d+)")
    reading.feed(b"at 7 a: 1")
    reading.feed(b"at 8")
    reading.feed(b"a: nan")
    assert (reading.exploded, [own.step for own in reading.new]) == (8, [7])
    reading = reading_of("a: (.+)")
    reading.feed(b"a: inf")  # before any step
    assert (reading.exploded, reading.new) == (0, [])


@pytest.mark.parametrize(
    ("lines", "lacks"),
    [
        (["at 5 a: 1"], None),
        (["at 4 a: 1"], "it ends at step 4, before the stop at step 5"),
        (["at 4 a: 1", "at 6"], "it passes step 5, where it was to be stopped, without a there"),
        (["at x"], "the step 'x' is not a whole number"),
        (["at 1234567890123"], "the step '1234567890123' is not a whole number"),
    ],
)
def test_a_planned_stop_is_at_its_step_with_every_metric(
    lines: list[str], lacks: str | None
) -> None:
    reading = reading_of("a: (.+)", step_pattern=r"at (\S+)", stop_step=5)
    for line in lines:
        reading.feed(line.encode())
    assert reading.lacks() == lacks
    assert reading.stopped_at == (5 if lacks is None else None)


def test_clocks_have_hours_or_not() -> None:
    assert [seconds_of(text) for text in ("1:02:03", "02:03.5", " 0:07 ")] == [3723, 123.5, 7]
    assert seconds_of("3", "min") == 180
    with pytest.raises(LogError, match="is below zero"):
        seconds_of("-1s")


# ---------------------------------------------------------------- asked for

BAD = {
    "two metrics are called a: name one": (("a: (.)", "a=json:b"), {}),
    "the stop at step 0 must be at 1 or later": (("a: (.)",), {"stop_step": 0}),
    r"the step pattern: '\(' is no regular expression": ((), {"step_pattern": "("}),
    "the time pattern: 'x' must have one group": ((), {"time_pattern": "x"}),
    "must have one group": ((), {"step_pattern": "(" + "x" * 499 + ")"}),
}


@pytest.mark.parametrize("message", BAD)
def test_readings_that_do_not_fit_together_are_refused(
    message: str, kept_line: Callable[[str], None]
) -> None:
    texts, more = BAD[message]
    metrics = tuple(read_metric(text, where="x") for text in texts)
    with pytest.raises(UserError, match=message) as error:
        check_readings(Readings(metrics=metrics, **more), where="x")
    kept_line(str(error.value))


def test_readings_that_fit_are_taken() -> None:
    metrics = (read_metric("a: (.)", where="x"), read_metric("b=json:a", where="x"))
    check_readings(Readings(metrics=metrics), higher=["a"], where="x")
    check_readings(Readings(metrics=metrics[:1], stop_step=1), where="x")
    check_readings(Readings(step_pattern="(" + "x" * 498 + ")"), where="x")


def test_a_metric_is_better_where_it_is_said_and_a_loss_never_higher(
    kept_line: Callable[[str], None],
) -> None:
    higher = [read_metric(text, higher=["acc"], where="x") for text in ("acc: (.)", "b: (.)")]
    assert [metric.is_higher_better for metric in higher] == [True, False]
    elsewhere = ("acc=json:a", "acc=file:a.txt")
    assert all(read_metric(t, higher=["acc"], where="x").is_higher_better for t in elsewhere)
    said = []
    for text in ("val_loss: (.)", "9a=json:b", "file:a/../../b"):
        with pytest.raises(UserError) as refused:
            read_metric(text, higher=["val_loss"], where="x")
        said.append(str(refused.value))
    kept_line("\n".join(said))
    file = read_metric("file:out/eval.json", where="x")
    assert file == OwnMetric(name="eval", file="out/eval.json")


# ---------------------------------------------------------------- data and code


def test_data_keeps_its_place_or_has_the_one_that_is_named(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "data/of").mkdir(parents=True)
    away = tmp_path / "away"
    away.mkdir()
    folder = tmp_path
    assert linked(["data/of", f"x/y={away}", str(away)], folder) == {
        "data/of": str(tmp_path / "data/of"),
        "x/y": str(away),
        "away": str(away),
    }
    assert linked(["../away"], tmp_path / "data") == {"away": str(tmp_path / "data/../away")}
    said = []
    for text in (f"/x={away}", f"../x={away}", f".={away}", ".", "none"):
        with pytest.raises(UserError) as refused:
            linked([text], folder)
        said.append(str(refused.value))
    kept_line("\n".join(said))
    assert default_data(away, tmp_path) == {"data": str(tmp_path / "data")}
    assert default_data(away) == {}


def test_links_go_piece_by_piece_into_a_folder_that_holds_code(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    for name in ("a.bin", "of/b.bin", "code.py"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("data")
    (copy / "in").mkdir(parents=True)
    (copy / "in/code.py").write_text("code")
    link_data({"in": str(data), "deep/er": str(data)}, copy)
    assert (copy / "in/code.py").read_text() == "code"
    assert (copy / "in/a.bin").is_symlink() and (copy / "in/of").is_symlink()
    assert (copy / "deep/er").is_symlink()


def test_a_script_takes_along_what_it_imports_and_what_is_named(tmp_path: Path) -> None:
    texts = {
        "lib/run.py": "import torch, near\nfrom pack.inner import thing\nfrom . import beside\n",
        "lib/near.py": "import pack.deep\n",
        "lib/beside.py": "not python (",
        "lib/pack/__init__.py": "",
        "lib/pack/inner.py": "from .sibling import *\nfrom ..near import x\n",
        "lib/pack/sibling.py": "",
        "lib/pack/deep.py": "",
        "lib/unused.py": "",
        "lib/__pycache__/near.py": "",
        "conf/a.yaml": "a: 1",
        "lib/tool.py": "import helper\n",
        "lib/helper.py": "",
        "lib/start": "import helper\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    code = collect("lib/run.py", Tree(root=tmp_path), where="x", extra=["conf", "lib/tool.py"])
    unused = {"lib/unused.py", "lib/__pycache__/near.py", "lib/start"}
    assert {*code.files} == {*texts} - unused
    code = collect("lib/start", Tree(root=tmp_path), where="x", extra=["conf"])
    assert {*code.files} == {"lib/start", "lib/helper.py", "conf/a.yaml"}
    for name in ("none.py", "../x.py"):
        (tmp_path.parent / "x.py").touch()
        with pytest.raises(UserError, match="name a file or folder beside the script"):
            collect(name, Tree(root=tmp_path), where="x")


def test_a_file_of_more_than_twenty_megabytes_is_no_code(tmp_path: Path) -> None:
    tree = Tree(root=tmp_path)
    for n_bytes, is_code in ((20_000_000, True), (20_000_001, False)):
        with (tmp_path / "data.py").open("wb") as file:
            file.truncate(n_bytes)
        assert (tree.read("data.py") is not None) == is_code
    assert tree.read("none.py") is None and tree.read(".") is None


def test_a_secret_in_code_or_in_what_is_asked_is_refused_at_its_place(
    kept_line: Callable[[str], None],
) -> None:
    secret = "hf_" + "a1B2" * 8
    code = Code(script="a.py", files={"a.py": b"", "b.py": f"x = 1\ny = '{secret}'\n".encode()})
    with pytest.raises(UserError) as refused:
        refuse_secrets_in(code, where="arm x")
    said = [str(refused.value)]

    def spec(**more: Any) -> TrainerSpec:
        usual = {"command": "python a.py", "env": {}, "environment": {}}
        return TrainerSpec(file=Path("a.py"), script="", data={}, **{**usual, **more})

    refuse_secrets(spec(args=("--lr", "0.1")), where="x")
    asked: list[dict[str, Any]] = [
        {"args": ("--token", secret)},
        {"command": f"python a.py {secret}"},
        {"env": {"TOKEN": secret}},
        {"environment": {"container": f"run -e T={secret}"}},
    ]
    for more in asked:
        with pytest.raises(UserError, match="holds a secret") as error:
            refuse_secrets(spec(**more), where="x")
        assert secret not in str(error.value)
        said.append(str(error.value))
    kept_line("\n".join(said))


def test_a_script_that_compiles_says_so_in_any_of_its_files() -> None:
    for text, expected in ((b"torch.compile(m)", True), (b"import triton", True), (b"re", False)):
        assert compiles(Code(script="a", files={"a": b"x", "b": text})) is expected


# ---------------------------------------------------------------- its own logs


class Kept:
    """A run that is written: its folder, and what was said."""

    def __init__(self, run: Path, mine: bool = True) -> None:
        self.run, self.mine, self.said = run, mine, list[str]()
        run.mkdir()

    def still_mine(self) -> bool:
        return self.mine

    def log(self, line: str) -> None:
        self.said.append(line)


def test_own_logs_are_kept_by_name_without_secrets_up_to_a_number(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    secret = "hf_" + "a1B2" * 8
    texts = {"logs/a.txt": secret, "out/b c.txt": "b", "logs/no.pt": "\0", "logs/of/c": "c"}
    texts |= {"logs/of-c": "twin", f"out/{'x' * 130}.txt": "long"}
    for name, text in texts.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    out: Any = Kept(tmp_path / "run")
    keep_own_logs(copy, "out/*.txt", out)
    kept = {path.name: path.read_text() for path in out.run.iterdir()}
    assert kept["own-logs-a.txt"] == "[redacted]"
    assert kept["own-out-b-c.txt"] == "b"
    assert sorted(kept.values()) == ["[redacted]", "b", "c", "long", "twin"]
    assert max(map(len, kept)) == 120 + len("own-")
    assert out.said == ["logs/no.pt is no text: it is not kept"]

    for n in range(66):
        (copy / f"logs/many-{n:03}").write_text("x")
    out = Kept(tmp_path / "full")
    keep_own_logs(copy, None, out)
    assert len([*out.run.iterdir()]) == 64
    assert out.said[-1].endswith("and later files are not kept: 64 files of a run are")
    out = Kept(tmp_path / "lost", mine=False)
    keep_own_logs(copy, None, out)
    assert [*out.run.iterdir()] == []
