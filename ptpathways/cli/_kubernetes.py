"""``ptpathways kubernetes``: prints the manifests of a cluster."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ptpathways import core
from ptpathways.launch import kubernetes


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "kubernetes",
        help="print manifests of a cluster for kubectl",
        description="Prints a JobSet (or plain jobs) with a controller, a worker on each host and, with a script, the "
        "program; and a Secret with a new join token. For `kubectl apply -f -`.",
    )
    parser.add_argument("--hosts", type=int, required=True, metavar="N", help="pods with a worker")
    parser.add_argument("--image", required=True, help="container image of controller and workers; it needs no torch")
    parser.add_argument("--name", default="ptpathways", help="of the cluster (default: ptpathways)")
    parser.add_argument("--namespace", default="", help="where (default: kubectl's)")
    parser.add_argument(
        "--kind", default="jobset", choices=kubernetes.KINDS, help="a JobSet (default), or plain jobs and a service"
    )
    parser.add_argument("--platform", default="cpu", choices=kubernetes.PLATFORMS, help="of devices (default: cpu)")
    parser.add_argument("--devices-per-host", type=int, default=1, metavar="M", help="devices of each (default: 1)")
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="each worker's request and limit, e.g. memory=16Gi; repeatable",
    )
    parser.add_argument(
        "--node-selector",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="nodes on which workers run; repeatable",
    )
    parser.add_argument("--island", action="store_true", help="the hosts are one island: they compute together")
    parser.add_argument("--secret", default="", help="a Secret that has the join token as `token` (default: a new one)")
    parser.add_argument("--script-image", default="", help="image of the program, with torch (default: --image)")
    parser.add_argument("--format", default="yaml", choices=("yaml", "json"), help="default: yaml")
    parser.add_argument("script", nargs="?", default="", help="a Python script in its image, run in a pod of its own")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own arguments")


def main(arguments: argparse.Namespace) -> int:
    """Prints them.

    Raises:
        InvalidOption: a value that Kubernetes would not take.
    """
    options = kubernetes.KubernetesOptions(
        hosts=arguments.hosts,
        image=arguments.image,
        name=arguments.name,
        namespace=arguments.namespace,
        kind=arguments.kind,
        platform=arguments.platform,
        devices_per_host=arguments.devices_per_host,
        resources=_pairs("--resource", arguments.resource),
        node_selector=_pairs("--node-selector", arguments.node_selector),
        island=arguments.island,
        secret=arguments.secret,
        token="" if arguments.secret else core.make_token(),
        script=[arguments.script, *arguments.arguments] if arguments.script else [],
        script_image=arguments.script_image,
    )
    found = kubernetes.manifests(options)
    if arguments.format == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
    else:
        import yaml

        yaml.safe_dump_all(found, sys.stdout, sort_keys=False)
    if not options.script:
        address = f"tcp://{kubernetes.controller_host(options)}:{kubernetes.CONTROL_PORT}"
        print(f"programs in the namespace attach with PTPATHWAYS_ADDRESS={address}", file=sys.stderr)
    return 0


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not name or not sign or not value:
            raise core.InvalidOption(f"{option} must be NAME=VALUE, got {text!r}")
        found[name] = value
    return found
