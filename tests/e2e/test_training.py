"""Releases on a real cluster, in namespaces that enforce Pod Security `restricted`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from tests.e2e.quick_runs import assert_trained, keys_of, quick_values
from tests.support.namespace import Namespace

RELEASES = ("one", "two")


@pytest.fixture(scope="class")
def two_releases(namespace: Namespace) -> None:
    """Two releases are installed at the same time, each by another Helm."""
    namespace.install("one", quick_values())
    namespace.install("two", quick_values(), version="helm3")


@pytest.fixture(scope="class")
def uninstalled(two_releases: None, namespace: Namespace) -> None:
    """The first of both has ended and is uninstalled."""
    namespace.wait_for_end("one")
    done = namespace.helm("uninstall", "one", "--wait")
    assert done.returncode == 0, done.stderr


def all_names(namespace: Namespace) -> list[str]:
    """The names of all objects but events, which the cluster forgets by itself."""
    kinds = namespace.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name")
    kinds_of_runs = ",".join(kind for kind in kinds.split() if not kind.startswith("events"))
    return [item["metadata"]["name"] for item in namespace.get(kinds_of_runs)["items"]]


@pytest.mark.usefixtures("two_releases")
class TestTwoReleases:
    @pytest.mark.parametrize("release", RELEASES)
    @pytest.mark.promise("two releases train side by side")
    def test_two_releases_train_side_by_side(self, namespace: Namespace, release: str) -> None:
        assert_trained(namespace, release)

    @pytest.mark.parametrize("release", RELEASES)
    def test_workers_are_gone_after_the_end(self, namespace: Namespace, release: str) -> None:
        namespace.wait_for_no_workers(release)
        assert namespace.replicas(f"{release}-worker") == 0

    def test_no_key_is_that_of_another_release(self, namespace: Namespace) -> None:
        keys = [key for release in RELEASES for key in keys_of(namespace, release)]
        # Of a master and of the workers, each with a key, a certificate and an authority.
        assert len({*keys}) == 4 * 3

    def test_uninstall_leaves_nothing_and_the_other_release_stays(
        self, uninstalled: None, namespace: Namespace
    ) -> None:
        # What belongs to an object of the release goes after it.
        names_of_one = ("one", "sh.helm.release.v1.one")
        wait_until(
            lambda: not any(name.startswith(names_of_one) for name in all_names(namespace)),
            180,
            "nothing of the release is left",
            PROGRAM_PAUSE,
        )
        assert {"two-agent-master", "two-agent-worker"} <= set(all_names(namespace))


@pytest.fixture(scope="class")
def log_of_mpirun(namespace: Namespace) -> str:
    """The master's log of a run with an option for mpirun, whose workers stay."""
    return namespace.train(
        "hvd", quick_values(launch={"options": ["--tag-output"]}, cleanup="Never")
    )


class TestMpirun:
    def test_printed_command_is_the_one_that_ran(self, log_of_mpirun: str) -> None:
        (printed,) = [line for line in log_of_mpirun.splitlines() if "$ mpirun" in line]
        assert "--tag-output" in printed
        # The option did what it does: Open MPI names the rank on each line.
        assert "[1,0]<stdout>" in log_of_mpirun

    @pytest.mark.parametrize("worker", ["hvd-worker-0", "hvd-worker-1"])
    def test_daemons_are_started_by_the_agents(
        self, log_of_mpirun: str, namespace: Namespace, worker: str
    ) -> None:
        shown = namespace.kubectl("logs", worker, "--container", "worker")
        line = r"agent connection from \S+: fence number \d+, argv [0-9a-f]{12}, ended: 0$"
        assert re.search(line, shown, re.M), shown


# As a script of a user's own does, which finds the commands on PATH.
SCRIPT = r"""
(cd /tmp && mpirun -np 4 --bind-to none sh -c 'echo ON $HVD_POD; sleep 1')
while read -r host slots; do
    ssh -n -o BatchMode=yes "$host" 'echo "AT $HVD_POD $MARK"'
    ssh -n "$host" '/horovod/generated/bin/ssh hvd-worker-0 true || echo "NONE $? $HVD_POD"'
    echo 7 | ssh "$host" 'read -r code; exit "$code"' || echo "CODE $? $slots"
done < $(HOSTFILE)
ssh -n elsewhere true || echo "CODE $? of another host"
"""


@pytest.fixture(scope="class")
def lines_of_script(namespace: Namespace) -> list[str]:
    """What a script has printed that starts programs on all hosts by `mpirun` and by `ssh`."""
    worker = {"env": [{"name": "MARK", "value": "a 'b'  \"$c\""}]}
    master = {"args": ["sh", "-c", SCRIPT], "backoffLimit": 0}
    run = quick_values(worker=worker, master=master, launch={"mode": "custom"})
    return namespace.train("hvd", run).splitlines()


class TestCommandOfTheUsersOwn:
    """Its `ssh` is the master's own command of this name, which asks the agents of the workers."""

    def test_mpirun_uses_the_workers(self, lines_of_script: list[str]) -> None:
        """As on one machine, it names no host; each MPI has a variable that names its host file."""
        shown = sorted(line for line in lines_of_script if line.startswith("ON "))
        assert shown == [f"ON hvd-worker-{number}" for number in (0, 0, 1, 1)]

    def test_program_runs_on_the_host_with_the_workers_environment(
        self, lines_of_script: list[str]
    ) -> None:
        shown = [line for line in lines_of_script if line.startswith("AT ")]
        assert shown == [f"AT hvd-worker-{number} a 'b'  \"$c\"" for number in (0, 1)]

    def test_program_reads_its_input_and_its_exit_code_is_that_of_the_command(
        self, lines_of_script: list[str]
    ) -> None:
        assert lines_of_script.count("CODE 7 slots=2") == 2

    def test_host_that_is_not_of_the_run_is_refused(self, lines_of_script: list[str]) -> None:
        assert "CODE 255 of another host" in lines_of_script

    def test_workers_start_nothing_in_other_workers(self, lines_of_script: list[str]) -> None:
        shown = [line for line in lines_of_script if line.startswith("NONE ")]
        assert shown == ["NONE 255 hvd-worker-0", "NONE 255 hvd-worker-1"]


@pytest.mark.rare
def test_run_trains_under_the_horovodrun_of_a_custom_command(namespace: Namespace) -> None:
    line = ["horovodrun", "-np", "$(NP)", "--hostfile", "$(HOSTFILE)", "--gloo"]
    base = quick_values(launch={"mode": "custom"})
    namespace.install("hvd", {**base, "master": {"args": [*line, *base["master"]["args"]]}})
    assert_trained(namespace, "hvd")


@pytest.fixture(scope="class")
def of_a_stranger(namespace: Namespace) -> None:
    """A run of a user whom no image knows, without a service account."""
    context = {"runAsUser": 123456, "runAsGroup": 0, "fsGroup": 123456}
    account = {"create": False}
    namespace.install("hvd", quick_values(podSecurityContext=context, serviceAccount=account))


@pytest.mark.usefixtures("of_a_stranger")
class TestRunWithFewRights:
    @pytest.mark.promise("run trains as any user id")
    def test_run_trains_as_any_user_id(self, namespace: Namespace) -> None:
        assert_trained(namespace, "hvd", uid=123456)

    @pytest.mark.promise("run trains without a service account")
    def test_run_trains_without_a_service_account(self, namespace: Namespace) -> None:
        namespace.assert_completes("hvd")
        assert namespace.replicas("hvd-worker") == 2, "the master has no right to end the workers"


@pytest.fixture(scope="class")
def terminated(namespace: Namespace) -> dict[str, Any]:
    """How the only master of a run ended whose workers have no image or no runtime class."""
    groups = [
        {"name": "image", "number": 1, "image": {"repository": "no-such-image"}},
        {"name": "class", "number": 1, "podSpec": {"runtimeClassName": "no-such-class"}},
    ]
    namespace.install(
        "hvd", quick_values(workerGroups=groups, launch={"workersTimeoutSeconds": 40})
    )
    assert namespace.wait_for_end("hvd") == "Failed"
    (master,) = namespace.master_pods("hvd")
    ended: dict[str, Any] = master["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended


class TestWorkersThatCannotStart:
    def test_run_fails_without_a_retry_which_could_not_help(
        self, terminated: dict[str, Any]
    ) -> None:
        assert terminated["exitCode"] == 78

    def test_missing_image_and_runtime_class_are_reported_by_the_master(
        self, terminated: dict[str, Any]
    ) -> None:
        """In the termination message, which `kubectl describe` shows."""
        message = terminated["message"]
        # Of each worker, up to the next one.
        reasons = dict(re.findall(r"(hvd-\w+-0): (.*?)(?=hvd-\w+-0: |what to do|$)", message))
        assert "no-such-image" in reasons["hvd-image-0"]
        assert "no-such-class" in reasons["hvd-class-0"]


# Each rank trains a step and shows its parent, a random number, and what it has of the others.
TRAIN = """
import os, random, sys
import tensorflow as tf
import horovod.tensorflow as hvd
parent = open(f"/proc/{os.getppid()}/cmdline").read()
hvd.init()
weight = tf.Variable(1.0 + hvd.rank())
hvd.broadcast_variables([weight], root_rank=0)
with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    loss = weight * float(hvd.rank())
weight.assign_sub(tape.gradient(loss, [weight])[0])
draws = [random.random(), float(tf.random.uniform([]))]
sys.stdout.write(f"WARM {'warm/server.py' in parent} {weight.numpy():.2f} {draws}\\n")
"""


@pytest.mark.rare
def test_ranks_are_forks_that_train_and_share_no_random_state_of_tensorflow(
    namespace: Namespace,
) -> None:
    """The unit tests have stand-ins for the frameworks."""
    changes = {"args": ["python3", "-c", TRAIN]}
    # The modules are those that the image names.
    log = namespace.train("hvd", quick_values(master=changes, launch={"preload": None}))
    lines = [line for line in log.splitlines() if line.startswith("WARM ")]
    # The gradient is the mean of the ranks' numbers, 1.5.
    assert [line.split()[1:3] for line in lines] == [["True", "-0.50"]] * 4, log
    assert len({line.split()[3] for line in lines}) == 4, "ranks share a random state"
    assert len({line.split()[4] for line in lines}) == 4, "ranks share a random state"
