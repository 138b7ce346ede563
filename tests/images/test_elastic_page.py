"""The script of docs/elastic.md trains, as horovodrun starts it in an elastic run."""

from __future__ import annotations

import re
from pathlib import Path

from devtools.trials.sandbox import OWN_UID
from tests.images.conftest import Sandboxes
from tests.images.test_elastic import ELASTIC

PAGE = Path(__file__).parents[2] / "docs" / "elastic.md"


def test_script_of_the_page_trains(sandboxes: Sandboxes) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    inside = sandboxes("examples")
    discovery = inside.folder / "hosts"
    discovery.write_text("#!/bin/sh\necho localhost:1\necho 127.0.0.1:1\n")
    discovery.chmod(0o755)
    # It has learnt enough before its end.
    (inside.folder / "train.py").write_text(
        script.replace("BATCHES, BATCH = 300", "BATCHES, BATCH = 100")
    )
    # Without autotuning, whose options come last.
    launcher = ELASTIC[: ELASTIC.index("lo") + 1]
    printed = inside.succeed(
        *launcher, "python3", "/output/train.py", uid=OWN_UID, OMP_NUM_THREADS="1"
    )
    match = re.search(r"ranks: 2, accuracy: (\d\.\d+)", printed)
    assert match, printed
    assert float(match[1]) > 0.7
