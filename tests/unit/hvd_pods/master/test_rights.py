"""The master's Role lists what the pods' files ask of the API, and nothing that they do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.unit.hvd_pods.copies import FILES

ROLE = FILES.parent / "templates" / "master/role.yaml"
VERBS = {
    "get": ["get"],
    "list_all": ["list"],
    "watch": ["watch"],
    "delete": ["delete"],
    "merge_patch": ["patch"],
    "create": ["create"],
    "apply": ["create", "patch"],
}
RIGHT = tuple[str, str, str]


def path_of(argument: ast.expr) -> str:
    """A call's path, with NAME for what is filled in at run time."""
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    assert isinstance(argument, ast.JoinedStr), ast.dump(argument)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in argument.values
    )


def asked(source: Path) -> Iterator[RIGHT]:
    """(group, resource, verb) of each call of Api's methods in a file."""
    for node in ast.walk(ast.parse(source.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        receiver = ast.unparse(node.func.value).split(".")[-1].lstrip("_")
        if receiver not in ("api", "access") or node.func.attr not in VERBS:
            continue
        group, resource, *rest = path_of(node.args[0]).split("/")
        subresource = f"/{rest[1]}" if len(rest) > 1 else ""
        for verb in VERBS[node.func.attr]:
            yield ("" if group == "core" else group), resource + subresource, verb


def granted() -> Iterator[RIGHT]:
    """(group, resource, verb) of the Role's rules."""
    lines = ROLE.read_text().split("\nrules:\n")[1].splitlines()
    # What a template fills in are names, which are of no concern here.
    text = "\n".join(line for line in lines if "{{" not in line)
    for rule in YAML(typ="safe").load(text):
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                (group,) = rule["apiGroups"]
                yield group, resource, verb


@pytest.mark.slow
def test_the_role_is_what_the_files_use() -> None:
    used = {right for source in FILES.rglob("*.py") for right in asked(source)}
    assert len(used) > 5
    assert used == set(granted())
