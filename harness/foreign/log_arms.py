"""Which arm a log belongs to: an arm never mixes programs, numbers of steps or machines.

Named by its folder and its role there: `2025-09-05_SkipMLPBlocks/candidate` and `/baseline`.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ROLES_OF_BASELINE = frozenset(
    (
        *("base", "baseline", "before", "comparison", "control", "current", "main", "master"),
        *("old", "previous", "prior", "ref", "reference", "retime", "retimed", "retiming"),
    )
)
# A folder of one run, or of all of them: says nothing of the program
PLAIN_FOLDER = re.compile(
    r"(?:(?:seed|run|trial|rep|log|logs|runs|results|stdout|output|outputs)[_ -]?\d*|\d+)",
    re.IGNORECASE,
)
WORD = re.compile(r"[a-z]+")
SEED = re.compile(r"seed[_ -]?(\d{1,18})(?!\d)", re.IGNORECASE)
CODE_DIGITS = 6  # of a digest, where nothing else tells programs apart
BASELINE, CANDIDATE = "baseline", "candidate"


class ArmBy(enum.StrEnum):
    """What makes an arm of logs."""

    CODE = "code"  # folder and program, steps and machine
    FOLDER = "folder"  # the folder alone, whatever it holds
    SUBFOLDER = "subfolder"  # the folder and those in it


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where a log was found."""

    folder: str  # of the record
    inner: tuple[str, ...] = ()  # folders in it
    name: str = ""  # of the file

    @property
    def role(self) -> str:
        """baseline or candidate, as its folders' names and its own say."""
        for part in (*self.inner, self.name):
            if ROLES_OF_BASELINE.intersection(WORD.findall(part.lower())):
                return BASELINE
        return CANDIDATE

    @property
    def informative_folders(self) -> tuple[str, ...]:
        """The folders that tell programs apart, without those of single runs."""
        return tuple(part for part in self.inner if not PLAIN_FOLDER.fullmatch(part))

    @property
    def seed(self) -> int | None:
        """The seed that the path names, if it names one."""
        for part in reversed((*self.inner, self.name)):
            match = SEED.search(part)
            if match is not None:
                return int(match[1])
        return None


@dataclass(frozen=True, kw_only=True)
class Program:
    """What the runs of one arm share."""

    code: str | None  # digest of the program; None where the log has none
    steps: int
    machine: tuple[str, ...] = ()  # what is known of GPUs, driver, CUDA and torch, in words


def name_arms(logs: Sequence[tuple[LogPlace, Program]], by: ArmBy) -> list[str]:
    """The arm of every log, in order."""
    if by is ArmBy.FOLDER:
        return [place.folder for place, _ in logs]
    if by is ArmBy.SUBFOLDER:
        return ["/".join((place.folder, *place.inner)) for place, _ in logs]
    groups: dict[tuple[str, tuple[str, ...], str], list[Program]] = {}
    in_folder: dict[str, set[object]] = {}
    for place, program in logs:
        programs = groups.setdefault(_group(place), [])
        if program not in programs:
            programs.append(program)
        in_folder.setdefault(place.folder, set()).add((_group(place), program))
    names = []
    for place, program in logs:
        name = place.folder
        if len(in_folder[place.folder]) > 1:
            name = _name_in_folder(place, groups)
        names.append(name + _suffix(program, groups[_group(place)]))
    return names


def _group(place: LogPlace) -> tuple[str, tuple[str, ...], str]:
    """Logs that the names of folders and files do not tell apart."""
    return place.folder, place.informative_folders, place.role


def _name_in_folder(
    place: LogPlace, groups: Mapping[tuple[str, tuple[str, ...], str], object]
) -> str:
    """A name among several of the folder: by the folders in it, by the role where they are none."""
    parts = [place.folder, *place.informative_folders]
    other_role = CANDIDATE if place.role == BASELINE else BASELINE
    has_both = (place.folder, place.informative_folders, other_role) in groups
    if not place.informative_folders or has_both:
        parts.append(place.role)
    return "/".join(parts)


def _suffix(program: Program, others: Iterable[Program]) -> str:
    """What tells a program from others of the same name; empty where there is none."""
    rest = [other for other in others if other != program]
    if not rest:
        return ""
    parts = []
    if any(other.code != program.code for other in rest):
        code = "without code"
        if program.code is not None:
            code = f"code {program.code[:CODE_DIGITS]}"
        parts.append(code)
    if any(other.steps != program.steps for other in rest):
        parts.append(f"{program.steps} steps")
    told: set[str] = set()
    for other in rest:
        told |= set(program.machine) - set(other.machine)
    parts += [part for part in program.machine if part in told]
    if not parts:
        parts.append("unknown machine")
    return f" ({', '.join(parts)})"


def mixed_words(programs: Iterable[Program]) -> str | None:
    """What an arm mixes, in words; None where its runs share a program, steps and a machine."""
    distinct = set(programs)
    counts = (
        (len({program.code for program in distinct}), "programs"),
        (len({program.steps for program in distinct}), "numbers of steps"),
        (len({program.machine for program in distinct}), "machines or environments"),
    )
    several = []
    for n, what in counts:
        if n > 1:
            several.append(f"{n} {what}")
    return ", ".join(several) or None
