"""docs/troubleshooting.md quotes messages as the programs write them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
# What other programs write.
OTHERS = {
    "additional properties", "rank 0 of 1", "module 'keras.backend' has no attribute",
    "Variable has no attribute 'ref'", "ModuleNotFoundError",
    "All log messages before absl::InitializeLog() is called", "CUDA_ERROR_NO_DEVICE",
    "Could not load dynamic library", "NCCL WARN ... no socket interface found", "127.0.0.1",
    "Connection refused", "helm upgrade",
}  # fmt: skip


def quoted() -> list[str]:
    """The messages at the head of each entry: the code in its bold text."""
    heads = re.findall(r"^\*\*(.*?)\*\*", PAGE.read_text("utf-8"), re.M | re.DOTALL)
    lines = [line for head in heads for line in re.findall(r"`([^`]*)`", head)]
    return [line.replace("\n", " ") for line in lines if line not in OTHERS]


@cache
def written() -> str:
    """All texts of the programs and the chart; what is filled in is a line break."""
    python = [*ROOT.glob("charts/horovod/files/*.py"), *ROOT.glob("hvdchart/**/*.py")]
    texts = [text for file in python for text in literals(ast.parse(file.read_text("utf-8")))]
    for template in ROOT.glob("charts/horovod/templates/*.*"):
        text = template.read_text("utf-8")
        texts.append(re.sub(r"%[a-z]", "\n", text.replace('\\"', '"')))
    for script in ROOT.glob("charts/horovod/files/*.sh"):
        texts.append(re.sub(r"\$\w+", "\n", script.read_text("utf-8")))
    return "\n".join(texts)


def literals(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "\n" for part in node.values]
            yield "".join(map(str, parts))


def test_page_quotes_many_messages() -> None:
    assert len(quoted()) > 15


def test_page_says_when_a_run_without_its_image_ends() -> None:
    """The kubelet's message comes with ErrImagePull, for which the run waits a while."""
    problems = json.loads(
        ROOT.joinpath("charts/horovod/files/hvd_pods/common/pod_problems.json").read_text("utf-8")
    )
    seconds = problems["container"]["ErrImagePull"]["waitSeconds"]
    rows = PAGE.read_text("utf-8").partition("<!-- pod problems")[2].splitlines()
    for sign in problems["image"]:
        (row,) = (row for row in rows if row.startswith(f"| `{sign}` |"))
        assert row.endswith(f"| fails after {seconds} s |")


@pytest.mark.slow
@pytest.mark.parametrize("message", quoted())
def test_message_is_what_a_program_writes(message: str) -> None:
    # Names and numbers are `...`, or in quotation marks in a template.
    fragments = [part.strip(' "') for part in re.split(r"\.\.\.|\"[^\"]*\"", message)]
    fragments = [fragment for fragment in fragments if len(fragment) > 3]
    assert fragments
    unknown = [fragment for fragment in fragments if fragment not in written()]
    assert unknown == [], f"no program writes {unknown}"
