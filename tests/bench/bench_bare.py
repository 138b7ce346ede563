"""Compares training in pods with the same training beside them on this machine.

python -m tests.bench.bench_bare [--turns 48] [--starts 6] [--only one,two,network]

On the host, the ranks run in the root file system of the same image (chroot), as ordinary processes
of the same user: no pod, no container, no cgroup, the host's network. All ranks are bound to the
same CPUs, one each. Both trainings run all the time; they make one step in turns, and the training
whose turn it is not is stopped. A ratio compares the two steps of one turn. The trainings are
started several times, because the pages of memory that a process happens to get change its speed
for good; an interval is that of the mean ratios of all starts. That both come to the same weights
is tested by tests/e2e/test_equal.py.
Needs root, Buildah and an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from devtools.docs_gen.generated import table
from tests.bench import interleaved_training
from tests.bench.contestants import NAME, Chart, bench_namespace, choose
from tests.bench.report import as_share, publish, verdict
from tests.support.in_image.sandbox import OWN_UID, RuncSandbox, launch_ranks
from tests.support.namespace import Namespace

HOST = "host"
PODS = "pods"
GOAL = 0.998
# The batch size of a rank and the size of the images: a step takes about half a second.
NETWORKS = {"resnet50": (4, 112), "inception3": (4, 160)}
TITLES = {"resnet50": "ResNet-50", "inception3": "Inception-v3"}
# With pages of 4 KiB, one process was up to 18 % faster or slower than the next one like it.
ENVIRONMENT = {**interleaved_training.ENVIRONMENT, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# The filter of containerd 1.6, which the local cluster has, denies process_vm_readv(2): ranks of
# one worker then copy each tensor twice, and an allreduce takes a quarter longer. Those of
# containerd from 1.7 on and of Docker allow it.
UNFILTERED = {"type": "Unconfined"}
# In a mount namespace of its own, so that nothing stays mounted.
ON_HOST = """
set -e
root=$1 folder=$2 user=$3; shift 3
for name in proc sys dev; do mount --rbind /$name "$root/$name"; done
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/output" && mount --bind "$folder" "$root/output"
exec chroot --userspec="$user" "$root" "$@"
"""


@dataclass(frozen=True)
class Layout:
    """Workers, slots in each, and how ranks on the host reach each other (for Open MPI)."""

    title: str
    workers: int
    slots: int
    transport: Mapping[str, str]

    @property
    def ranks(self) -> int:
        return self.workers * self.slots


# The transports that the chart sets. With TCP, ranks use the loopback interface.
SHARED = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib,ofi,uct,usnic"}
LAYOUTS = {
    "one": Layout("one rank", 1, 1, SHARED),
    "two": Layout("two ranks of one worker", 1, 2, SHARED),
    "network": Layout("two workers of one rank", 2, 1, {**SHARED, "OMPI_MCA_btl": "self,tcp"}),
}


# The seconds of each step by party, of each start, by network.
Measured = dict[str, list[dict[str, list[float]]]]


def host_line(inside: RuncSandbox, layout: Layout) -> list[str]:
    """The command line that runs the ranks on this machine, in the image's root file system."""
    variables: dict[str, str] = {**ENVIRONMENT, **layout.transport, "HOME": "/tmp"}
    pairs = [*inside.config["Env"], *(f"{name}={value}" for name, value in variables.items())]
    launch = [*launch_ranks(layout.ranks), *interleaved_training.command(HOST, NETWORKS)]
    root = str(inside.root)
    folder = str(inside.folder)
    words = [root, folder, f"{OWN_UID}:{OWN_UID}", "env", "--ignore-environment", *pairs, *launch]
    return ["unshare", "--mount", "sh", "-c", ON_HOST, "sh", *words]


def pods(namespace: Namespace, layout: Layout) -> Chart:
    env = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    values = {
        "worker": {"number": layout.workers, "slots": layout.slots, "env": env},
        "cleanup": "Never",
        "podSecurityContext": {"seccompProfile": UNFILTERED},
    }
    return Chart(PODS, namespace, values=values)


@contextmanager
def both(
    namespace: Namespace, inside: RuncSandbox, layout: Layout
) -> Iterator[interleaved_training.Parties]:
    """The ranks of both parties, ready, alike and bound to the same CPUs."""
    chart = pods(namespace, layout)
    with closing(interleaved_training.Rendezvous(inside.folder)) as rendezvous:
        process = subprocess.Popen(host_line(inside, layout), stdin=subprocess.DEVNULL)

        def check() -> None:
            if process.poll() is not None:
                raise SystemExit(f"the training on the host ended with {process.returncode}")

        try:
            chart.start(interleaved_training.command(PODS, NETWORKS), inside.folder)
            yield rendezvous.wait_for({HOST: layout.ranks, PODS: layout.ranks}, check)
            rendezvous.close()
            process.wait()
            chart.wait_for_end()
        except BaseException:
            print(namespace.describe(NAME))
            rendezvous.close()
            process.terminate()
            raise
        finally:
            chart.remove()


def ratios(starts: Sequence[Mapping[str, Sequence[float]]]) -> list[float]:
    """How fast the pods were in each start, as a share of the host's speed: means of turns."""
    return [
        statistics.fmean(h / p for h, p in zip(start[HOST], start[PODS], strict=True))
        for start in starts
    ]


def speeds_table(measured: Mapping[str, Measured]) -> str:
    head = ("Network", "In pods", "Host, images/s", "Pods, images/s", "Pods / host")
    rows = []
    for name, networks in measured.items():
        for network, starts in networks.items():
            images = LAYOUTS[name].ranks * NETWORKS[network][0]
            shares = ratios(starts)
            steps = ([each for start in starts for each in start[party]] for party in (HOST, PODS))
            speeds = (f"{images / statistics.fmean(seconds):.2f}" for seconds in steps)
            shown = (as_share(shares), verdict(shares, GOAL))
            rows.append((TITLES[network], LAYOUTS[name].title, *speeds, *shown))
    return table((*head, f"Goal: at least {GOAL:.1%}"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=48, help="of all starts together")
    parser.add_argument("--starts", type=int, default=6, help="of each layout")
    parser.add_argument("--only", default="one,two", metavar="NAMES", help=", ".join(LAYOUTS))
    options = parser.parse_args()
    if not 1 <= options.starts <= options.turns:
        parser.error("--starts must be at least 1 and at most --turns")
    chosen = choose(options.only, LAYOUTS)
    with interleaved_training.examples() as inside, bench_namespace() as namespace:
        if not isinstance(inside, RuncSandbox):
            sys.exit(f"{inside.image.engine.program} does not mount images: use Buildah")
        measured: dict[str, Measured] = {}
        for name, layout in chosen.items():
            measured[name] = {network: [] for network in NETWORKS}
            for _ in range(options.starts):
                with both(namespace, inside, layout) as parties:
                    for network, starts in measured[name].items():
                        turns = options.turns // options.starts
                        starts.append(interleaved_training.take_turns(parties, network, turns))
                        print(f"{name}, {network}: {ratios(starts)[-1]:.1%}", flush=True)
    publish("bench-bare", "performance.md", options.turns, measured, speeds_table(measured))


if __name__ == "__main__":
    main()
