"""cluster.yaml: every setting is known, every mistake is told with its place, values are written as their options take them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.runner.slurm.cluster import Cluster, read_cluster


def mistakes(folder: Path, text: str) -> list[str]:
    """What is said of a file, its own name taken off."""
    (folder / "cluster.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        read_cluster(folder / "cluster.yaml")
    return str(error.value).replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device: gpu", "'device' is 'gpu', but must be cuda or cpu"),
        ("array: 0-3", "'array' is what `ablate run` sets itself"),
        ("requeues: many", "'requeues' is 'many', but must be a whole number"),
        ("acount: lab", "'acount' is not a setting, nor an option of sbatch"),
        ("acount: lab", "did you mean 'account'?"),
        ("pyhton: /venv/bin/python", "did you mean 'python'?"),
        ("setpu: [a]", "did you mean 'setup'?"),
        ("container: {imge: x}", "'imge' is not a setting of it; did you mean 'image'?"),
        ("container: {mounts: /data}", "'container' says no image"),
        ("container: [x.sqsh]", "'container' must be an image, or a mapping"),
        ("container: {image: [a, b]}", "'image' takes one value, not a list"),
        ("container: {image: a, writable: 3}", "'writable' is '3', but takes no value"),
        ("constraint: [a, b]", "'constraint' takes one value, not a list"),
        ("qos: {high: 1}", "'qos' must be one value, not a mapping"),
        ("account:", "'account' needs a value"),
        ("contiguous: 4", "'contiguous' is '4', but takes no value"),
        ("python: [a]", "'python' must be one text"),
        ("setup: {a: b}", "'setup' must be a text, or a list of texts"),
        ("sbatch: gres", "'sbatch' must be a mapping of options"),
        ("signal_delay_s: -1", "'signal_delay_s' is '-1', but must be a whole number"),
        ("python: ''", "'python' must be one text"),
        ("setup: [[a]]", "'setup' must be a text, or a list of texts"),
        ("container: {}", "'container' says no image"),
    ],
)
def test_what_is_no_setting_is_one_line_with_its_place(
    tmp_path: Path, text: str, words: str, kept_line: Callable[[str], None]
) -> None:
    [said] = mistakes(tmp_path, f"partition: gpu\n{text}\n")
    assert said.startswith("cluster.yaml:2: ")
    assert words in said
    kept_line(said)


def test_every_mistake_of_a_file_is_told(tmp_path: Path) -> None:
    said = mistakes(tmp_path, "acount: lab\nrequeues: many\ncontainer:\n  image: a\n  mont: b\n")
    assert [line.partition(": ")[0] for line in said] == [
        "cluster.yaml:1",
        "cluster.yaml:2",
        "cluster.yaml:5",
    ]


def test_without_a_name_it_is_the_file_in_this_folder_or_every_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_cluster(None) == Cluster()
    (tmp_path / "cluster.yaml").write_text("account: lab\n")
    assert read_cluster(None) == read_cluster(tmp_path / "cluster.yaml") != Cluster()


def test_lists_are_joined_and_booleans_are_flags(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "mail-type: [END, FAIL]\n--nodelist: [n1, n2]\nexclusive: true\nhold: false\n"
        "nice: 5\nx11:\nno_kill: off\nquiet: yes\nsetup: |\n  one\n  two\nrequeues: 0\n"
        "container:\n  image: a.sqsh\n  mounts: [/data:/data, /home]\n  mount-home: false\n"
        "  writable: true\n  readonly: false\n"
        "sbatch: {our-license: 3, fast: true}\n"
    )
    site = read_cluster(file)
    assert site.sbatch == {
        "mail_type": "END,FAIL",
        "nodelist": "n1,n2",
        "exclusive": True,
        **{"nice": "5", "x11": True, "quiet": True},
        "our_license": "3",
        "fast": True,
    }
    assert (site.setup, site.requeues, site.signal_delay_s) == (("one", "two"), 0, 90)
    assert site.container == (
        "--container-image=a.sqsh",
        "--container-mounts=/data:/data,/home",
        "--no-container-mount-home",
        "--container-writable",
    )
