"""Create the Python environment of this repository (standard library only).

The packages are cached outside the checkout under a key of the lock file and the interpreter. A
checkout's `.venv` contains only the paths of the cached packages and of the checkout's own
packages, as an editable installation does. A fresh clone can therefore be used at once on a machine
that has the packages.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEV_REQUIREMENTS = ROOT / "requirements" / "dev.txt"
CHECKOUT = ROOT / ".venv"
# The folders of this repository's packages: hvdchart, devtools and others, and hvd_pods.
SOURCES = (ROOT, ROOT / "charts" / "horovod" / "files")


def environment_dir(lock: Path = DEV_REQUIREMENTS) -> Path:
    """Return the path of the environment for a lock file and this interpreter."""
    # `base_prefix`: the Python of an environment is the same interpreter.
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode() + sys.base_prefix.encode())
    # Python runs this file as a script, so only devtools/ is on the path.
    sys.path.insert(0, str(ROOT))
    from devtools.common.cache import cache_dir

    return cache_dir() / f"venv-{key.hexdigest()[:16]}"


def require_venv_module() -> None:
    """Install ensurepip, which is a separate package on Debian, or exit and name the package."""
    if importlib.util.find_spec("ensurepip"):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        sys.exit(f"bootstrap: this Python cannot create environments: install {package} first")
    subprocess.run([apt, "update", "-q"], check=True)
    subprocess.run([apt, "install", "-y", "-q", "--no-install-recommends", package], check=True)


def ensure(target: Path, packages: Path = DEV_REQUIREMENTS) -> None:
    """Build the environment unless it is complete, or wait for another process that builds it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # fcntl: filelock is one of the packages that are not installed yet.
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "bin" / "python").exists():
            create(target, packages)


def create(target: Path, packages: Path) -> None:
    """Build the environment of a lock file in a directory beside `target`, then rename it."""
    require_venv_module()
    print(f"bootstrap: installing the locked Python packages into {target}", file=sys.stderr)
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        subprocess.run([sys.executable, "-m", "venv", str(staging)], check=True)
        command = [str(staging / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--require-hashes", "-r", str(packages)], check=True)
        # Tools such as chart-testing run these scripts, which contain the path of the environment.
        for script in (staging / "bin").iterdir():
            if script.is_file() and not script.is_symlink():
                relocate(script, staging, target)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def relocate(script: Path, staging: Path, target: Path) -> None:
    """Replace the environment's path in one of its scripts."""
    content = script.read_bytes()
    script.write_bytes(content.replace(str(staging).encode(), str(target).encode()))


def link_checkout(packages: Path) -> None:
    """Create `.venv` for this checkout and the environment `packages` unless it exists."""
    (site_packages,) = [
        path.relative_to(packages) for path in packages.glob("lib/python*/site-packages")
    ]
    text = f"import site; site.addsitedir({str(packages / site_packages)!r})\n"
    text += "".join(f"{path}\n" for path in SOURCES)
    paths = CHECKOUT / site_packages / "checkout.pth"
    if not CHECKOUT.is_symlink() and paths.exists() and paths.read_text() == text:
        return
    if CHECKOUT.is_symlink():
        CHECKOUT.unlink()
    elif CHECKOUT.exists() and not (CHECKOUT / "pyvenv.cfg").exists():
        sys.exit(f"bootstrap: {CHECKOUT} is no Python environment: move it away first")
    venv.create(CHECKOUT, clear=True, symlinks=True)
    for program in (packages / "bin").iterdir():
        own_program = CHECKOUT / "bin" / program.name
        if own_program.exists():
            continue
        if program.read_bytes()[:2] == b"#!":
            shutil.copy2(program, own_program)
            relocate(own_program, packages, CHECKOUT)
        else:
            own_program.symlink_to(program)
    # Write this file last: after an interruption, the next call starts again.
    paths.write_text(text)


def main() -> None:
    """Create the environment and the checkout's `.venv` unless they exist."""
    if sys.version_info < (3, 11):  # noqa: UP036  (older ones get a clear message)
        sys.exit(f"bootstrap: this is Python {sys.version.split()[0]}; install 3.11 or newer")
    target = environment_dir()
    ensure(target)
    link_checkout(target)


if __name__ == "__main__":
    main()
