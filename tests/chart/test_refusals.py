"""The chart refuses values that contradict each other, and names each key and the remedy."""

from __future__ import annotations

import json

import pytest
import yaml

from devtools.docs_gen.chart_docs import load_source
from hvdchart.chart_files import read_data
from tests.chart.render import Values, helm_template, nested, refusal

# Values, and below them what the message says.
CONTRADICTIONS = """\
worker: {slots: 2, resources: {limits: {nvidia.com/gpu: 4}}}
  slots is 2 | resources.limits["nvidia.com/gpu"] is 4
worker: {env: [{name: NVIDIA_VISIBLE_DEVICES}], resources: {limits: {nvidia.com/gpu: 1}}}
  env has NVIDIA_VISIBLE_DEVICES | resources.limits["nvidia.com/gpu"] is 1
workerGroups: [{name: a}, {name: a}]
  two groups named "a"
workerGroups: [{name: master}]
  workerGroups[].name | reserved for the master
{fullnameOverride: rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr, workerGroups: [{name: gggggggggggg}]}
  53 characters | at most 52
fullnameOverride: a.b
  "a.b" (fullnameOverride) | host names
nameOverride: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn
  48 characters | at most 47 | nameOverride | fullnameOverride
workerGroups: [{name: a, number: 9000}, {name: b, number: 2000}]
  workerGroups | 11000 hosts | at most 10000
workerGroups: [{name: a, number: null}]
  number
{worker: {spares: 1}, launch: {mode: custom}, master: {args: [mpirun, -H, "hvd-worker-0.hvd:1"]}}
  spares is 1 | master.args | "hvd-worker-0" | $(HOSTFILE) | $(LAUNCH)
worker: {number: 2, minimum: 3}
  group "worker": minimum is 3 | number is 2
{worker: {minimum: 1}, launch: {mode: custom}, master: {args: [mpirun, -H, "hvd-worker-0.hvd:1"]}}
  minimum is 1 | master.args | "hvd-worker-0" | $(HOSTFILE)
launch: {mode: custom}
  launch.mode | master.args
launch: {allowIdleWorkers: true}
  launch.allowIdleWorkers is true | launch.mode is mpirun
launch: {mode: direct, framework: mpi}
  launch.framework is mpi | launch.mode is direct
launch: {mode: direct, options: [--other]}
  launch.options has "--other" | launch.mode is direct
{launch: {mode: custom, options: [-v]}, master: {args: [mpirun]}}
  launch.mode is custom | launch.options | $(LAUNCH)
{master: {args: [horovodrun, -np, "2", a]}, launch: {options: [-v]}}
  launch.options has "-v" | master.args | without horovodrun
{master: {args: [horovodrun, a]}, launch: {framework: mpi, mode: mpirun}}
  launch.framework is mpi | master.args | without horovodrun
{master: {args: [horovodrun, a]}, launch: {framework: mpi, mode: direct}}
  launch.framework is mpi | without horovodrun | launch.mode to mpirun
master: {args: [time, $(LAUNCH)]}
  master.args | $(LAUNCH) | launch.mode is mpirun
launch: {binding: {to: core}}
  launch.binding.to is core | launch.binding.coresPerRank
launch: {binding: {to: socket, ranksPerSocket: 1, coresPerRank: 2}}
  launch.binding.coresPerRank is 2 | launch.binding.to is socket
launch: {binding: {ranksPerSocket: 1}}
  launch.binding.ranksPerSocket is 1 | launch.binding.to is none
master: {ttlSecondsAfterFinished: 60}
  master.ttlSecondsAfterFinished | cleanup is OnSuccess
{cleanup: Always, serviceAccount: {create: false}}
  cleanup is Always | serviceAccount
podSecurityContext: {runAsUser: 0}
  runAsUser | runAsNonRoot
worker: {spread: Required, affinity: {podAntiAffinity: {}}}
  spread is Required | affinity.podAntiAffinity
workerGroups: [{name: rdma, capabilities: [IPC_LOCK]}]
  group "rdma" | capabilities | IPC_LOCK | podSecurityContext.runAsUser
gang: Kubernetes
  GenericWorkload | Volcano or SchedulerPlugins | --api-versions scheduling.k8s.io/v1beta1/PodGroup
{networkPolicy: {enabled: true}, hostNetwork: true}
  networkPolicy.enabled | hostNetwork
{serviceMesh: Ambient, hostNetwork: true}
  serviceMesh is Ambient | hostNetwork is true
{hostNetwork: true, agent: {port: 6443}}
  hostNetwork is true | agent.port is 6443
{hostNetwork: true, agent: {port: 32000}}
  agent.port is 32000
{metrics: {enabled: true}, agent: {port: 9400}}
  metrics.enabled is true | agent.port is 9400 | choose another
agent: {masterSecret: a}
  agent.masterSecret is "a" | agent.workerSecret is "" | give both, or neither
agent: {workerSecret: b}
  agent.masterSecret is "" | agent.workerSecret is "b" | give both, or neither
agent: {masterSecret: a, workerSecret: a}
  agent.masterSecret is "a" | agent.workerSecret is "a" | the master's key
image: {repository: ""}
  image.repository is empty (group "worker") | --set image.repository= | docs/images.md
{image: {repository: ""}, worker: {image: {repository: a}}}
  image.repository is empty (master)
worker: {podSpec: {nodeSelector: {}}}
  worker.podSpec has nodeSelector | use worker.nodeSelector
workerGroups: [{name: a, podSpec: {containers: []}}]
  workerGroups[a].podSpec has containers | use worker.extraContainers
worker: {podSpec: {subdomain: x}}
  worker.podSpec has subdomain | remove it
{hostNetwork: true, worker: {podSpec: {dnsPolicy: Default}}}
  worker.podSpec has dnsPolicy | hostNetwork
master: {container: {command: [x]}}
  master.container has command | use master.args
worker: {extraContainers: [{name: worker}]}
  two containers named "worker" | rename yours
worker: {initContainers: [{name: staging}]}
  two containers named "staging" | rename yours
podLabels: {app.kubernetes.io/component: x}
  podLabels has app.kubernetes.io/component | selectors
labels: {app.kubernetes.io/managed-by: x}
  labels has app.kubernetes.io/managed-by | chart
labels: {horovod/run: x}
  labels has horovod/run | chart
{worker: {serviceAccount: {create: true}}, \
workerGroups: [{name: a}, {name: b, serviceAccount: {annotations: {r: x}}}]}
  group "a" | group "b" | "hvd-worker" | name of its own
{serviceAccount: {name: x}, worker: {serviceAccount: {create: true, name: x}}}
  serviceAccount and worker.serviceAccount | "x"
volumes: [{name: programs, emptyDir: {}}]
  volumes | "programs" | rename yours
volumes: [{name: archive, emptyDir: {}}]
  volumes | "archive" | rename yours
volumeMounts: [{name: x, mountPath: /horovod/archive}]
  volumeMounts | /horovod/archive | another path
volumeMounts: [{name: x, mountPath: /horovod/bin/hvd_pods/rank}]
  volumeMounts | /horovod/bin/hvd_pods/rank | another path
volumes: [{name: keys, emptyDir: {}}]
  volumes | "keys" | rename yours
volumeMounts: [{name: x, mountPath: /horovod/keys}]
  volumeMounts | /horovod/keys | another path
volumeMounts: [{name: x, mountPath: /horovod/}]
  volumeMounts | /horovod/ | another path
worker: {env: [{name: HVD_SLOTS, value: "4"}]}
  worker.env | HVD_SLOTS | another name
staging: {env: [{name: STAGING_KEY, value: x}]}
  staging.env has STAGING_KEY
worker: {env: [{name: A, value: "1"}, {name: B, value: $(A)}, {name: A, value: $(B)}]}
  worker.env of group "worker" | A is "$(B)", which refers to B | write the value of B out
worker: {env: [{name: A, value: "1"}, {name: A, value: $(A)x}]}
  worker.env of group "worker" | A is "$(A)x" | write the value of A out
staging: {command: ["true"]}
  staging.command | staging.path is empty
staging: {path: /data/x}
  staging.path | staging.command is empty
staging: {command: ["true"], path: /data/x}
  staging.path is "/data/x" | volumeMounts | group "worker"
{staging: {command: ["true"], path: /data/}, volumeMounts: [{name: x, mountPath: /data}]}
  staging.path | mountPath
{staging: {command: ["true"], path: /database}, volumeMounts: [{name: x, mountPath: /data}]}
  "/database" | volumeMounts
results: {command: [store]}
  results.path is empty | OUTPUT_PATH
results: {command: [store], path: /elsewhere}
  "/elsewhere" | volumeMounts
{results: {command: [s], path: /o}, volumes: [{name: x, emptyDir: {}}], \
volumeMounts: [{name: x, mountPath: /o}]}
  emptyDir "x" | each pod has its own
results: {onFailure: true}
  results.onFailure | command is empty
horovod: {timeline: true}
  horovod.timeline | worker.env | OUTPUT_PATH
tensorboard: {enabled: true}
  tensorboard.logDir is empty | OUTPUT_PATH
tensorboard: {enabled: true, logDir: /outside}
  tensorboard.logDir is "/outside" | volumeMounts
metrics: {podMonitor: true}
  metrics.podMonitor | metrics.enabled
tensorboard: {allowFrom: [{podSelector: {}}]}
  tensorboard.allowFrom | tensorboard.enabled
{tensorboard: {enabled: true, logDir: /o, allowFrom: [{podSelector: {}}]}, \
networkPolicy: {enabled: false}, volumeMounts: [{name: x, mountPath: /o}]}
  tensorboard.allowFrom | networkPolicy.enabled
code: {files: {a.py: "", b.py: ""}}
  code is set but master.args is empty
code: {archive: UEsDBA==}
  code.archive is not a tar.gz in base64
code: {files: {train: {p y: ""}}}
  train.p y
"""
# Values that the schema refuses.
WRONG_VALUES = """\
wroker: {}
  wroker
launch: {mode: mpiexec}
  /launch/mode
worker: {number: two}
  /worker/number
agent: {port: 1023}
  /agent/port
agent: {generation: 0}
  /agent/generation
launch: {preload: [a..b]}
  preload
"""


def cases(text: str) -> list[tuple[Values, list[str]]]:
    """Return the values and the words of each pair of lines."""
    pairs = zip(*[iter(text.splitlines())] * 2, strict=True)
    return [(yaml.safe_load(values), words.strip().split(" | ")) for values, words in pairs]


def name(part: Values | list[str]) -> str:
    """Return the name of a case."""
    return json.dumps(part) if isinstance(part, dict) else ""


@pytest.mark.parametrize(("values", "words"), cases(CONTRADICTIONS), ids=name)
def test_contradiction_names_both_keys(values: Values, words: list[str]) -> None:
    message = refusal(values)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize(("values", "words"), cases(WRONG_VALUES), ids=name)
def test_schema_error_names_the_key(helm: str, values: Values, words: list[str]) -> None:
    done = helm_template(values, helm=helm)
    assert done.returncode != 0
    assert [word for word in words if word not in done.stderr] == [], done.stderr


def test_code_that_does_not_fit_is_refused() -> None:
    most = int(read_data("resources.json")["codeCharacters"])
    files = {"train.py": "x" * (most + 1)}
    assert f"use at most {most}" in refusal({"code": {"files": files}})


@pytest.mark.parametrize(("key", "instead"), load_source()["retired"].items())
def test_retired_key_is_refused_with_what_to_use_instead(key: str, instead: str) -> None:
    path, is_value, value = key.partition("=")
    message = refusal(nested(path.split("."), value or True))
    kind = "value" if is_value else "key"
    assert f"{key} is a {kind} of older charts; use instead: {instead}" in message
