"""A YAML file that cannot be read is refused in one line with its place, whatever is wrong with it."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.yamlfile import YamlFile, parse_value

WRONG = {
    "a mapping that is not closed": ("question: {a: 1\n", "not valid YAML"),
    "a date that no calendar has": ("question: 2001-99-99\n", "not valid YAML"),
    "a letter that no YAML has": ("question: \x01\n", "not valid YAML"),
    "a list in a list, and so on": ("a: " + "[" * 100_000, "not valid YAML: more than 64 lists"),
    "a list that holds itself": (
        "a: 1\nb: &b [*b]\n",
        "x.yaml:2: not valid YAML: an alias of nothing",
    ),
    "aliases of aliases": (
        "a: &a [1, 1]\n"
        + "".join(f"{k}: &{k} [{', '.join([f'*{j}'] * 99)}]\n" for j, k in ("ab", "bc", "cd")),
        "not valid YAML: more than 200000 values",
    ),
    "a letter beyond all": ('question: "\\U00110000"\n', "x.yaml:1: not valid YAML"),
    "a letter far beyond all": ('question: "\\UFFFFFFFF"\n', "x.yaml:1: not valid YAML"),
    "a version that there is not": (
        f"%YAML 1.{'9' * 5000}\n---\na: 1\n",
        "x.yaml:1: not valid YAML",
    ),
    "a tab": ("a:\n\t- b\n", r"x.yaml:2: not valid YAML: found character '\\t'"),
    "nothing": ("# a comment\n", "the file is empty"),
    "a list": ("- a\n- b\n", "must be a mapping"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_yaml_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    text, said = WRONG[what]
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        YamlFile(path)
    assert str(error.value).startswith(f"{path}") and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "&a [*a]", "*a", "[1", '"\\UFFFFFFFF"'])
def test_a_value_that_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--set: cannot read the value"):
        parse_value(text)


def test_a_key_in_a_list_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a:\n- b: 1\n- c:\n    d: 2\n")
    file = YamlFile(path)
    assert file.where("a", "", "b") == f"{path}:2"
    assert file.where("a", "", "c", "d") == f"{path}:4"
