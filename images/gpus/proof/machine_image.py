"""The image of the pods: this machine's root, into which its system and Python are mounted."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

from devtools.localkube import oci
from images.gpus.proof.machine import WORK
from images.gpus.proof.places import PREFIX, SITE

# Where the packages of the bundle are in pods.
PACKAGES = Path("/opt/hvd-gpu-prefix")
IMAGE = "docker.io/local/machine:1"


def mounts() -> list[str]:
    """Folders of the machine that pods need: the system, and that of its Python."""
    own = "/" + Path(sys.executable).parts[1]
    return sorted({"/usr", own, "/opt"} - {"/bin"})


def write_image() -> Path:
    """An archive of an image with the links of the machine's root, and what of /etc is needed."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:

        def add(
            name: str, kind: bytes, *, mode: int = 0o755, link: str = "", data: bytes = b""
        ) -> None:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = mode
            info.linkname = link
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

        folders = [
            "proc",
            "sys",
            "dev",
            "run",
            "var",
            "etc",
            "etc/alternatives",
            "etc/ld.so.conf.d",
        ]
        for name in [*folders, "home", "root", "srv", "mnt", *(m.strip("/") for m in mounts())]:
            add(name, tarfile.DIRTYPE)
        add("tmp", tarfile.DIRTYPE, mode=0o1777)
        for name in ("bin", "sbin", "lib", "lib64", "lib32"):
            if Path("/", name).is_symlink():
                add(name, tarfile.SYMTYPE, link=str(Path("/", name).readlink()))
        files = ["ld.so.cache", "ld.so.conf", "nsswitch.conf", "services", "protocols"]
        paths = [Path("/etc", name) for name in files]
        paths += [*Path("/etc/ld.so.conf.d").iterdir(), *Path("/etc/alternatives").iterdir()]
        for path in paths:
            if path.is_symlink():
                add(str(path)[1:], tarfile.SYMTYPE, link=str(path.readlink()))
            elif path.is_file():
                add(str(path)[1:], tarfile.REGTYPE, mode=0o644, data=path.read_bytes())
        users = b"root:x:0:0:root:/root:/bin/sh\nhorovod:x:1000:1000::/home/horovod:/bin/sh\n"
        add("etc/passwd", tarfile.REGTYPE, mode=0o644, data=users)
        add("etc/group", tarfile.REGTYPE, mode=0o644, data=b"root:x:0:\nhorovod:x:1000:\n")
    layer = oci.descriptor(oci.LAYER, raw.getvalue())
    paths_of_programs = [str(PACKAGES / "bin"), str(Path(sys.executable).parent)]
    standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = [
        f"PATH={':'.join(paths_of_programs)}:{standard}",
        f"PYTHONPATH={PACKAGES / SITE.relative_to(PREFIX)}",
    ]
    if os.environ.get("LD_LIBRARY_PATH"):
        variables.append(f"LD_LIBRARY_PATH={os.environ['LD_LIBRARY_PATH']}")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": variables, "User": "1000", "WorkingDir": "/", "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    archive = WORK / "machine.tar"
    content = {layer["digest"]: raw.getvalue()}
    oci.write_archive(archive, IMAGE, oci.to_json(config), [layer], content)
    return archive
