"""Reads built images: packages and sizes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from devtools.common.cache import cache_dir, content_key
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.toolchain.tools import tool
from hvdchart.files import write_atomically
from hvdchart.image.engines import run_in
from images.builder.build import BuiltImage

# Installed packages, and what their own SBOMs say is compiled into them (Horovod's wheel has one):
# no guesses from the contents of files.
_CATALOGERS = "dpkg-db-cataloger,python-installed-package-cataloger,sbom-cataloger"
_SYFT_SETTINGS = {"SYFT_CHECK_FOR_APP_UPDATE": "false", "SYFT_FILE_METADATA_SELECTION": "none"}


def sbom(image: BuiltImage) -> str:
    """A CycloneDX 1.6 document of an image's Debian and Python packages, and of what these name as
    their parts.

    Syft writes it once for each content of the image. Raises DevtoolsError when Syft fails.
    """
    syft = tool("syft")
    identifier = image.engine.identifier(image.reference)
    # Syft's folder is named after the version and everything else that it was built from.
    key = content_key([Path(__file__)], image.reference, identifier, syft.parent.name)
    kept = cache_dir() / "sboms" / f"{key}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, _scan(image, syft))
    return kept.read_text("utf-8")


def _scan(image: BuiltImage, syft: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="hvd-sbom-") as folder:
        archive = Path(folder) / "image.tar"
        image.engine.save(image.reference, archive, image.reference)
        return read_output(
            [
                str(syft),
                "scan",
                "--quiet",
                f"docker-archive:{archive}",
                f"--override-default-catalogers={_CATALOGERS}",
                "--output=cyclonedx-json@1.6",
            ],
            remedy="`docker load` must be able to read the image's archive",
            environment={**os.environ, **_SYFT_SETTINGS},
        )


def unpacked_size(image: BuiltImage) -> int:
    """The size of all files in an image, in bytes.

    Raises DevtoolsError when `du` does not run in it.
    """
    du = ["du", "--summarize", "--bytes", "--one-file-system", "/"]
    # It exits with 1, because root without capabilities cannot open some empty folders.
    done = run_in(image.reference, du, 0, image.engine.program)
    if not done.stdout.strip():
        raise DevtoolsError(
            f"{image.reference}: `du` printed no size: {done.stderr.strip()}", "run it by hand"
        )
    return int(done.stdout.split()[0])
