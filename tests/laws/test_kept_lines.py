"""Every line that is kept is of a test that there is, and takes it."""

import re

import yaml

from tests.kept_lines import FOLDER, TESTS, file_of

TAKES = re.compile(r"^def (test_\w+)\([^)]*\bkept_line\b", re.MULTILINE)


def test_lines_are_kept_of_the_tests_that_take_them_and_of_no_others() -> None:
    takers = {}
    for path in TESTS.rglob("test_*.py"):
        names = set(TAKES.findall(path.read_text(encoding="utf-8")))
        if names:
            takers[file_of(path).name] = names
    kept = {}
    for file in FOLDER.iterdir():
        cases = yaml.safe_load(file.read_text(encoding="utf-8"))
        kept[file.name] = {case.partition("[")[0] for case in cases}
    assert kept == takers
