"""What a recipe says, fact by fact: None where no run tells it, a list where the runs differ."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from harness.run.document import Document
from harness.run.plural import plural
from reports.analysis.recipe import Recipe, distinct

OneRun = TypeVar("OneRun")  # what a run wrote
RATE = "_lr"  # how the names of learning rates end
KERNELS = {  # setting -> how it is said
    "model.attn_kernel": "{} attention",
    "model.attn_mask": "{} mask",
    "optim.muon_backend": "{} in Muon",
    "system.compile": "{}",
}
COMPILED = {"auto": "compiled on CUDA alone", "on": "compiled", "off": "not compiled"}
ON_PROCESSORS = {**COMPILED, "auto": "not compiled (no CUDA)"}
SUBSTITUTE = re.compile(r"(?P<field>\S+)=(?P<asked>\S+) by (?P<used>\S+) \((?P<why>[^)]+)\)")
REPLACED = {  # setting that a device replaces -> how that is said
    "model.attn_kernel": "{used} attention for {asked} ({why})",
    "precision.mode": "{used} for the record's number formats ({why})",
}
POLICIES = {
    "autocast": "fp32 weights under bf16 autocast",
    "bf16_model": "bf16, the linear layers' weights in fp32",
    "bf16_embeds": "fp32 weights under bf16 autocast, embeddings in bf16",
}


def one_or_all(values: Iterable[Any]) -> Any:
    """The value that all have, a list of several, None of none."""
    several = distinct(values)
    if not several:
        return None
    if len(several) == 1:
        return several[0]
    return several


def alike_or_by_arm(runs: Mapping[str, Sequence[OneRun]], told: Callable[[OneRun], Any]) -> Any:
    """What the runs of all arms tell alike, else arm -> what its own do; None of none.

    runs: of every arm."""
    of_arms = {}
    for arm, of_arm in runs.items():
        value = one_or_all(sorted(distinct(map(told, of_arm))))
        if value is not None:
            of_arms[arm] = value
    several = distinct(of_arms.values())
    return several[0] if len(several) == 1 else of_arms or None


def base(r: Recipe) -> str | None:
    if r.plan.imported or r.plan.foreign or not r.plan.base:
        return None
    return f"{r.plan.base} at scale {r.plan.scale}"


def departures(r: Recipe) -> list[str] | None:
    """What the baseline has otherwise than its record at its scale; None where nobody knows."""
    if base(r) is None or r.plan.departures is None:
        return None
    lines = []
    for field, of_record in r.plan.departures.items():
        here = one_or_all(r.of_baseline(field))
        lines.append(f"{field} {setting_words(here)} ({r.plan.base}: {setting_words(of_record)})")
    return lines


def setting_words(value: Any) -> str:
    """A setting as a person reads it."""
    if value is None or value is False:
        return "off"
    if value is True:
        return "on"
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def layers(r: Recipe) -> Any:
    return one_or_all(r.of_baseline("model.n_layer"))


def width(r: Recipe) -> Any:
    return one_or_all(r.of_baseline("model.d_model"))


def n_heads(r: Recipe) -> Any:
    widths, sizes = r.of_baseline("model.d_model"), r.of_baseline("model.head_dim")
    if len(widths) != 1 or len(sizes) != 1:
        return None
    return widths[0] // sizes[0]


def parameters(r: Recipe) -> Any:
    return alike_or_by_arm(r.results_by_arm, lambda result: result.parameters)


def seq_len(r: Recipe) -> Any:
    return one_or_all(r.of_baseline("data.seq_len"))


def batch_tokens(r: Recipe) -> Any:
    return one_or_all(r.of_baseline("data.batch_tokens"))


def steps(r: Recipe) -> Any:
    if r.budget is not None:
        return r.budget
    if r.plan.foreign and r.steps:  # a script's own, which no plan knows
        return one_or_all(list(r.steps))
    return alike_or_by_arm(r.by_arm, lambda document: document.get("budget"))


def tokens(r: Recipe) -> Any:
    """What the runs measured, else the steps times the tokens of a step.

    None where either is unknown, or the steps differ, or batches grow.
    """
    measured = alike_or_by_arm(r.results_by_arm, lambda result: result.tokens)
    if measured is not None or any(r.of_baseline("schedule.batch_growth")):
        return measured
    of_step, n_steps = batch_tokens(r), steps(r)
    if not isinstance(of_step, int) or not isinstance(n_steps, int):
        return None
    return of_step * n_steps


def rates(r: Recipe) -> str | None:
    fields: dict[str, None] = {}
    for settings in r.settings[r.plan.baseline]:
        names = [name for name in settings if name.startswith("optim.") and name.endswith(RATE)]
        fields |= dict.fromkeys(names)
    lines = []
    for field in fields:
        values = [value for value in r.of_baseline(field) if value is not None]
        if values:
            written = " or ".join(f"{value:.4g}" for value in values)
            lines.append(f"{field.partition('.')[2]} {written}")
    return ", ".join(lines) or None


def rates_and_source(r: Recipe) -> str | None:
    """Learning rates, with what the scale says of where they are from; not of others' rates."""
    written = rates(r)
    of_others = any(field.endswith(RATE) for field in r.plan.departures or ())
    if written is None or r.plan.scale_rates is None or of_others:
        return written
    return f"{written}; at scale {r.plan.scale} {r.plan.scale_rates}"


def precision(r: Recipe) -> Any:
    """In words; the policy of a record has no say where all is fp32."""
    modes, said = r.of_baseline("precision.mode"), []
    if modes != ["fp32"]:
        said = [POLICIES.get(policy, policy) for policy in r.of_baseline("precision.policy")]
    if "fp32" in modes:
        said.append("fp32 throughout")
    return one_or_all(said or modes)


def kernels(r: Recipe) -> str | None:
    """What ran, part by part; None where no run tells one."""
    said = []
    for field, pattern in KERNELS.items():
        values = [setting_words(value) for value in r.of_baseline(field) if value is not None]
        if field == "system.compile":
            said_of = ON_PROCESSORS if on_processors(r) else COMPILED
            values = [said_of.get(value, value) for value in values]
        if values:
            said.append(pattern.format(" or ".join(values)))
    return ", ".join(said) or None


def on_processors(r: Recipe) -> bool:
    """Whether every run is known to have had no GPU."""
    return bool(r.environments) and all(e.get("gpus") == [] for e in r.environments)


def substituted(r: Recipe) -> list[str] | None:
    """What the device replaced, [] for nothing; None where no run tells."""
    if base(r) is None:
        return None
    told = [document for document in r.documents if "substituted" in document]
    if not told:
        planned = [substitute_words(note) for arm in r.plan.arms for note in arm.substituted]
        return distinct(planned) or None
    notes = [note for document in told for note in document["substituted"]]
    return distinct(map(substitute_words, notes))


def substitute_words(note: str) -> str:
    """What a device replaced as a person reads it, of what a run noted with the setting's name."""
    match = SUBSTITUTE.fullmatch(note)
    if match is None or match["field"] not in REPLACED:
        return note
    return REPLACED[match["field"]].format(**match.groupdict())


def corpus(r: Recipe) -> str | None:
    if r.plan.corpus.name == "unknown":
        return None
    return f"{r.plan.corpus.name}, fingerprint {str(r.plan.corpus.fingerprint)[:16]}"


def corpus_tokens(r: Recipe) -> int | None:
    return r.plan.corpus.tokens


def heldout(r: Recipe) -> str | None:
    if base(r) is None:
        return None
    if not r.plan.corpus.heldout:
        return "none"
    of_text = r.plan.corpus.heldout
    return f"{of_text['name']}, fingerprint {of_text['fingerprint'][:16]}"


def devices(r: Recipe) -> Any:
    """Names of the accelerators, of the processors where there is none.

    Where no environment was recorded, what the rows of runs say.
    """
    if not r.environments:
        return one_or_all(r.accelerators)
    names = []
    for environment in r.environments:
        gpus = environment.get("gpus")
        if not gpus:
            names.append(environment.get("cpu"))
        elif isinstance(gpus[0], Mapping):
            names.append(str(gpus[0].get("name")))
        else:
            names.append(str(gpus[0]))
    return one_or_all(names)


def device_count(r: Recipe) -> Any:
    """Ranks of a run, each of which has a device; of a log nobody knows them."""
    if r.plan.imported or r.plan.evidence:
        return None
    return one_or_all(document.get("world_size") for document in r.documents)


def dates(r: Recipe) -> str | None:
    started = sorted(str(result.started)[:10] for result in r.results if result.started)
    if not started:
        return None
    if started[0] == started[-1]:
        return started[0]
    return f"{started[0]} to {started[-1]}"


def code_digests(r: Recipe) -> Any:
    """Digests of the sources that ran."""
    return one_or_all((document.get("source") or {}).get("digest") for document in r.documents)


def commits(r: Recipe) -> Any:
    return one_or_all(commit_words(environment.get("git")) for environment in r.environments)


def commit_words(git: Document | None) -> str | None:
    """The commit, and whether the folder held what was in none."""
    commit = (git or {}).get("commit") or (git or {}).get("sha")
    if git is None or not commit:
        return None
    text = str(commit)[:12]
    if git.get("diff_sha256") or (git.get("dirty") and not git.get("untracked")):
        text += ", with changes not committed"
    if git.get("untracked"):
        text += f", with {plural(git['untracked'], 'untracked file')}"
    return text


def plugins(r: Recipe) -> list[str]:
    """The plug-ins that the runs executed, with the digests of their code."""
    names = []
    for document in r.documents:
        for name, digest in ((document.get("source") or {}).get("files") or {}).items():
            if name.startswith("plugin/"):
                names.append(f"{name} {digest}")
    return distinct(names)
