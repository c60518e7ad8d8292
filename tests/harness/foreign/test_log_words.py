"""What a log says of its machine, in words, and the lists of losses that a record's pages print, at their lines."""

from pathlib import Path

import pytest

from harness.foreign.log_facts import LogFacts, machine_words
from harness.foreign.log_lines import LogError, loss_of, number_of, read_point, shape_of
from harness.foreign.log_text import log_lines
from harness.foreign.printed import printed_losses
from tests.foreign_logs import SMI


def facts_of(*lines: str) -> LogFacts:
    facts = LogFacts()
    for line in lines:
        facts.feed(line.encode())
    return facts


def test_a_machine_is_told_by_its_gpus_their_memory_and_what_ran_on_them() -> None:
    facts = facts_of(*SMI.splitlines(), "Running pytorch 2.6.0 compiled for CUDA 12.4", "seed: 17")
    assert machine_words(facts) == (
        "2 x NVIDIA H100 80GB HBM3",
        "86 GB each",
        "driver 550.127.05",
        "CUDA 12.4",
        "torch 2.6.0",
    )
    assert facts.seed == 17


def test_of_a_machine_that_a_log_does_not_name_nothing_is_told() -> None:
    assert machine_words(LogFacts()) == ()
    assert machine_words(facts_of("Running PyTorch 2.6")) == ("torch 2.6",)
    assert machine_words(LogFacts(gpus=["B", "A", "B"])) == ("3 x A/B",)


def test_a_list_of_losses_is_named_by_its_page_and_its_line(tmp_path: Path) -> None:
    page = "# A record\n\nruns:\n[3.2777, 3.2812,\n 3.2790]\nand [3.2700 3.2790]\n"
    (tmp_path / "README.md").write_text(page)
    inner = tmp_path / "runs"
    inner.mkdir()
    (inner / "statistics.md").write_text("[3.25, 3.31]. no")
    assert list(printed_losses(tmp_path, 3.28)) == [
        (f"list in {tmp_path / 'README.md'}:4", [3.2777, 3.2812, 3.279]),
        (f"list in {tmp_path / 'README.md'}:6", [3.27, 3.279]),
        (f"list in {inner / 'statistics.md'}:1", [3.25, 3.31]),
    ]


def test_what_is_no_list_of_losses_is_passed_over(tmp_path: Path) -> None:
    lists = (
        "[3.2777, 9.1]",
        "[3.2777, 3.3900]",
        "[3.2777, 3.1700]",
        "[3.280000000]",
        "[1, 2, 3, 4, 5]",
    )
    lists += ("[3.28, 3.2.8, 3.29]", "[3.2]", "[3.2777, 3.2812]")
    (tmp_path / "README.md").write_text("\n".join(lists))
    (tmp_path / "other.md").write_text("[3.2777, 3.2812]")
    (tmp_path / "statistics.md").mkdir()
    found = (f"list in {tmp_path / 'README.md'}:8", [3.2777, 3.2812])
    assert list(printed_losses(tmp_path, 3.28)) == [found]


def refusal_of_loss(text: bytes) -> str:
    try:
        loss_of(text)
    except LogError as error:
        return str(error)
    return ""


def test_a_loss_is_above_zero_and_within_what_a_result_holds() -> None:
    assert refusal_of_loss(b"0.0") == ("the loss '0.0' is impossible: cross entropy is above zero")
    assert "above zero" in refusal_of_loss(b"-1")
    assert refusal_of_loss(b"1e101").endswith("is impossible: it is beyond 1e+100")
    assert refusal_of_loss(b"nan") == refusal_of_loss(b"inf") == refusal_of_loss(b"1e100") == ""
    assert number_of("-3.5", "score") == -3.5
    with pytest.raises(LogError, match=r"the score '-1e101' is impossible: it is beyond 1e\+100$"):
        number_of("-1e101", "score")


@pytest.mark.parametrize(
    ("text", "said"), [("y" * 48, "is not a number"), (f"{'9' * 48}e99", "is impossible: it is")]
)
def test_of_what_is_no_number_forty_characters_are_shown(text: str, said: str) -> None:
    with pytest.raises(LogError, match=f"^the score '{text[:40]}' {said}"):
        number_of(text, "score")
    with pytest.raises(LogError, match=f"^the loss '{text[:40]}' {said}"):
        loss_of(text.encode())


def test_of_a_last_line_that_is_cut_sixty_characters_are_shown(tmp_path: Path) -> None:
    lines = [f"step:{n}/2 val_loss:3.28{n} train_time:{n}{'0' * 60}.5" for n in range(3)]
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines)[:-1])
    with pytest.raises(LogError) as error:
        list(log_lines(path))
    assert str(error.value) == (
        f"it is cut inside its last line, '{lines[2][:60]}': the last number may lack digits"
    )


def test_the_shape_of_a_line_is_that_of_what_stands_behind_its_first_word() -> None:
    shape = shape_of(b"end val_loss:3.28 train_time:5ms")
    assert shape is not None and shape.words == (b"val_loss", b"train_time")
    assert shape.has_unit and shape.n_decimals == 0
    assert shape_of(b"step:1/2 val_loss:3.28 done") is None


def test_a_time_is_zero_or_above_and_one_that_is_none_yet_is_unknown() -> None:
    def time_of(text: bytes) -> float | None:
        point = read_point(b"step:8/8 val_loss:3.3 train_time:%bms step_avg:1ms" % text)
        assert point is not None
        return point.train_time_s

    assert (time_of(b"0"), time_of(b"1500"), time_of(b"nan")) == (0.0, 1.5, None)
    with pytest.raises(LogError, match="the time '-1' is below zero"):
        time_of(b"-1")
