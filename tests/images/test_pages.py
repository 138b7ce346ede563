"""The scripts of pages train: both versions of docs/script.md."""

from __future__ import annotations

import re

import pytest

from devtools.common.markdown import code_blocks
from devtools.common.repository import DOCS
from tests.images.sandboxes import Sandboxes
from tests.support.in_image.sandbox import OWN_UID, TWO_RANKS

IMAGE = {"tensorflow.keras": "examples", "torch": "examples-pytorch"}
# What shows the share of a rank: Keras prints the number of its batches, the other script that of
# its images.
SHOWN = {
    "tensorflow.keras": {"-": "57/57 - ", "+": "29/29 - "},
    "torch": {"-": "1797 images", "+": "898 images"},
}


def version(module: str, side: str) -> str:
    """One side of the diff that imports a module of Horovod: - is the ordinary script."""
    diffs = code_blocks(DOCS / "script.md", "diff")
    (diff,) = (diff for diff in diffs if f"import horovod.{module} as" in diff)
    other = "+" if side == "-" else "-"
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith(other))


@pytest.mark.parametrize("side", ["-", "+"], ids=["ordinary", "changed"])
@pytest.mark.parametrize("module", IMAGE)
def test_both_versions_of_the_script_train(sandboxes: Sandboxes, module: str, side: str) -> None:
    launcher = TWO_RANKS if side == "+" else ()
    inside = sandboxes(IMAGE[module])
    printed = inside.succeed(
        *launcher, "python3", "-c", version(module, side), uid=OWN_UID, OMP_NUM_THREADS="1"
    )
    assert SHOWN[module][side] in printed
    accuracies = [float(value) for value in re.findall(r"accuracy: (\d\.\d+)", printed)]
    assert accuracies[-1] > 0.9, printed
