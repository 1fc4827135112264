"""Manifests for Kubernetes: checked against its published schemas, and for what they must say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from ptpathways import core
from ptpathways.cli import main
from ptpathways.launch.kubernetes import KubernetesOptions, manifests
from tests.scenarios import ROOT

SECRET = core.make_token()
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "script": {"script": ["train.py", "--epochs", "3"], "script_image": "example/train:2"},
    "cuda": {"platform": "cuda", "devices_per_host": 8, "island": True, "node_selector": {"gpu": "h200"}},
    "tpu": {"platform": "tpu", "devices_per_host": 4, "resources": {"memory": "16Gi"}, "namespace": "research"},
    "own secret": {"secret": "mine", "token": ""},
}


def options_of(kind: str, **others: Any) -> KubernetesOptions:
    return KubernetesOptions(**{"hosts": 4, "image": "example/worker:1", "kind": kind, "token": SECRET, **others})


def containers(found: Any) -> dict[str, Mapping[str, Any]]:
    """By name, of whatever holds some."""
    if isinstance(found, list):
        return {name: one for each in found for name, one in containers(each).items()}
    if not isinstance(found, dict):
        return {}
    own = {one["name"]: one for one in found.get("containers", [])}
    return own | containers(list(found.values()))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["jobset", "jobs"])
def test_every_object_has_the_form_that_kubernetes_publishes(kind: str, variant: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for found in manifests(options_of(kind, **VARIANTS[variant])):
        if found["kind"] == "JobSet":  # its schema is not Kubernetes's, but that of the jobs in it is
            assert found["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
            assert set(found["spec"]) <= {"network", "replicatedJobs", "successPolicy"}
            for job in found["spec"]["replicatedJobs"]:
                assert set(job) == {"name", "replicas", "template"}
                whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job["template"]}
                kubernetes_validate.validate(whole, "1.30", strict=True)
        else:
            kubernetes_validate.validate(found, "1.30", strict=True)


def test_a_worker_asks_for_its_devices_and_says_what_it_is() -> None:
    worker = containers(manifests(options_of("jobset", **VARIANTS["cuda"])))["worker"]
    assert worker["resources"]["limits"] == worker["resources"]["requests"] == {"nvidia.com/gpu": "8"}
    command = " ".join(worker["command"])
    assert "--platform cuda --devices 8" in command and "--island island0 --island-hosts 4" in command
    assert "--join ptpathways-controller-0-0.ptpathways:7450" in command


@pytest.mark.parametrize("kind", ["jobset", "jobs"])
def test_the_token_stands_in_the_secret_and_nowhere_else(kind: str) -> None:
    secret, *others = manifests(options_of(kind, script=["train.py"]))
    assert secret["stringData"] == {"token": SECRET}
    assert SECRET not in json.dumps(others) and SECRET not in repr(options_of(kind))
    for container in containers(others).values():
        variables = {variable["name"]: variable for variable in container["env"]}
        reference = variables[core.TOKEN_VARIABLE]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": secret["metadata"]["name"], "key": "token"}


def test_a_secret_of_ones_own_is_used_and_none_is_made() -> None:
    found = manifests(options_of("jobset", **VARIANTS["own secret"]))
    assert [one["kind"] for one in found] == ["JobSet"]
    assert '"secretKeyRef": {"name": "mine"' in json.dumps(found)


def test_the_set_is_over_when_the_program_is() -> None:
    (*_, found) = manifests(options_of("jobset", script=["train.py"]))
    assert found["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["program"]}
    program = found["spec"]["replicatedJobs"][-1]["template"]["spec"]
    assert program["backoffLimit"] == 0 and program["template"]["spec"]["restartPolicy"] == "Never"


def test_the_command_prints_what_kubectl_reads(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["kubernetes", "--hosts", "2", "--image", "a/b:c", "--resource", "memory=4Gi"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    found = list(yaml.safe_load_all(out))
    assert [one["kind"] for one in found] == ["Secret", "JobSet"] and "&id" not in out
    assert "PTPATHWAYS_ADDRESS=tcp://ptpathways-controller-0-0.ptpathways:7450" in err
    assert main([*arguments, "--format", "json", "train.py", "--lr", "1"]) == 0
    out, err = capsys.readouterr()
    assert [one["kind"] for one in json.loads(out)["items"]] == ["Secret", "JobSet"] and not err
    assert containers(json.loads(out))["program"]["command"] == ["python", "train.py", "--lr", "1"]


def test_the_worker_image_has_the_versions_that_are_tested() -> None:
    pinned = set((ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())
    image = (ROOT / "deploy" / "worker-requirements.txt").read_text(encoding="utf-8").splitlines()
    found = {line for line in image if not line.startswith("#")}
    assert found and found <= pinned, found - pinned
    assert not any(line.startswith("torch") for line in found)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["--hosts", "0", "--image", "a"], "--hosts must be from 1 to 10000, got 0"),
        (["--hosts", "1", "--image", ""], "--image must name a container image, got ''"),
        (["--hosts", "1", "--image", "a", "--name", "Big_Name"], "--name must be lower-case letters"),
        (["--hosts", "1", "--image", "a", "--name", "n" * 41], "at most 40 characters"),
        (["--hosts", "1", "--image", "a", "--resource", "memory"], "--resource must be NAME=VALUE, got 'memory'"),
        (["--hosts", "1", "--image", "a", "--devices-per-host", "0"], "--devices-per-host must be from 1"),
    ],
)
def test_what_kubernetes_would_not_take_is_refused(
    wrong: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubernetes", *wrong]) == 2
    assert text in capsys.readouterr().err
