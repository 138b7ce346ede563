"""The CPU runtime image, from the inside."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from images.catalogue import ROOT, load_catalogue
from tests.images.sandbox import OWN_UID, STRANGE_UID, TWO_RANKS, Sandbox, said

VERSIONS = load_catalogue()["cpu"].versions
LARGEST = 1.3e9
ALLREDUCE = """
import sys, tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.constant([1.0, hvd.rank()]), op=hvd.Sum).numpy().tolist()
sys.stdout.write(f"rank {hvd.rank()} of {hvd.size()}: {total}\\n")
"""


@pytest.mark.parametrize("uid", [OWN_UID, STRANGE_UID])
def test_two_ranks_allreduce_over_mpi_as_any_user(cpu: Sandbox, uid: int) -> None:
    said_by = cpu.succeed(*TWO_RANKS, "python3", "-c", ALLREDUCE, uid=uid)
    lines = sorted(line for line in said_by.splitlines() if line.startswith("rank"))
    assert lines == ["rank 0 of 2: [2.0, 1.0]", "rank 1 of 2: [2.0, 1.0]"]


def test_two_ranks_allreduce_over_gloo(cpu: Sandbox) -> None:
    program = cpu.folder / "allreduce.py"
    program.write_text(ALLREDUCE)
    command = ["horovodrun", "--gloo", "-np", "2", "-H", "localhost:2", "--network-interface", "lo"]
    # horovodrun keeps a file in its user's home, and so needs a user that the image knows.
    out = cpu.succeed(*command, "python3", "/output/allreduce.py", uid=OWN_UID)
    assert "rank 0 of 2: [2.0, 1.0]" in out
    assert "rank 1 of 2: [2.0, 1.0]" in out


def test_versions_are_those_of_the_versions_file(cpu: Sandbox) -> None:
    found = json.loads(
        cpu.python(
            "import json, platform, tensorflow, horovod;"
            "print(json.dumps([platform.python_version(), tensorflow.__version__,"
            " horovod.__version__]))"
        ).splitlines()[-1]
    )
    assert found[0].startswith(VERSIONS["python"] + ".")
    assert found[1:] == [VERSIONS["tensorflow"], VERSIONS["horovod"]]
    assert f"(Open MPI) {VERSIONS['openmpi']}\n" in cpu.succeed("mpirun", "--version")


def test_what_was_slimmed_away_is_not_missed(cpu: Sandbox) -> None:
    """Whatever a training script imports still loads, and a model can be saved and read again."""
    cpu.python(
        "import tensorflow as tf, tensorboard.main, horovod.tensorflow.keras, horovod.runner;"
        "import h5py, grpc, tensorflow.lite, numpy.random;"
        "from tensorboard.plugins import core;"
        "tf.estimator.Estimator, tf.compat.v1.train.MonitoredTrainingSession;"
        "m = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))]);"
        "m.compile('sgd', 'mse', jit_compile=True);"
        "import numpy as np; m.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0);"
        "[m.save(f'/tmp/m{s}') or tf.keras.models.load_model(f'/tmp/m{s}')"
        " for s in ('.h5', '.keras', '')]"
    )
    cpu.succeed("tensorboard", "--version")


def test_installed_packages_need_nothing_that_is_not_there(cpu: Sandbox) -> None:
    assert "No broken requirements found" in cpu.succeed("python3", "-m", "pip", "check")


def test_the_check_at_build_time_refuses_what_is_wrong(cpu: Sandbox) -> None:
    (cpu.folder / "check.py").write_bytes((ROOT / "images/common/check_horovod.py").read_bytes())
    wrong = ["--with", "mpi,nccl", "--without", "tensorflow", "--version", "horovod=0.28.2"]
    done = cpu.run("python3", "/output/check.py", "--framework", "tensorflow", *wrong)
    assert done.returncode == 1, said(done)
    assert "without nccl" in done.stderr
    assert "without mpi" not in done.stderr
    assert "tensorflow is installed" in done.stderr
    assert f"horovod is {VERSIONS['horovod']}, and images/versions.yaml says 0.28.2" in done.stderr
    done = cpu.run("python3", "/output/check.py", "--framework", "torch", "--with", "mpi")
    assert done.returncode == 1
    assert "horovod.torch" in done.stderr
    done = cpu.run("python3", "/output/check.py", "--framework", "no_such")
    assert done.returncode == 1
    assert "horovod.no_such cannot be imported" in done.stderr


@pytest.mark.parametrize("program", ["gcc", "g++", "cc", "c++", "make", "cmake", "ld", "strip"])
def test_no_compiler_is_left(cpu: Sandbox, program: str) -> None:
    assert cpu.run("sh", "-c", f"command -v {program}").returncode != 0


def test_nothing_of_the_building_machine_is_left(cpu: Sandbox) -> None:
    """No secret of the build, key, cache, package list or pip setting."""
    places = [
        *(
            "/run",
            "/tmp",
            "/mnt",
            "/media",
            "/srv",
            "/build",
            "/root",
            "/home/horovod",
            "/etc/pip.conf",
        ),
        *("/etc/ssh", "/var/lib/apt/lists", "/var/cache/apt/archives"),
    ]
    leftovers = cpu.run("find", *places, "-type", "f", uid=0).stdout
    allowed = {"moduli", "ssh_config", "sshd_config", ".bashrc", ".profile", ".bash_logout", "lock"}
    assert {Path(line).name for line in leftovers.splitlines()} <= allowed, leftovers
    assert cpu.succeed("python3", "-m", "pip", "config", "list").strip() == ""


def test_any_user_can_read_everything(cpu: Sandbox) -> None:
    places = ["/usr", "/home/horovod", "/etc/ssh"]
    unreadable = ["(", "-not", "-readable", "-o", "-type", "d", "-not", "-executable", ")"]
    # A place for the system's own keys, empty here, that Debian keeps from others; links may
    # lead to documents that are not unpacked.
    places += ["-not", "-path", "/etc/ssl/private", "-not", "-type", "l"]
    assert cpu.succeed("find", *places, *unreadable) == ""


def test_every_module_is_compiled_and_up_to_date(cpu: Sandbox) -> None:
    """A pod's root is read-only, so a stale .pyc would be compiled again at each start."""
    stale = cpu.python(
        "import importlib.util as u, pathlib, site, struct\n"
        "for source in pathlib.Path(site.getsitepackages()[0]).rglob('*.py'):\n"
        "    compiled = pathlib.Path(u.cache_from_source(source))\n"
        "    stat = source.stat()\n"
        "    want = (u.MAGIC_NUMBER, 0, int(stat.st_mtime), stat.st_size)\n"
        "    head = compiled.read_bytes()[:16] if compiled.exists() else bytes(16)\n"
        "    if struct.unpack('<4sIII', head) != want:\n"
        "        print(source)\n"
    )
    assert stale == ""


def test_importing_costs_no_garbage_collection(cpu: Sandbox) -> None:
    code = (
        "import gc; count = lambda: sum(s['collections'] for s in gc.get_stats());"
        "before = count(); import tensorflow, horovod.tensorflow.keras;"
        "print(count() - before, end=' '); gc.collect(); print(*gc.get_threshold())"
    )
    # None until the first, which brings back Python's own thresholds.
    assert cpu.python(code).split() == ["0", "700", "10", "10"]


def test_sshd_serves_a_user_other_than_root(cpu: Sandbox) -> None:
    """As the chart runs it: own keys and configuration, a high port, no PAM."""
    script = """
    set -eu
    cd /tmp && ssh-keygen -q -t ecdsa -N '' -f host && ssh-keygen -q -t ecdsa -N '' -f user
    printf '%s\\n' 'Port 2222' 'ListenAddress 127.0.0.1' 'HostKey /tmp/host' 'UsePAM no' \\
        'PidFile /tmp/sshd.pid' 'StrictModes no' 'AuthorizedKeysFile /tmp/user.pub' > config
    /usr/sbin/sshd -t -f /tmp/config
    /usr/sbin/sshd -f /tmp/config -E /tmp/log
    echo "[127.0.0.1]:2222 $(cat host.pub)" > known
    ssh -F none -p 2222 -i user -o UserKnownHostsFile=/tmp/known -o StrictHostKeyChecking=yes \\
        127.0.0.1 'command -v python python3 mpirun orted; python3 -c "import horovod"' \\
        || { cat log; exit 1; }
    kill "$(cat sshd.pid)"
    """
    found = cpu.succeed("bash", "-c", script, uid=OWN_UID).split()
    # A session gets none of the image's environment, and finds the same programs.
    local = ["/usr/local/bin/python", "/usr/local/bin/python3"]
    assert found == [*local, "/usr/bin/mpirun", "/usr/bin/orted"]


def test_size_unpacked(cpu: Sandbox) -> None:
    listed = cpu.run("du", "--summarize", "--bytes", "--one-file-system", "/", uid=0).stdout
    assert int(listed.split()[0]) <= LARGEST


def test_building_again_builds_nothing(cpu: Sandbox) -> None:
    from images.build import build

    log = cpu.image.engine.log
    before = log.read_text().count(" build ")
    again = build("cpu")
    assert again.key == cpu.image.key
    assert log.read_text().count(" build ") == before


def test_bad_requests_are_refused_before_a_build() -> None:
    cases = {
        ("build", "cuba"): "cuba: no such image",
        ("build", "cpu", "--set", "tensorflow=2.14.1"): "images lock cpu",
        ("build", "cpu", "--set", "tensorflaw=2.14.1"): "no image has such a version",
        ("build", "cpu", "--set", "tensorflow"): "write it as KEY=VALUE",
        ("build", "cpu", "--set", "tensorflow=latest"): "expected a version",
    }
    for arguments, message in cases.items():
        done = subprocess.run(
            [ROOT / ".venv/bin/python", "-m", "images", *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr
