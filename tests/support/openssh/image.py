"""An image of examples with OpenSSH, for launchers of others, which start ranks over SSH."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from devtools.common.cache import cache_dir, content_key
from devtools.common.locks import exclusive_lock
from devtools.localkube.images import load_images
from images.builder.build import build_image
from images.builder.build_engines import Build
from images.builder.mirror_settings import write_secrets

DOCKERFILE = Path(__file__).with_name("Dockerfile")
# The row of versions.yaml with Open MPI 4, with which benchmarks measured the other projects.
OPEN_MPI_4 = {"python": "3.11"}


@cache
def openssh_image() -> str:
    """Build the image unless it is here, load it into the cluster, and return its reference.

    Raises DevtoolsError.
    """
    base = build_image("examples", overrides=OPEN_MPI_4)
    reference = "hvd-test-openssh:1"
    key = content_key([DOCKERFILE], base.key)
    # Use the lock of all builds: tests run in several processes.
    with exclusive_lock(cache_dir() / "images" / ".lock", "building images"):
        if base.engine.key(reference) != key:
            with tempfile.TemporaryDirectory(prefix="hvd-image-") as name:
                context = Path(name) / "context"
                secrets = Path(name) / "secrets"
                context.mkdir()
                secrets.mkdir(mode=0o700)
                dockerfile = Path(shutil.copy2(DOCKERFILE, context))
                arguments = {"BASE_IMAGE": base.reference}
                files = write_secrets(secrets)
                base.engine.build(Build(context, dockerfile, [reference], arguments, files, key))
    load_images(reference)
    return reference
