"""Make the Python environment that everything else here runs in (standard library only).

The environment is kept outside the tree under a name made from the lock file and the interpreter,
and `.venv` links to it: a clean clone on a machine that has built it before is ready at once.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
LINK = ROOT / ".venv"


def environment_dir() -> Path:
    """Where the environment for this lock file and this interpreter is kept."""
    # The base's prefix: an environment's own Python is the same interpreter.
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode() + sys.base_prefix.encode())
    # Run as a script: only tools/ is on the path.
    sys.path.insert(0, str(ROOT))
    from devtools.common.cache import cache_dir

    return cache_dir() / f"venv-{key.hexdigest()[:16]}"


def require_venv_module() -> None:
    """Debian splits ensurepip from Python; install it where that is possible, else say so."""
    if importlib.util.find_spec("ensurepip"):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        sys.exit(f"bootstrap: this Python cannot make environments: install {package} first")
    subprocess.run([apt, "update", "-q"], check=True)
    subprocess.run([apt, "install", "-y", "-q", "--no-install-recommends", package], check=True)


def make(target: Path) -> None:
    """Build the environment beside its final place and move it there whole."""
    require_venv_module()
    print(f"bootstrap: installing the locked Python packages into {target}", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        subprocess.run([sys.executable, "-m", "venv", str(staging)], check=True)
        command = [str(staging / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--require-hashes", "-r", str(LOCK)], check=True)
        # Tools such as chart-testing call these by name: their scripts must name the final place.
        for script in (staging / "bin").iterdir():
            if script.is_file() and not script.is_symlink():
                relocate(script, staging, target)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def relocate(script: Path, staging: Path, target: Path) -> None:
    """Rewrite the environment's own path in one of its scripts."""
    content = script.read_bytes()
    script.write_bytes(content.replace(str(staging).encode(), str(target).encode()))


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  (the whole point is to say it plainly)
        sys.exit(f"bootstrap: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    target = environment_dir()
    if not (target / "bin" / "python").exists():
        make(target)
    if LINK.is_symlink() and LINK.readlink() == target:
        return
    if LINK.is_symlink():
        LINK.unlink()
    elif LINK.exists():
        sys.exit(f"bootstrap: {LINK} is in the way: it is not a link that this script made")
    LINK.symlink_to(target)


if __name__ == "__main__":
    main()
