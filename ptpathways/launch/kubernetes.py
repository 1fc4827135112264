"""Under Kubernetes: manifests of a cluster. Nothing here talks to an API server; ``kubectl apply`` does.

A cluster is a pod with the controller, one pod per host with a worker, and, if a script is given, a pod with the
program. They are jobs of one JobSet (jobset.x-k8s.io/v1alpha2), which names their pods and removes them together; or,
where JobSet is not installed, plain jobs (batch/v1) and a headless service for their names. The join token is a Secret;
pods take it from their environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptpathways import core

CONTROL_PORT = 7450
DATA_PORT = 7451
KINDS = ("jobset", "jobs")
PLATFORMS = ("cpu", "cuda", "tpu")

_DEVICES = {"cpu": "cpu", "cuda": "nvidia.com/gpu", "tpu": "google.com/tpu"}
"""The resource that a worker asks for, one for each of its devices."""
_MOST_HOSTS = 10_000
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
"""As Kubernetes reads quantities of resources."""
_NAME_LENGTH = 40
"""Of the cluster's name: pods' names are longer, and a host name has at most 63 characters."""
_RESTARTS = 20
"""Of a worker's pod: it ends when no controller answers for 30 s, for example while images are pulled."""
_TOKEN_KEY = "token"

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """What the manifests say.

    Raises:
        InvalidOption: a name that Kubernetes does not take, or a number out of range.
    """

    hosts: int
    image: str
    """Of controller and workers; it needs no torch."""
    name: str = "ptpathways"
    """Of the cluster: its objects' names begin with it."""
    namespace: str = ""
    """Empty: the one that ``kubectl`` is set to."""
    kind: str = "jobset"
    platform: str = "cpu"
    devices_per_host: int = 1
    resources: Mapping[str, str] = field(default_factory=dict)
    """More of what each worker asks for, and its limit: ``{"memory": "16Gi"}``."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes on which workers run."""
    island: bool = False
    """The workers are one island: cpu hosts that compute together, or accelerators whose plugins make one client."""
    secret: str = ""
    """A Secret that exists, with the join token under ``token``; empty: ``token`` becomes one."""
    token: str = field(default="", repr=False)
    script: Sequence[str] = ()
    """The program and its arguments, as they are called in the pod; empty: programs attach from elsewhere."""
    script_image: str = ""
    """Of the program's pod, with torch and the script in it; empty: ``image``."""

    def __post_init__(self) -> None:
        for option, value, longest in (
            ("--name", self.name, _NAME_LENGTH), ("--namespace", self.namespace, 63), ("--secret", self.secret, 253)
        ):  # fmt: skip
            if value and (len(value) > longest or not _LABEL.fullmatch(value)):
                raise core.InvalidOption(
                    f"{option} must be lower-case letters, digits and '-', begin with a letter and have at most "
                    f"{longest} characters, got {value[:80]!r}"
                )
        if not self.name:
            raise core.InvalidOption("--name must not be empty")
        for option, image in (("--image", self.image), ("--script-image", self.script_image or self.image)):
            if not image or not image.isprintable() or " " in image:
                raise core.InvalidOption(f"{option} must name a container image, got {image[:80]!r}")
        if not 1 <= self.hosts <= _MOST_HOSTS:
            raise core.InvalidOption(f"--hosts must be from 1 to {_MOST_HOSTS}, got {self.hosts}")
        if not 1 <= self.devices_per_host <= 1024:
            raise core.InvalidOption(f"--devices-per-host must be from 1 to 1024, got {self.devices_per_host}")
        for option, one, known in (("--kind", self.kind, KINDS), ("--platform", self.platform, PLATFORMS)):
            if one not in known:
                raise core.InvalidOption(f"{option} must be one of {', '.join(known)}, got {one!r}")
        for resource, quantity in self.resources.items():
            if not _QUANTITY.fullmatch(quantity):
                raise core.InvalidOption(
                    f"--resource {resource} must be a quantity of Kubernetes, such as 4, 500m or 16Gi, got {quantity!r}"
                )
        if bool(self.secret) == bool(self.token):
            raise core.InvalidOption("exactly one of an existing Secret and a token is needed")


def manifests(options: KubernetesOptions) -> list[Manifest]:
    """The objects to apply, in order: the token's Secret unless it exists, then what runs."""
    found: list[Manifest] = []
    if not options.secret:
        found.append(
            {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(options, f"{options.name}-token"),
             "type": "Opaque", "stringData": {_TOKEN_KEY: options.token}}
        )  # fmt: skip
    jobs = _jobs(options)
    if options.kind == "jobset":
        found.append(_job_set(options, jobs))
    else:
        found.append(_service(options))
        found += [
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(options, f"{options.name}-{part}"),
             "spec": spec}
            for part, spec in jobs.items()
        ]  # fmt: skip
    return found


def controller_host(options: KubernetesOptions) -> str:
    """The controller's name in the cluster's DNS, from pods of its namespace."""
    middle = "controller-0-0" if options.kind == "jobset" else "controller-0"
    return f"{options.name}-{middle}.{options.name}"


def _job_set(options: KubernetesOptions, jobs: Mapping[str, Manifest]) -> Manifest:
    spec: Manifest = {
        "network": {"enableDNSHostnames": True, "subdomain": options.name, "publishNotReadyAddresses": True},
        "replicatedJobs": [
            {"name": part, "replicas": 1, "template": {"spec": job_spec}} for part, job_spec in jobs.items()
        ],
    }
    if options.script:  # the others would serve for ever
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["program"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata(options, options.name),
        "spec": spec,
    }  # fmt: skip


def _service(options: KubernetesOptions) -> Manifest:
    """Without an address of its own: it gives the pods their names."""
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": _metadata(options, options.name),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _labels(options)},
    }  # fmt: skip


def _jobs(options: KubernetesOptions) -> dict[str, Manifest]:
    """Part of the cluster to the spec of its job."""
    controller = controller_host(options)
    worker = [
        "ptpathways", "worker", "--join", f"{controller}:{CONTROL_PORT}", "--platform", options.platform,
        "--devices", str(options.devices_per_host), "--name", "host$(JOB_COMPLETION_INDEX)",
        "--data-endpoint", f"tcp://0.0.0.0:{DATA_PORT}", "--advertise", "$(POD_IP)",
    ]  # fmt: skip
    if options.island:
        worker += ["--island", "island0"]
        if options.platform != "cpu":
            worker += ["--island-hosts", str(options.hosts)]
    resources = {_DEVICES[options.platform]: str(options.devices_per_host), **options.resources}
    jobs = {
        "controller": _job(
            options,
            _container(
                options, "controller", options.image, CONTROL_PORT, {},
                ["ptpathways", "controller", "--bind", f"tcp://0.0.0.0:{CONTROL_PORT}", "--advertise", controller],
            ),
        ),
        "worker": _job(
            options, _container(options, "worker", options.image, DATA_PORT, resources, worker), pods=options.hosts
        ),
    }  # fmt: skip
    if options.script:
        program = _container(
            options, "program", options.script_image or options.image, 0, {}, ["python", *options.script]
        )
        program["env"].append({"name": "PTPATHWAYS_ADDRESS", "value": f"tcp://{controller}:{CONTROL_PORT}"})
        jobs["program"] = _job(options, program, restarts=0)
    return jobs


def _job(options: KubernetesOptions, container: Manifest, pods: int = 1, restarts: int = _RESTARTS) -> Manifest:
    pod: Manifest = {
        "subdomain": options.name,
        "restartPolicy": "OnFailure" if restarts else "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    if options.kind == "jobset":
        del pod["subdomain"]  # JobSet's own
    if container["name"] == "worker" and options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": restarts * pods,
        "template": {"metadata": {"labels": _labels(options)}, "spec": pod},
    }


def _container(
    options: KubernetesOptions, name: str, image: str, port: int, resources: Mapping[str, str], command: list[str]
) -> Manifest:
    """``port``: what it listens on, and is asked at whether it lives; 0: nothing."""
    secret = {"name": options.secret or f"{options.name}-token", "key": _TOKEN_KEY}
    container: Manifest = {
        "name": name,
        "image": image,
        "command": command,
        "env": [
            {"name": core.TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": secret}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if port:
        container["ports"] = [{"containerPort": port}]
        container["startupProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 2, "failureThreshold": 60}
        container["livenessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 10, "failureThreshold": 6}
    if resources:
        container["resources"] = {"requests": dict(resources), "limits": dict(resources)}
    return container


def _labels(options: KubernetesOptions) -> dict[str, str]:
    return {"ptpathways.cluster": options.name}


def _metadata(options: KubernetesOptions, name: str) -> Manifest:
    place = {"namespace": options.namespace} if options.namespace else {}
    return {"name": name, **place, "labels": _labels(options)}
