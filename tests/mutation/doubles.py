"""python -m tests.mutation.doubles [FATES ...]: move dear doubles from `make test` to `make test-all`.

A quick test is a dear double where it takes long, and other quick tests, which stay, reach every line that it reaches, as the last
`make mutation` measured; those of the file that it is about, others of its own file reach. The last case of a function stays, and
one that was the first to notice a sabotage of the FATES. Those moved before stay moved: to choose anew, empty tests/data/doubles.txt and measure.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Container
from pathlib import Path

from tests.doubles import FILE, doubles
from tests.mutation.killers import Measured, file_of
from tests.mutation.tree import BUILD, FATES, ROOT

DEAR_S = 0.3  # under coverage: 0.15 s without
LEAST_LINES = 300  # with fewer, what it asks was done before it, by a fixture that others share
# laws read the text; promises of time, memory, bits and of what is left after a kill are kept by no line that could be reached
STAY = (
    "tests/laws/",
    "tests/security/",
    "tests/harness/runner/",
    "tests/harness/store/",
    "tests/harness/push/",
    "tests/harness/training/",
    "tests/harness/corpora/",
    "tests/harness/provenance/",
    "tests/harness/foreign/test_ab.py::test_a_killed_call",
    "tests/harness/foreign/test_known_experiment.py",
    "tests/harness/foreign/test_own_logs.py",
    "tests/harness/cli/test_confirm.py",
    "tests/harness/cli/test_ledger_commands.py",
    "tests/harness/cli/test_run_commands.py",
    "tests/harness/cli/test_command_line.py",
    "tests/harness/split/test_interrupt.py",
    "tests/model/test_loss.py",
    "tests/reports/page/test_command_words.py",
    "tests/reports/paper/test_figures.py",
)

Line = tuple[str, str, str, int]  # file, function, digest of its text, line from its first


def subject(tests: str) -> str:
    """The file of code that a file of tests is about, by its name."""
    folder, _, name = tests.rpartition("/")
    return f"{folder.removeprefix('tests/')}/{name.removeprefix('test_')}"


def function_of(test: str) -> str:
    """The function whose case a test is."""
    return test.partition("[")[0]


def lines_reached(known: Measured) -> dict[str, set[Line]]:
    """The lines that each quick test reaches."""
    reached = defaultdict[str, set[Line]](set)
    for file, functions in known.reached.items():
        for function, digests in functions.items():
            for digest, tests in digests.items():
                for test, mask in tests.items():
                    if test in known.seconds:
                        bits = f"{int(mask, 16):b}"[::-1]
                        lines = {
                            (file, function, digest, n) for n, bit in enumerate(bits) if bit == "1"
                        }
                        reached[test] |= lines
    return reached


def dear_doubles(known: Measured, first: Container[str]) -> list[str]:
    """The tests that may go, the dearest first; first: the tests that were the first to notice a sabotage."""
    reached = lines_reached(known)
    asked = {}  # test -> what others must reach: lines, and those it is about from its own file
    for test, lines in reached.items():
        of = file_of(test)
        asked[test] = lines | {(of, *line) for line in lines if line[0] == subject(of)}
    n = Counter(line for lines in asked.values() for line in lines)
    n_cases = Counter(map(function_of, reached))
    chosen = []
    for test in sorted(reached, key=lambda t: -known.seconds[t]):
        lines = asked[test]
        is_dear = known.seconds[test] >= DEAR_S and len(reached[test]) >= LEAST_LINES
        is_last_case = test.endswith("]") and n_cases[function_of(test)] == 1
        stays = is_last_case or test in first or test.startswith(STAY)
        if is_dear and not stays and all(n[line] > 1 for line in lines):
            chosen.append(test)
            n.subtract(lines)
            n_cases[function_of(test)] -= 1
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fates", nargs="*", type=Path, default=[FATES])
    known = Measured.load(BUILD / "measured.json")
    known.drop_gone(ROOT)
    fates = [fate for file in parser.parse_args().fates for fate in json.loads(file.read_text())]
    first = {fate["by"] for fate in fates if fate["by"]}
    chosen = dear_doubles(known, first)
    FILE.write_text("\n".join(sorted(doubles() | set(chosen))) + "\n", encoding="utf-8")
    seconds = sum(known.seconds[test] for test in chosen)
    print(f"{len(chosen)} tests of {seconds:.0f} s under coverage are slow now")


if __name__ == "__main__":
    main()
