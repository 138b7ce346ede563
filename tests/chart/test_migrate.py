"""Helm and a real API server accept what `hvdchart migrate` writes."""

from __future__ import annotations

import json
from pathlib import Path

from devtools.toolchain.tools import tool
from hvdchart.chart_files import chart_dir
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.migration_text import values_text
from tests.chart.render import parse_manifests
from tests.support.go_programs import run_program
from tests.support.namespace import Namespace
from tests.support.old_files.migrate import FILES, migrate_path

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


def test_api_server_accepts_every_result(kubeconfig: Path) -> None:
    """With server-side apply, as Helm 4 does it."""
    server = Namespace("default", kubeconfig, "")
    manifests = []
    for number, migration in enumerate(map(migrate_path, FILES)):
        for manifest in parse_manifests(helm_template(migration)):
            if manifest["kind"] in FOREIGN:
                continue
            manifest["metadata"].pop("namespace", None)
            # All results in one call: a name may be there once.
            manifest["metadata"]["name"] += f"-{number}"
            if manifest["kind"] == "Pod":
                # A dry run creates neither its service account nor its priority class.
                manifest["spec"]["serviceAccountName"] = "default"
                manifest["spec"].pop("priorityClassName", None)
            manifests.append(manifest)
    arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict"]
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    answer = server.kubectl(*arguments, "--filename", "-", input=json.dumps(listed))
    assert answer.count("server dry run") == answer.count("\n") == len(manifests)
