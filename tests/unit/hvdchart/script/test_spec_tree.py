"""Each option of a script that was typed is in the values, whatever the other options."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdchart.chart_files import is_charts_variable, is_charts_volume, is_ranks_variable
from hvdchart.plan.planner import plan_tree
from hvdchart.quantity import parse_quantity
from hvdchart.script.options import ScriptRun
from hvdchart.script.spec_tree import make_script_tree
from hvdchart.values.check_values import checked_values
from tests.support.strategies import NAMES, TEXT

# Also names that hvdchart gives itself, which those of the user may be.
OWN_NAMES = st.sampled_from(["secret-0", "secret-1", "secret-0-0", "data", "output"])
VOLUME_NAMES = (OWN_NAMES | OWN_NAMES | NAMES).filter(lambda name: not is_charts_volume(name))
VARIABLES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not (is_charts_variable(name) or is_ranks_variable(name))
)
PATHS = st.from_regex(r"/(in|run/s|work)/[a-z0-9._]{1,6}", fullmatch=True).filter(
    lambda path: ".." not in path and not path.endswith("/.")
)
SOURCES = st.sampled_from(
    ["pvc:claim", "hostPath:/mnt", "nfs:host:/a", "configMap:map", "emptyDir"]
)
# A read-only output is refused.
ENDS = (":ro", "")
KEYS = {
    "pvc": "persistentVolumeClaim",
    "hostPath": "hostPath",
    "nfs": "nfs",
    "configMap": "configMap",
    "emptyDir": "emptyDir",
}


@st.composite
def runs(draw: st.DrawFn) -> ScriptRun:
    """Options that go together: names and paths differ."""
    paths = draw(st.lists(PATHS, min_size=8, max_size=8, unique=True))
    volumes = draw(st.dictionaries(VOLUME_NAMES, SOURCES, max_size=3))
    secrets = draw(
        st.lists(st.tuples(NAMES, st.sampled_from([True, True, False])), max_size=3, unique=True)
    )
    gpus = draw(st.sampled_from([None, 1, 8]))
    return ScriptRun(
        ["python3", "train.py"],
        name="hvd",
        workers=draw(st.none() | st.integers(1, 9)),
        gpus=gpus,
        cpu=draw(st.sampled_from([None, "500m", "4", "16"])),
        memory=draw(st.sampled_from([None, "4Gi", "64Gi"])),
        image=draw(st.sampled_from(["python:3.12", "host:5000/a/b:1", f"a/b@sha256:{'0' * 64}"])),
        env=[
            f"{key}={value}"
            for key, value in draw(st.dictionaries(VARIABLES, TEXT, max_size=4)).items()
        ],
        secrets=[f"{name}:{paths.pop()}" if is_file else name for name, is_file in secrets],
        volumes=[
            f"{name}={source}:{paths.pop()}{draw(st.sampled_from(ENDS[name == 'output' :]))}"
            for name, source in volumes.items()
        ],
    )


def mounted(values: Any) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return the volume at each path, and whether it is read-only."""
    volumes = {volume["name"]: volume for volume in values["volumes"]}
    assert len(volumes) == len(values["volumes"])
    return {
        mount["mountPath"]: (volumes[mount["name"]], mount.get("readOnly", False))
        for mount in values["volumeMounts"]
    }


@pytest.mark.fuzz
@given(run=runs())
def test_each_option_that_was_typed_is_in_the_values(run: ScriptRun) -> None:
    values = checked_values(plan_tree(make_script_tree(run, None)))
    worker = values["worker"]
    env = {variable["name"]: variable.get("value") for variable in worker["env"]}
    for typed in run.env or ():
        name, _, value = typed.partition("=")
        assert env[name] == value
    image = values["image"]
    at = "@" if "digest" in image else ":"
    assert f"{image['repository']}{at}{image.get('digest') or image.get('tag')}" == run.image
    if run.workers:
        assert worker["number"] == run.workers
    if run.gpus:
        assert worker["resources"]["limits"]["nvidia.com/gpu"] == str(run.gpus)
        assert worker["slots"] == run.gpus
    asked = worker["resources"].get("requests", {})
    for name, amount in (("cpu", run.cpu), ("memory", run.memory)):
        if amount:
            assert parse_quantity(str(asked[name])) == parse_quantity(amount)
    sources = [source["secretRef"]["name"] for source in worker.get("envFrom", ())]
    assert sources == [secret for secret in run.secrets or () if ":" not in secret]
    at_path = mounted(values)
    for typed in run.secrets or ():
        name, colon, path = typed.partition(":")
        if colon:
            volume, is_read_only = at_path[path]
            assert volume["secret"]["secretName"] == name
            assert is_read_only
    for typed in run.volumes or ():
        name, _, rest = typed.partition("=")
        source, _, path = rest.removesuffix(":ro").rpartition(":")
        volume, is_read_only = at_path[path]
        assert volume["name"] == name
        assert is_read_only == rest.endswith(":ro")
        assert KEYS[source.partition(":")[0]] in volume
