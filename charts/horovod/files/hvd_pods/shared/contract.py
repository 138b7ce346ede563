"""The variables, annotations and labels that the chart, the pods and hvdchart share.

The comment above a name describes its content.
"""

from __future__ import annotations

# == From the chart to the master

# The description of the run, as JSON (shared/run.py).
RUN = "HVD_RUN"
# The name of the run's Job.
JOB = "HVD_JOB"
# The UID of the run's Job, which tells it from an earlier one of the same name.
JOB_UID = "HVD_JOB_UID"
# The address of the pod, where ranks send notices and find the launcher.
POD_IP = "HVD_POD_IP"
# The names of the two Secrets with certificates that the first master fills.
KEYS_SECRETS = "HVD_KEYS_SECRETS"
# `serviceMesh` of the values: how to end a proxy in the pod.
MESH = "HVD_MESH"
# The Job of the release that `helm test` tests.
TESTED_JOB = "HVD_TESTED_JOB"
# Set for `helm test` where a NetworkPolicy admits only the pods of the release.
POLICY = "HVD_POLICY"

# == From the chart to the workers

# The number of ranks that this worker takes.
SLOTS = "HVD_SLOTS"
# The number of workers that the ranks need, from which the agent derives its connection limits.
WORKERS = "HVD_WORKERS"
# The name of the pod.
POD = "HVD_POD"
# The port of the agent.
AGENT_PORT = "HVD_AGENT_PORT"
# The name that the certificate of the master must have.
MASTER_NAME = "HVD_MASTER_NAME"
# The revision of the release that made the pod.
REVISION = "HVD_REVISION"
# The pod's grace period, in seconds.
GRACE_SECONDS = "HVD_GRACE_SECONDS"
# Set in a queue of Kueue, where a worker that is deleted has not succeeded.
IN_QUEUE = "HVD_IN_QUEUE"
# The seconds for which a rank may keep the others waiting; 0: no limit.
STALL_TIMEOUT_SECONDS = "HVD_STALL_TIMEOUT_SECONDS"
# Set where Horovod's fusion threshold follows from the number of ranks.
FUSION_BY_RANKS = "HVD_FUSION_BY_RANKS"
# The modules that the warm process imports, separated by spaces.
PRELOAD = "HVD_PRELOAD"
# The directory of the ranks' metrics, with one file for each rank.
METRICS_DIR = "HVD_METRICS_DIR"

# == From the chart to both

# The framework of the script, where `launch.framework` names one.
FRAMEWORK = "HVD_FRAMEWORK"
# The port of the metrics.
METRICS_PORT = "HVD_METRICS_PORT"

# == From the master to what it starts in workers

# The fence number, which grows with each attempt (worker/fence.py).
FENCE = "HVD_FENCE"
# The number of the attempt, from 1.
ATTEMPT = "HVD_ATTEMPT"
# The run, by which a rank knows the state in a worker's memory (library/keep).
RUN_ID = "HVD_RUN_ID"
# Where notices about ranks go (pod/notices.py).
NOTICES = "HVD_NOTICES"
# The rendezvous of the ranks: where they meet (pod/rank_variables.py).
RENDEZVOUS = "HVD_RENDEZVOUS"

# == From the master to its launcher of mode `direct`

# How many seconds ranks go on without a master; 0 or an empty value means that they do not.
ORPHAN_SECONDS = "HVD_ORPHAN_SECONDS"

# == From a rank to processes that it starts

# The descriptor, the signal and the number by which a child reports to its rank.
SITE = "HVD_SITE"

# == From users

# A file for the event log of this run, in place of the one in memory. It is set in master.env.
EVENTS_FILE = "HVD_EVENTS_FILE"
# Set in worker.env: each line of the output then names its rank. `hvdchart run` sets it, too. The
# master also gets it, and passes the option for that to mpirun (master/mpi.py).
TAG_OUTPUT = "HVD_TAG_OUTPUT"
# Set in worker.env: each run has an output folder of its own. `hvdchart dev` sets it, too.
OUTPUT_PER_RUN = "HVD_OUTPUT_PER_RUN"

# == From programs outside of a pod, which have no such volume

# The folder of the states of `keep`, in place of the worker's memory.
KEEP_FOLDER = "HVD_KEEP"

# == Annotations of the Job

# What happens to the workers after the end.
CLEANUP = "hvdchart/cleanup"
# The queue of Kueue. Its preemptions are not failures.
QUEUE = "hvdchart/queue"
# The session that the run belongs to.
SESSION = "hvdchart/session"
# The master ends the run after this many seconds without a renewal.
LEASE = "hvdchart/lease-seconds"
# The last renewal, which the command of the session writes. The master checks only for changes.
RENEWED = "hvdchart/lease-renewed"

# == Annotations of the master's pod

# The command of hvdchart that created the run.
COMMAND = "hvdchart/command"

# == Annotations of a StatefulSet

# The number of its workers that are spares.
SPARES = "hvdchart/spares"
# The number of workers with which the run can go on.
MINIMUM = "hvdchart/minimum"

# == Annotations of the record

# How the run ended, for an upgrade that finds the record without data.
ENDED = "hvdchart/ended"

# == Labels of a worker

# The revision of the release that made the pod. The pod gets it in HVD_REVISION.
REVISION_LABEL = "hvdchart/revision"

# == Labels of a node list

# The subject of the list: `staged`, for nodes that have the data.
NODE_LIST_LABEL = "hvdchart/node-list"

# == Labels of all objects

# The name of the chart, unless `nameOverride` is set.
NAME_LABEL = "app.kubernetes.io/name"
# The name of the release.
INSTANCE_LABEL = "app.kubernetes.io/instance"
# The component of the release: master, worker, tensorboard and so on.
COMPONENT_LABEL = "app.kubernetes.io/component"
