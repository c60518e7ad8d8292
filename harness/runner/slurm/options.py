"""The options of sbatch and of a container's srun: which there are, and how a value is written.

Sources: sbatch's manual (Slurm 21.08 to 25.05) and that of pyxis, srun's containers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import UserError, near

ON = ("true", "yes", "on")
OFF = ("false", "no", "off")
# what YAML may say of an option, which is then written so for the command line; None: left out
OptionValue = str | bool | None


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """The options of a command, by how they take their value. Names are written with _."""

    one_value: frozenset[str]
    joined: frozenset[str]  # a list, by commas
    flags: frozenset[str]  # no value
    either: frozenset[str]  # a value or none
    negatable: frozenset[str] = frozenset()  # of the flags: no-NAME turns it off

    @property
    def names(self) -> frozenset[str]:
        return self.one_value | self.joined | self.flags | self.either

    def value(self, name: str, value: object) -> OptionValue:
        """A value as YAML gave it, as the option takes it. Raises UserError where it takes none.

        value: a text, "" where nothing stands, or a list of texts.
        """
        if name not in self.names:
            raise UserError(f"is not a setting of it{near(name, sorted(self.names))}")
        if isinstance(value, dict):
            raise UserError("must be one value, not a mapping")
        if isinstance(value, list):
            return self._joined(name, value)
        text = str(value)
        if name in self.flags | self.either:
            if text in ("", *ON):
                return True
            if text in OFF:
                return None
            if name in self.flags:
                raise UserError(f"is '{text}', but takes no value: write true, or leave it out")
        if text == "":
            raise UserError("needs a value")
        return text

    def _joined(self, name: str, parts: Iterable[object]) -> str:
        if name not in self.joined:
            raise UserError("takes one value, not a list")
        return ",".join(str(part) for part in parts)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SBATCH = OptionTable(
    one_value=_names(
        """account acctg_freq batch bb bbf begin chdir cluster_constraint comment constraint
        container container_id core_spec cores_per_socket cpu_freq cpus_per_gpu cpus_per_task
        deadline delay_boot dependency distribution export_file extra extra_node_info gid gpu_bind
        gpu_freq gpus gpus_per_node gpus_per_socket gpus_per_task gres_flags hint input
        kill_on_invalid_dep mail_user mcs_label mem mem_bind mem_per_cpu mem_per_gpu mincpus network
        nodefile ntasks_per_core ntasks_per_gpu ntasks_per_socket power prefer priority profile
        propagate qos reservation segment sockets_per_node switches thread_spec threads_per_core
        time time_min tmp tres_bind uid wait_all_nodes wckey"""
    ),
    joined=_names(
        """clusters exclude export gres licenses mail_type nodelist partition tres_per_job
        tres_per_node tres_per_socket tres_per_task"""
    ),
    flags=_names(
        """contiguous hold ignore_pbs no_requeue overcommit oversubscribe quiet reboot requeue
        spread_job stepmgr use_min_nodes verbose"""
    ),
    either=_names("exclusive get_user_env nice no_kill oom_kill_step x11"),
)
CONTAINER = OptionTable(
    one_value=_names("image name save workdir"),
    joined=_names("env mounts"),
    flags=_names("entrypoint entrypoint_log mount_home readonly remap_root writable"),
    either=frozenset(),
    negatable=_names("entrypoint mount_home remap_root"),
)


def container_arguments(name: str, value: object) -> list[str]:
    """Of srun, for one setting of a container. Raises UserError for what pyxis does not take."""
    option = name.replace("_", "-")
    written = CONTAINER.value(name, value)
    if written is None:
        return [f"--no-container-{option}"] if name in CONTAINER.negatable else []
    if written is True:
        return [f"--container-{option}"]
    return [f"--container-{option}={written}"]
