"""Check and unpack the programs of the pods, and execute one of them.

`python3 -I -S -c TEXT SHA256 [OPTION ...] PROGRAM [ARGUMENT ...]`. The text and the SHA256 are in
the pod's template. Therefore they decide what runs, even if the ConfigMap with the archive changes.
The archive is not unpacked before its SHA256 is verified. The arguments after the SHA256 are those
of the Python that replaces this one. Exits with 78, os.EX_CONFIG, when the programs cannot be used.
"""

import os
import sys

PROGRAMS_ARCHIVE = "/horovod/archive/programs.tgz"
# An emptyDir in memory. The container's user owns its content.
PROGRAMS_FOLDER = "/horovod/bin/hvd_pods"
CONFIG_MAP_REMEDY = "Delete it, and run `helm upgrade` with the same chart"
IMAGE_REMEDY = (
    "use an image whose python3 is 3.8 or newer, with the module ssl of OpenSSL 1.1.1 or 3"
)


def refuse(problem):
    text = "error: the programs of the chart cannot be used: " + problem
    try:
        with open("/dev/termination-log", "w") as file:
            file.write(text)
    except OSError:
        pass
    print("[hvd] " + text, file=sys.stderr, flush=True)
    sys.exit(os.EX_CONFIG)


def clear(folder):
    # An earlier container left these files, and its training code may have changed them.
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            clear(entry.path)
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


def members(tar):
    place = 0
    while tar[place : place + 1].strip(b"\0"):
        name = tar[place : place + 100].rstrip(b"\0").decode("ascii")
        size = int(tar[place + 124 : place + 135], 8)
        if tar[place + 156 : place + 157] != b"0":
            raise ValueError(f"{name!r} is no file")
        place += 512
        yield name, tar[place : place + size]
        place += (size + 511) // 512 * 512


def write(name, content):
    parts = name.split("/")
    if len(parts) > 3 or any(not part or part.startswith(".") for part in parts):
        raise ValueError(f"{name!r} is no name of a program")
    folder = PROGRAMS_FOLDER
    for count in range(1, len(parts)):
        folder = os.path.join(folder, parts[count - 1])
        if not os.path.isdir(folder):
            os.mkdir(folder)
            # A file of this name keeps Python, as root, from writing what it has compiled there.
            write("/".join([*parts[:count], "__pycache__"]), b"")
    with open(os.path.join(PROGRAMS_FOLDER, name), "xb") as file:
        file.write(content)
        os.fchmod(file.fileno(), 0o444)


def check_python():
    # The agent and the master speak TLS 1.3.
    major, minor = sys.version_info[:2]
    if (major, minor) < (3, 8):
        refuse(f"the image's python3 is Python {major}.{minor}: {IMAGE_REMEDY}")
    # `ssl` has it from there, and takes five times as long.
    import _ssl

    if not _ssl.HAS_TLSv1_3:
        refuse(f"{_ssl.OPENSSL_VERSION} has no TLS 1.3: {IMAGE_REMEDY}")


def unpack(expected):
    import hashlib
    import zlib

    with open(PROGRAMS_ARCHIVE, "rb") as file:
        data = file.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != expected:
        refuse(
            f"{PROGRAMS_ARCHIVE} has the SHA256 {digest}, and the pod's template says {expected}: "
            f"somebody has changed the release's ConfigMap with programs.tgz. {CONFIG_MAP_REMEDY}"
        )
    try:
        tar = zlib.decompress(data, 31)
    except zlib.error as problem:
        raise ValueError(f"cannot decompress {PROGRAMS_ARCHIVE}: {problem}") from problem
    clear(PROGRAMS_FOLDER)
    for name, content in members(tar):
        write(name, content)
    for folder, _, _ in os.walk(PROGRAMS_FOLDER):
        if folder != PROGRAMS_FOLDER:
            os.chmod(folder, 0o555)


try:
    check_python()
    unpack(sys.argv[1])
except ImportError as problem:
    refuse(f"the image's python3 lacks a module of its standard library: {problem}: {IMAGE_REMEDY}")
except (OSError, RecursionError, ValueError) as problem:
    refuse(f"{type(problem).__name__}: {problem}")
os.execvp("python3", ["python3", *sys.argv[2:]])
