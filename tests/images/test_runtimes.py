"""What holds for every image that Horovod is compiled in, from the inside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from images.builder.catalogue import Image
from tests.support.in_image.sandbox import (
    OWN_UID,
    TWO_RANKS,
    TWO_RANKS_OVER_GLOO,
    UNKNOWN_UID,
    Sandbox,
)

# Bytes, unpacked, by image.
LARGEST = {
    "cpu": 1.6e9,
    "pytorch": 1.4e9,
    "cuda": 6.3e9,
    "pytorch-cuda": 8e9,
}


# By framework, an expression for the vector (1, rank).
VECTORS = {
    "tensorflow": "tensorflow.constant([1.0, hvd.rank()])",
    "torch": "torch.tensor([1.0, hvd.rank()])",
}


def allreduce(image: Image) -> str:
    """A program that adds up vectors of all ranks, for the image's framework."""
    module = image.framework or ""
    return f"""
import sys, {module}, horovod.{module} as hvd
hvd.init()
total = hvd.allreduce({VECTORS[module]}, op=hvd.Sum).numpy().tolist()
sys.stdout.write(f"rank {{hvd.rank()}} of {{hvd.size()}}: {{total}}\\n")
"""


@pytest.fixture
def thresholds(inside: Sandbox) -> list[str]:
    """Python's own thresholds of garbage collections: without what the image does at its start."""
    return inside.succeed("python3", "-S", "-c", "import gc; print(*gc.get_threshold())").split()


# The image's own user runs the checks of `ranks`.
def test_allreduce_over_mpi_works_as_any_user(image: Image, inside: Sandbox) -> None:
    said_by = inside.succeed(*TWO_RANKS, "python3", "-c", allreduce(image), uid=UNKNOWN_UID)
    lines = sorted(line for line in said_by.splitlines() if line.startswith("rank"))
    assert lines == ["rank 0 of 2: [2.0, 1.0]", "rank 1 of 2: [2.0, 1.0]"]


def test_allreduce_over_gloo_works(image: Image, inside: Sandbox) -> None:
    program = inside.folder / "allreduce.py"
    program.write_text(allreduce(image))
    # horovodrun keeps a file in its user's home, and so needs a user that the image knows.
    out = inside.succeed(*TWO_RANKS_OVER_GLOO, "python3", "/output/allreduce.py", uid=OWN_UID)
    assert "rank 0 of 2: [2.0, 1.0]" in out
    assert "rank 1 of 2: [2.0, 1.0]" in out


def test_installed_versions_are_those_of_the_versions_file(image: Image, inside: Sandbox) -> None:
    module = image.framework or ""
    printed = inside.python(
        f"import platform, {module}, horovod;"
        f"print('FOUND', platform.python_version(), {module}.__version__, horovod.__version__)"
    )
    python, framework, horovod = printed.partition("FOUND ")[2].split()
    assert f"{python}.".startswith(image.versions["python"] + ".")
    assert framework.partition("+")[0] == image.versions[module]
    assert horovod == image.versions["horovod"]
    assert f"(Open MPI) {image.versions['openmpi']}\n" in inside.succeed("mpirun", "--version")


def test_pip_finds_no_broken_requirements(inside: Sandbox) -> None:
    lines = inside.run("python3", "-m", "pip", "check").stdout.splitlines()
    # The package of this name has TensorFlow for GPUs; the image has tensorflow-cpu.
    known = re.compile(r"tf-keras \S+ requires tensorflow, which is not installed\.")
    others = [line for line in lines if not known.fullmatch(line)]
    assert others == ([] if len(lines) > len(others) else ["No broken requirements found."])


def test_compiler_is_not_in_the_image(inside: Sandbox) -> None:
    compilers = ["gcc", "g++", "cc", "c++", "make", "cmake", "ld", "strip"]
    look = 'for name in "$@"; do command -v "$name" || true; done'
    present = inside.succeed("sh", "-c", look, "sh", *compilers, "sh").splitlines()
    assert [Path(path).name for path in present] == ["sh"]


def test_image_has_no_secrets_keys_or_caches_of_the_build(inside: Sandbox) -> None:
    """No secret of the build, key, cache, package list or pip setting."""
    places = [
        "/run",
        "/tmp",
        "/mnt",
        "/media",
        "/srv",
        "/build",
        "/root",
        "/home/horovod",
        "/etc/pip.conf",
        "/var/lib/apt/lists",
        "/var/cache/apt/archives",
    ]
    leftovers = inside.run("find", *places, "-type", "f", uid=0).stdout
    allowed = {".bashrc", ".profile", ".bash_logout", "lock"}
    assert {Path(line).name for line in leftovers.splitlines()} <= allowed, leftovers
    assert inside.succeed("python3", "-m", "pip", "config", "list").strip() == ""


def test_any_user_can_read_all_files(inside: Sandbox) -> None:
    places = ["/usr", "/home/horovod"]
    unreadable = ["(", "-not", "-readable", "-o", "-type", "d", "-not", "-executable", ")"]
    # Links may lead to documents that are not unpacked.
    places += ["-not", "-type", "l"]
    assert inside.succeed("find", *places, *unreadable) == ""


def test_every_module_has_a_current_pyc(inside: Sandbox) -> None:
    """A pod's root is read-only, so a stale .pyc would be compiled again at each start."""
    stale = inside.python(
        "import importlib.util as u, pathlib, site, struct\n"
        "folders = [pathlib.Path(folder) for folder in site.getsitepackages()]\n"
        "for source in (file for folder in folders for file in folder.rglob('*.py')):\n"
        "    compiled = pathlib.Path(u.cache_from_source(source))\n"
        "    stat = source.stat()\n"
        "    want = (u.MAGIC_NUMBER, 0, int(stat.st_mtime), stat.st_size)\n"
        "    head = compiled.read_bytes()[:16] if compiled.exists() else bytes(16)\n"
        "    if struct.unpack('<4sIII', head) != want:\n"
        "        print(source)\n"
    )
    assert stale == ""


def test_import_causes_no_garbage_collection_and_later_ones_leave_its_objects_out(
    image: Image, inside: Sandbox, thresholds: list[str]
) -> None:
    code = (
        "import gc; count = lambda: sum(s['collections'] for s in gc.get_stats());"
        f"before = count(); import {image.framework};"
        "print(count() - before, gc.get_freeze_count() > 100_000, *gc.get_threshold())"
    )
    assert inside.python(code).split() == ["0", "True", *thresholds]


def test_first_garbage_collection_brings_back_thresholds_where_no_framework_is_imported(
    inside: Sandbox, thresholds: list[str]
) -> None:
    show = "print(*gc.get_threshold()); "
    first, then = inside.python(f"import gc; {show}gc.collect(); {show}").splitlines()
    assert first.split()[0] == "1000000"
    assert then.split() == thresholds


def test_python_has_tls_1_3_for_the_agent(inside: Sandbox) -> None:
    assert inside.python("import ssl; print(ssl.HAS_TLSv1_3)") == "True\n"


def test_nothing_serves_ssh(inside: Sandbox) -> None:
    look = inside.run("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; command -v sshd", uid=0)
    assert look.stdout == ""


def test_unpacked_size_is_below_its_limit(image: Image, inside: Sandbox) -> None:
    listed = inside.run("du", "--summarize", "--bytes", "--one-file-system", "/", uid=0).stdout
    assert int(listed.split()[0]) <= LARGEST[image.name]
