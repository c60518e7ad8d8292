"""The tests that `make test` leaves out as dear doubles are there, and how they are chosen."""

from pathlib import Path

from tests.doubles import doubles
from tests.mutation.doubles import dear_doubles
from tests.mutation.killers import Measured

ROOT = Path(__file__).resolve().parents[2]


def measured(tests: dict[str, tuple[float, int]]) -> Measured:
    """Of one function; test -> (its seconds, which lines it reaches, as bits)."""
    masks = {test: f"{lines:x}" for test, (_, lines) in tests.items()}
    seconds = {test: s for test, (s, _) in tests.items()}
    return Measured(seconds=seconds, reached={"optim/a.py": {"f": {"digest": masks}}})


def test_every_double_is_a_test() -> None:
    gone = []
    for test in doubles():
        file, _, name = test.partition("::")
        path = ROOT / file
        if not path.exists() or f"def {name.partition('[')[0]}(" not in path.read_text("utf-8"):
            gone.append(test)
    assert gone == []


def test_a_sabotage_meets_no_double() -> None:
    double, quick = min(doubles()), "tests/laws/test_doubles.py::test_a_sabotage_meets_no_double"
    files = [test.partition("::")[0] for test in (double, quick)]
    known = Measured(digests=dict.fromkeys(files, "digest"), seconds={double: 1.0, quick: 1.0})
    known.drop_gone(ROOT)
    assert list(known.seconds) == [quick]


def test_a_double_is_dear_and_reaches_nothing_alone() -> None:
    all_lines, half = 2**400 - 1, 2**320 - 1
    tests = {
        "tests/optim/test_a.py::test_dear": (3.0, half),
        "tests/optim/test_a.py::test_dearer": (5.0, all_lines),
        "tests/optim/test_a.py::test_cheap": (0.2, all_lines),
        "tests/optim/test_a.py::test_of_little": (4.0, 2**299 - 1),
        "tests/optim/test_a.py::test_first_to_notice": (4.0, half),
        "tests/security/test_b.py::test_promise": (4.0, half),
    }
    first = {"tests/optim/test_a.py::test_first_to_notice"}
    chosen = dear_doubles(measured(tests), first)
    assert chosen == [f"tests/optim/test_a.py::test_dear{end}" for end in ("er", "")]


def test_of_two_that_alone_reach_a_line_the_cheaper_stays() -> None:
    lines = 2**300 - 1
    tests = {
        "tests/optim/test_b.py::test_x": (2.0, lines),
        "tests/model/test_b.py::test_y": (3.0, lines),
    }
    assert dear_doubles(measured(tests), ()) == ["tests/model/test_b.py::test_y"]


def test_what_a_file_of_tests_is_about_is_reached_by_one_of_its_own() -> None:
    lines = 2**300 - 1
    tests = {
        "tests/optim/test_a.py::test_x": (3.0, lines),
        "tests/model/test_b.py::test_y": (2.0, lines),
    }
    assert dear_doubles(measured(tests), ()) == ["tests/model/test_b.py::test_y"]


def test_one_of_the_cases_of_a_function_stays() -> None:
    lines = 2**300 - 1
    tests = {f"tests/optim/test_a.py::test_x[{case}]": (2.0 + case, lines) for case in range(3)}
    tests["tests/optim/test_a.py::test_y"] = (0.1, lines)
    assert dear_doubles(measured(tests), ()) == [
        f"tests/optim/test_a.py::test_x[{n}]" for n in (2, 1)
    ]
