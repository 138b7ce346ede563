"""The scripts of pages train: both versions of docs/script.md, and docs/elastic.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from images.trials.sandbox import OWN_UID, TWO_RANKS
from tests.images.conftest import Sandboxes
from tests.images.test_elastic import ELASTIC, discover
from tests.pages import blocks

DOCS = Path(__file__).parents[2] / "docs"
IMAGE = {"tensorflow.keras": "examples", "torch": "examples-pytorch"}
# What shows the share of a rank: Keras prints the number of its batches, the other script that of
# its images.
SHOWN = {
    "tensorflow.keras": {"-": "57/57 - ", "+": "29/29 - "},
    "torch": {"-": "1797 images", "+": "898 images"},
}


def version(module: str, side: str) -> str:
    """One side of the diff that imports a module of Horovod: - is the ordinary script."""
    diffs = blocks(DOCS / "script.md", "diff")
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


# Each host has its own memory, and one rank is lost after a batch.
ELASTIC_FAULT = {
    "kept = keep": """import os
lost, host = "/output/lost", os.environ["HOROVOD_HOSTNAME"]
os.environ.update(HVD_RUN_ID="one", HVD_KEEP=f"/output/memory-{host}")
kept = keep""",
    "    for batch in range(kept.restore()": """    first = kept.restore()
    print("begins with batch", first, flush=True)
    for batch in range(first""",
    "        kept.commit()": """        kept.commit()
        if batch == 40 and hvd.rank() == 1 and not os.path.exists(lost):
            open(lost, "w").close()
            os.kill(os.getpid(), 9)""",
    "BATCHES, BATCH = 300": "BATCHES, BATCH = 100",
}


def test_script_of_the_elastic_page_trains_and_loses_no_batch(sandboxes: Sandboxes) -> None:
    script = next(s for s in blocks(DOCS / "elastic.md", "python") if "hvd.elastic" in s)
    inside = sandboxes("examples")
    discover(inside, "localhost", "127.0.0.1")
    for before, after in ELASTIC_FAULT.items():
        assert before in script
        script = script.replace(before, after)
    (inside.folder / "train.py").write_text(script)
    # Without autotuning, whose options come last.
    launcher = ELASTIC[: ELASTIC.index("lo") + 1]
    printed = inside.succeed(
        *launcher,
        "python3",
        "/output/train.py",
        uid=OWN_UID,
        OMP_NUM_THREADS="1",
        PYTHONPATH="/examples",
    )
    assert set(re.findall(r"begins with batch (\d+)", printed)) == {"0", "41"}, printed
    match = re.search(r"ranks: 2, accuracy: (\d\.\d+)", printed)
    assert match, printed
    assert float(match[1]) > 0.7
