"""Helm and a real API server accept what `hvdchart migrate` writes."""

from __future__ import annotations

from pathlib import Path

from devtools.toolchain.tools import tool
from hvdchart.chart_files import chart_dir
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.migration_text import values_text
from tests.chart.render import Manifest, parse_manifests
from tests.chart.trial import assert_accepted
from tests.support.go_programs import run_program
from tests.support.migrations import FILES, migrate_path
from tests.support.namespace import Namespace

# Objects of schedulers that the test's cluster does not have.
FOREIGN = ("PodGroup", "PodMonitor")


def helm_template(migration: Ledger) -> str:
    # The chart has no default image; `migrate` then says that it must be set.
    named = "repository" in migration.values.get("image", {})
    image = [] if named else ["--set", "image.repository=registry.example/team/app"]
    words = ["template", migration.release or "run", str(chart_dir()), *image, "--values", "-"]
    done = run_program([str(tool("helm4")), *words], values_text(migration, "old"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbered(number: int, migration: Ledger) -> list[Manifest]:
    """The objects that the test's cluster knows. All results are in one call: a name may be there
    once.
    """
    rendered = parse_manifests(helm_template(migration))
    known = [manifest for manifest in rendered if manifest["kind"] not in FOREIGN]
    for manifest in known:
        manifest["metadata"]["name"] += f"-{number}"
    return known


def test_api_server_accepts_every_result(kubeconfig: Path) -> None:
    results = enumerate(map(migrate_path, FILES))
    objects = [item for number, result in results for item in numbered(number, result)]
    assert_accepted(Namespace("default", kubeconfig, ""), objects)
