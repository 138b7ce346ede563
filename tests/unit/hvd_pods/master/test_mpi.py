"""The MPI implementations: detection, command lines, host files and variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import mpi
from hvd_pods.shared.errors import ConfigurationError
from hvd_pods.shared.run import Run
from tests.support.runs import make_run


def find_installed(folder: Path, script: str) -> mpi.MpiImplementation:
    """Find the MPI whose mpirun is this script of a shell."""
    program = folder / "mpirun"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return mpi.find_mpi({"PATH": f"{folder}:/usr/bin:/bin"})


def make_large_run(workers: int, **changes: Any) -> Run:
    """A run of one group with so many workers."""
    group = {
        "stateful_set": "w",
        "number": workers,
        "maximum": workers,
        "slots": 2,
        "revision": "r",
    }
    return make_run(groups=[group], **changes)


# First lines of what each prints, as seen.
@pytest.mark.parametrize(
    ("version_output", "implementation"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", mpi.OPEN_MPI_4),
        ("mpirun (Open MPI) 10.0.1\n", mpi.OPEN_MPI_5),
        ("mpiexec (OpenRTE) 4.0.3\n", mpi.OPEN_MPI_4),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 2026", mpi.INTEL_MPI),
        ("HYDRA build details:\n    Version:        4.3.2\n", mpi.MPICH),
        ("MPICH Version:      5.0.0\n", mpi.MPICH),
        ("srun 23.02", None),
    ],
)
def test_detect_mpi_reads_the_output_of_each_version(
    version_output: str, implementation: mpi.MpiImplementation | None
) -> None:
    assert mpi.detect_mpi(version_output) == implementation


def test_image_without_mpirun_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\bmpirun\b"):
        mpi.find_mpi({"PATH": str(tmp_path)})


def test_unknown_mpirun_is_refused_with_its_first_words(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError, match=r" 4\).*'srun x{295}'"):
        find_installed(tmp_path, f"echo srun {'x' * 400}; exit 4")


def test_mpirun_may_print_its_version_as_an_error_and_fail(tmp_path: Path) -> None:
    found = find_installed(tmp_path, "[ $1 = --version ] && echo MPICH Version: 5 >&2; exit 3")
    assert found is mpi.MPICH


@pytest.mark.parametrize(
    ("options", "words"),
    [
        # A binding of the user's is the only one.
        (["--bind-to", "core"], []),
        (["-bind-to", "core"], []),
        (["--bind-to=core"], []),
        (["--map-by", "node", "--bind-to", "core"], []),
        # A mapping of the user's replaces the chart's, which still turns Open MPI's binding off.
        (["--map-by", "node"], ["--bind-to", "none"]),
        # Neither of the two: a value, and an unknown option.
        (["-x", "bind-to"], ["--map-by", "slot", "--bind-to", "none"]),
        (["--bind-tox", "core"], ["--map-by", "slot", "--bind-to", "none"]),
    ],
)
def test_open_mpi_leaves_placing_to_options_that_bind_or_map(
    options: list[str], words: list[str]
) -> None:
    line = mpi.mpirun_line(make_run(options=options), mpi.OPEN_MPI_4)
    assert line[5:] == [*words, *options]


@pytest.mark.parametrize(
    ("mode", "workers", "clients"),
    [
        ("mpirun", 64, 64),
        ("mpirun", 257, 257),
        ("custom", 257, 257),
        # The gateway's own process has the agent connections.
        ("direct", 257, 0),
    ],
)
def test_clients_are_counted_for_each_launcher(mode: str, workers: int, clients: int) -> None:
    assert mpi.count_clients(make_large_run(workers, mode=mode)) == clients


ROUTES = """Iface\tDestination\tGateway\tFlags
eth1\t0000FEA9\t00000000\t0001
eth0\t00000000\t0101A8C0\t0003
eth2\t00000000\t0101A8C0\t0003
"""


def test_default_interface_is_that_of_the_first_default_route() -> None:
    assert mpi.default_interface(ROUTES) == "eth0"
    assert mpi.default_interface(ROUTES.replace("\t00000000\t0101A8C0", "\t0000000A\t0")) == ""
    assert mpi.default_interface("00000000\t00000000\n") == "", "the first line is the heading"
