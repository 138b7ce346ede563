"""Updates of Debian's packages, asked of the package sources as an audit does."""

from __future__ import annotations

from pathlib import Path

from devtools.images.engine import Build
from devtools.images.updates import Update, planned, updates
from devtools.trials.sandbox import Sandbox

OLD = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN sed -i '/^Package: ca-certificates$/,/^Version/s/^Version: .*/Version: 1/' /var/lib/dpkg/status
"""


def test_an_old_package_of_an_image_is_told_with_its_update(cpu: Sandbox, tmp_path: Path) -> None:
    dockerfile, context, name = tmp_path / "Dockerfile", tmp_path / "context", "hvd-test-old:1"
    dockerfile.write_text(OLD)
    context.mkdir()
    engine = cpu.image.engine
    engine.build(Build(context, dockerfile, [name], {"BASE_IMAGE": cpu.image.reference}, {}, ""))
    try:
        found = {update.package: update for update in updates(name, engine)}
    finally:
        engine.remove(name)
    assert found["ca-certificates"].installed == "1"
    assert found["ca-certificates"].candidate > "2023"


def test_a_security_update_is_told_from_another() -> None:
    log = (
        "#7 1.2 Inst libssl3 [3.0.11-1] (3.0.17-1 Debian-Security:12/oldstable-security [amd64])\n"
        "Inst tzdata [2024a-0] (2025b-0 Debian:12.12/oldstable, Debian:12-updates [all]) []\n"
        "Inst new-one (1.0 Debian:12.12/oldstable [all])\nConf tzdata (2025b-0)\n"
    )
    assert planned(log) == [
        Update("libssl3", "3.0.11-1", "3.0.17-1", "Debian-Security:12/oldstable-security "),
        Update("tzdata", "2024a-0", "2025b-0", "Debian:12.12/oldstable, Debian:12-updates "),
    ]
    assert [update.security for update in planned(log)] == [True, False]
