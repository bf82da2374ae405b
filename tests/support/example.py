"""The example project: its folder, the commands of its README, the policies of its stack."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import yaml

from tests.support.markdown import ROOT, commands

FOLDER = ROOT / "example_project"
TEMPLATE = FOLDER / "deploy" / "cloudformation" / "queue.yaml"


class _StackLoader(yaml.SafeLoader):
    """Reads CloudFormation's short forms, such as `!Ref`, as their plain arguments."""


def _short_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


_StackLoader.add_multi_constructor("!", _short_form)


def readme_command(beginning: str) -> list[str]:
    """Return the words of the README's one command that begins so."""
    (found,) = (
        line for line in commands("example_project/README.md") if line.startswith(beginning)
    )
    return shlex.split(found)


def resources() -> dict[str, Any]:
    """Return the resources of the CloudFormation template."""
    return dict(yaml.load(TEMPLATE.read_text(), _StackLoader)["Resources"])


def allowed(policy: str) -> set[str]:
    """Return the actions that a policy of the template allows."""
    document = resources()[policy]["Properties"]["PolicyDocument"]
    return {action for statement in document["Statement"] for action in statement["Action"]}


def pod(manifest: str) -> dict[str, Any]:
    """Return the pod of a Kubernetes manifest's first deployment."""
    text = (FOLDER / "deploy" / "kubernetes" / manifest).read_text()
    return dict(next(yaml.safe_load_all(text))["spec"]["template"]["spec"])


def probe(port: int, kind: str) -> list[str]:
    """Return a probe of the worker, for another port."""
    (container,) = pod("worker.yaml")["containers"]
    program, *arguments, code = container[kind]["exec"]["command"]
    assert program == "python"
    assert 'HTTPConnection("127.0.0.1", 9808, ' in code
    return [sys.executable, *arguments, code.replace("9808", str(port))]
