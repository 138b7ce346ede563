"""The chart names the value of each object that the cluster does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.render import Values, helm_template, write_small_chart

# What the check sees of a cluster without objects: `helm template` reaches none.
CHECK_OF_CLAIMS = """\
{{- $_ := set . "facts" .Values.facts -}}
{{- include "horovod.checkClaimsExist" . -}}
"""


@pytest.fixture(scope="module")
def check_of_claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart of nothing but the check."""
    folder = tmp_path_factory.mktemp("claims")
    files = ("checks/_checks.tpl", "checks/_objects.tpl")
    return write_small_chart(folder, CHECK_OF_CLAIMS, *files)


def claim(name: str) -> Values:
    return {"name": name, "persistentVolumeClaim": {"claimName": "missing"}}


@pytest.mark.parametrize(
    ("of_release", "of_group", "key"),
    [
        ([claim("data")], [], "volumes[data]"),
        ([{"name": "data", "emptyDir": {}}], [claim("own")], "workerGroups[a].volumes[own]"),
    ],
    ids=["of the release", "of a group"],
)
def test_missing_claim_is_named_by_the_volume_that_the_user_writes(
    check_of_claims: Path, of_release: list[Values], of_group: list[Values], key: str
) -> None:
    group = {"valuesKey": "workerGroups[a]", "volumes": [*of_release, *of_group]}
    facts = {"values": {"volumes": of_release, "extraObjects": []}, "groups": [group]}
    done = helm_template({"facts": facts}, chart=check_of_claims)
    assert f": {key}.persistentVolumeClaim.claimName is " in done.stderr
