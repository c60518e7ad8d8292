"""The manifests of docs/clusters.md: that of KubeRay as it is documented, that of SkyPilot by its own reader."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DOCS = Path(__file__).parents[4] / "docs/clusters.md"
READ = """
import sys, yaml
from sky import Task
task = Task.from_yaml_config(yaml.safe_load(sys.stdin))
(resources,) = task.resources
print(task.num_nodes, resources.accelerators)
"""


def manifest(name: str) -> str:
    found = re.search(rf"^```yaml {name}\n(.*?)^```", DOCS.read_text(), re.M | re.S)
    assert found is not None
    return found[1]


def pods(job: Any) -> list[Any]:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_every_pod_of_the_ray_job_has_the_image_the_data_and_the_shared_folder() -> None:
    job = yaml.safe_load(manifest("kuberay"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    for pod in pods(job):
        [container], [volume] = pod["containers"], pod["volumes"]
        assert container["image"] == pods(job)[0]["containers"][0]["image"]
        [mount] = container["volumeMounts"]
        assert mount["name"] == volume["name"]
        assert container["env"][0]["value"].startswith(mount["mountPath"])
    assert "--results /shared/" in job["spec"]["entrypoint"]


def test_skypilot_reads_its_task() -> None:
    python = os.environ.get("ABLATE_SKYPILOT")
    if not python:
        pytest.skip("SkyPilot is not installed: name its Python in ABLATE_SKYPILOT")
    done = subprocess.run(
        [python, "-c", READ],
        input=manifest("skypilot"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "{'H100':", "8}"]
