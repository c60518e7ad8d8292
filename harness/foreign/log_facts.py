"""What a log says of the machine that made it, and of its seed."""

from dataclasses import dataclass, field

from harness.foreign.log_lines import GPU, GPU_MEMORY, MEMORY, SEED, VERSIONS
from harness.run.environment import SHOWN_VERSIONS


@dataclass(kw_only=True)
class LogFacts:
    """What a log says of the machine that made it."""

    versions: dict[str, str] = field(default_factory=dict)  # of VERSIONS
    memory: dict[str, int] = field(default_factory=dict)  # of MEMORY, MiB
    gpus: list[str] = field(default_factory=list)  # names; empty where there is no table of them
    gpu_memory_mib: int | None = None  # of one
    seed: int | None = None  # that the script says it used

    def feed(self, line: bytes) -> None:
        """Read one line; most say nothing."""
        for name, pattern in VERSIONS.items():
            match = pattern.match(line)
            if match is not None:
                self.versions[name] = match[1].decode()
        for name, pattern in MEMORY.items():
            match = pattern.match(line)
            if match is not None:
                self.memory[name] = int(match[1])
        match = GPU.match(line)
        if match is not None:
            self.gpus.append(match[1].decode().strip())
        match = GPU_MEMORY.match(line)
        if match is not None:
            self.gpu_memory_mib = int(match[1])
        match = SEED.match(line)
        if match is not None:
            self.seed = int(match[1])


MIB_OF_GB = 1000**3 / 1024**2


def machine_words(facts: LogFacts) -> tuple[str, ...]:
    """What is known of a machine, each in words: GPUs, driver, CUDA and torch."""
    phrases = []
    if facts.gpus:
        names = "/".join(sorted(set(facts.gpus)))
        phrases.append(f"{len(facts.gpus)} x {names}")
    if facts.gpu_memory_mib is not None:
        phrases.append(f"{round(facts.gpu_memory_mib / MIB_OF_GB)} GB each")
    for name, word in SHOWN_VERSIONS.items():
        if name in facts.versions:
            phrases.append(f"{word} {facts.versions[name]}")
    return tuple(phrases)
