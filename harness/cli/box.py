"""The commands that set up a bare machine for an experiment: printed, so that they can be read."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from harness.cli import app
from harness.cli.command import takes
from harness.cli.lookup import read_experiment
from harness.cli.options import Exp, SeedCount, Set
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment

CODE = Path(__file__).resolve().parents[2]  # the checkout, where this is one
PACKAGES = "git make gcc g++ python3-dev python3-venv rsync openssh-client"
FOLDER = "ablations"
CLIENTS = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
END, INSIDE = "END_OF_FILE", "END_OF_CONTAINER"  # of here-documents


@dataclass(frozen=True, kw_only=True)
class BoxOptions:
    """What the user asks of `ablate box`."""

    experiment: Exp
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="DEST", help="where the box sends its runs, as in `run`"),
    ] = None
    container: Annotated[
        str | None,
        typer.Option("--container", metavar="IMAGE", help="with torch in it, in place of a venv"),
    ] = None
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="what the box clones; default: origin here"),
    ] = None
    settings: Set = None
    seeds: SeedCount = None


@app.command()
@takes(BoxOptions)
def box(options: BoxOptions) -> None:
    """Print the commands that set up a bare machine for an experiment and run it there."""
    from harness.push.place import place_of

    if options.push is not None and _scheme(options.push) is None:
        place_of(options.push)
    _refuse_foreign(options.experiment)
    experiment = read_experiment(options.experiment, options.settings, options.seeds)
    steps = [
        *_system(),
        *_program(options),
        *_files(experiment),
        *_data(experiment),
        *_kernels(options, bring=True),
        *_check(),
        *_run(options),
        *_kernels(options, bring=False),
    ]
    if options.container is not None:
        steps = _contained(options.container, steps)
    print("\n".join([*_head(options), *steps]))


def _refuse_foreign(experiment: str) -> None:
    """Raises UserError for an experiment with trainers of its own."""
    from harness.experiment.file import experiment_path
    from harness.yamlfile import YamlFile

    path = experiment_path(experiment)
    if "trainer" in YamlFile(path).data:
        raise UserError(
            f"{path}: what a foreign trainer needs on a machine is not known: take the commands of"
            " `ablate box quickstart`, copy your scripts and this file, and run it there"
        )


def _head(options: BoxOptions) -> list[str]:
    return [
        f"# a bare Debian or Ubuntu machine for {options.experiment}: as root or with sudo, typed",
        "# there, or as a whole: ablate box ... >box.sh, then bash -e box.sh on the machine",
    ]


def _system() -> list[str]:
    install = f"apt-get install -y --no-install-recommends {PACKAGES}"
    return ["", "# the system", f"apt-get update && {install}"]


def _contained(image: str, steps: list[str]) -> list[str]:
    """The steps inside a container, where the machine's home is the home."""
    asked = '--rm --gpus all --ipc=host --network=host -v "$HOME":/root -w /root'
    return [
        "",
        "# in a container",
        f"docker run {asked} {shlex.quote(image)} bash -ec \"$(cat <<'{INSIDE}'",
        *steps,
        INSIDE,
        ')"',
    ]


def _program(options: BoxOptions) -> list[str]:
    """The program as it is here, in a venv; in a container on the torch that is there."""
    from harness.provenance.redact import redact

    commit, origin = said_by_git("rev-parse", "HEAD"), said_by_git("remote", "get-url", "origin")
    source = options.source or redact(origin)
    if not commit and options.source is None:
        raise UserError("this is no checkout: say with --from URL what the box is to clone")
    lines = ["", "# the program"]
    if said_by_git("status", "--porcelain", "--untracked-files=no"):
        lines += ["# files here differ from the last commit: commit them, or the box runs others"]
    if not source:
        source = f"{FOLDER}.bundle"
        there = shlex.quote(str(CODE))
        lines += [
            "# no origin here: first, on this machine, with the box's name for BOX:",
            f"#   git -C {there} bundle create /tmp/{source} HEAD && scp /tmp/{source} BOX:",
        ]
    lines += [f"git clone {shlex.quote(source)} {FOLDER}", f"cd {FOLDER}"]
    if commit:
        lines.append(f"git checkout --quiet {commit}")
    library = CLIENTS.get(_scheme(options.push) or "", "")
    asked = f"-e '.[push]' {library}".rstrip()
    if options.container is None:
        install = f"pip install -c constraints.txt {asked}"
        return [*lines, "make install", "source .venv/bin/activate", install]
    venv = "python3 -m venv --system-site-packages .venv && source .venv/bin/activate"
    return [*lines, venv, f"pip install {asked}"]


def _scheme(place: str | None) -> str | None:
    """What a URL begins with that fsspec must know; None where a place is none."""
    scheme, colon, _ = (place or "").partition("://")
    return scheme if colon and scheme != "ssh" else None


def said_by_git(*arguments: str) -> str:
    """What git says of the checkout, empty where it says nothing."""
    from harness.provenance.git import git

    try:
        return (git(CODE, *arguments) or b"").decode("utf-8", "replace").strip()
    except UserError:
        return ""


def _files(experiment: "Experiment") -> list[str]:
    """The experiment's file and its plug-ins, where the program does not bring them."""
    from harness.config import plugins

    lines = []
    for path in (experiment.path, *plugins.paths()):
        if path.resolve().is_relative_to(CODE / "experiments"):
            continue
        if path.is_absolute() or ".." in path.parts:
            raise UserError(f"{path}: call this where the experiment's files are, by its own name")
        text = path.read_text(encoding="utf-8")
        if END in text:
            raise UserError(f"{path}: has a line with {END}, at which the box would cut it")
        if path.parent != Path():
            lines.append(f"mkdir -p {shlex.quote(str(path.parent))}")
        lines += [f"cat >{shlex.quote(str(path))} <<'{END}'", text.rstrip("\n"), END]
    return ["", "# the experiment's own files", *lines] if lines else []


def _data(experiment: "Experiment") -> list[str]:
    """Every corpus that an arm reads: prepared there, or sent from here."""
    from harness.corpora.corpus import data_root
    from harness.corpora.index import KNOWN

    names: dict[str, None] = {}
    for arm in experiment.arms:
        data = arm.config.data
        names[data.corpus] = None
        if data.heldout:
            names[data.heldout] = None
    lines = ["", "# the data", 'export ABLATE_DATA="$PWD/data"']
    for name in names:
        if name in KNOWN:
            lines.append(f"ablate data prepare {name}")
            continue
        here = shlex.quote(str((data_root() / name).resolve()))
        lines += [
            f"mkdir -p data/{name}",
            "# your own text: on this machine, with the box's name for BOX:",
            f"#   rsync -rt {here}/ BOX:{FOLDER}/data/{name}/",
        ]
    return [*lines, "ablate data list"]


def _kernels(options: BoxOptions, *, bring: bool) -> list[str]:
    """Compiled kernels of an earlier box, or those of this one for a later box."""
    ours = '"$ABLATE_CACHE/kernels-$(id -u)/"'
    lines = []
    if bring:
        lines = ["", "# compiled kernels, else the first run of every configuration compiles"]
        lines += ['export ABLATE_CACHE="$PWD/cache"', f"mkdir -p {ours}"]
    theirs = _by_rsync(options.push)
    if theirs is None:
        return lines
    if bring:
        return [*lines, f"rsync -rtp {theirs} {ours} || true  # none yet"]
    return ["", "# its kernels for the next box", f"rsync -rtp {ours} {theirs}"]


def _by_rsync(place: str | None) -> str | None:
    """Where kernels lie beside the runs of a place, as rsync is told; None where it cannot."""
    if place is None or _scheme(place) is not None:
        return None
    if "://" not in place:
        return shlex.quote(f"{place}/kernels/")
    url = urlsplit(place)
    host = shlex.quote(f"{url.netloc.removesuffix(f':{url.port}')}:{url.path}/kernels/")
    return f"-e 'ssh -p {url.port}' {host}" if url.port else host


def _check() -> list[str]:
    return [
        "",
        "# the check",
        "ablate doctor",
        "# make gpu-check    # kernels, speed and memory of its GPUs: up to 20 minutes",
    ]


def _run(options: BoxOptions) -> list[str]:
    command = ["ablate", "run", options.experiment]
    for setting in options.settings or ():
        command += ["--set", setting]
    if options.seeds is not None:
        command += ["--seeds", str(options.seeds)]
    if options.push is None:
        return ["", "# the runs", shlex.join(command)]
    command += ["--push", options.push, "--pull"]
    return ["", "# the runs; the next box goes on with the same command", shlex.join(command)]
