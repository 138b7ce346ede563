"""The master's Role lists what the pods' files ask of the API, and nothing that they do not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.pods.program_copies import FILES
from tests.support.role import role_rules

VERBS = {
    "get": ["get"],
    "list_all": ["list"],
    "watch": ["watch"],
    "delete": ["delete"],
    "merge_patch": ["patch"],
    "create": ["create"],
    "apply": ["create", "patch"],
}
CALL = re.compile(rf'(?:api|access)\.({"|".join(VERBS)})\(\s*(?:f?"([^"]*)")?')
RIGHT = tuple[str, str, str]


def asked(source: Path) -> Iterator[RIGHT]:
    """(group, resource, verb) of each call of Api's methods in a file."""
    for method, path in CALL.findall(source.read_text()):
        assert path, f"{source}: the path of {method} is not written in the call"
        group, resource, *rest = path.split("/")
        subresource = f"/{rest[1]}" if len(rest) > 1 else ""
        for verb in VERBS[method]:
            yield ("" if group == "core" else group), resource + subresource, verb


def granted() -> Iterator[RIGHT]:
    """(group, resource, verb) of the Role's rules."""
    for rule in role_rules():
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                (group,) = rule["apiGroups"]
                yield group, resource, verb


@pytest.mark.slow
@pytest.mark.promise("the role is what the files use")
def test_the_role_is_what_the_files_use() -> None:
    used = {right for source in FILES.rglob("*.py") for right in asked(source)}
    assert len(used) > 5
    assert used == set(granted())
