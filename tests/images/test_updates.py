"""Updates of Debian's packages, from the image's package sources."""

from __future__ import annotations

from pathlib import Path

from devtools.images.audit import Update, parse_updates, updates
from devtools.images.engines import Build
from devtools.trials.sandbox import Sandbox

OLD = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN sed -i '/^Package: ca-certificates$/,/^Version/s/^Version: .*/Version: 1/' /var/lib/dpkg/status
"""


def test_update_of_an_old_package_is_listed(cpu: Sandbox, tmp_path: Path) -> None:
    dockerfile, context, name = tmp_path / "Dockerfile", tmp_path / "context", "hvd-test-old:1"
    dockerfile.write_text(OLD)
    context.mkdir()
    engine = cpu.image.engine
    engine.build(Build(context, dockerfile, [name], {"BASE_IMAGE": cpu.image.reference}, {}, ""))
    try:
        listed = {update.package: update for update in updates(name, engine)}
    finally:
        engine.remove(name)
    assert listed["ca-certificates"].installed == "1"
    assert listed["ca-certificates"].candidate > "2023"


def test_security_updates_are_marked() -> None:
    log = (
        "#7 1.2 Inst libssl3 [3.0.11-1] (3.0.17-1 Debian-Security:12/oldstable-security [amd64])\n"
        "Inst tzdata [2024a-0] (2025b-0 Debian:12.12/oldstable, Debian:12-updates [all]) []\n"
        "Inst new-one (1.0 Debian:12.12/oldstable [all])\nConf tzdata (2025b-0)\n"
    )
    assert parse_updates(log) == [
        Update("libssl3", "3.0.11-1", "3.0.17-1", "Debian-Security:12/oldstable-security "),
        Update("tzdata", "2024a-0", "2025b-0", "Debian:12.12/oldstable, Debian:12-updates "),
    ]
    assert [update.security for update in parse_updates(log)] == [True, False]
