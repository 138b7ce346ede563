"""The variables, annotations and labels by which the chart, the pods and hvdchart know each other.

The comment above a name says what it has. docs/inside.md shows the variables, from here.
"""

from __future__ import annotations

# == From the chart to the master

# The description of the run, as JSON (common/run.py).
RUN = "HVD_RUN"
# The name of the run's Job.
JOB = "HVD_JOB"
# The UID of the run's Job, which tells it from an earlier one of the same name.
JOB_UID = "HVD_JOB_UID"
# The address of the pod, where ranks send notices and find the launcher.
POD_IP = "HVD_POD_IP"
# The names of the two Secrets with certificates that the first master fills.
KEYS_SECRETS = "HVD_KEYS_SECRETS"
# `serviceMesh` of the values: how a proxy in the pod is ended.
MESH = "HVD_MESH"
# The file in which a script of the master's reports metrics.
METRICS_FILE = "HVD_METRICS_FILE"
# Where the spans of the run go, and what they say of the release, as JSON (master/span_export.py).
TRACING = "HVD_TRACING"
# The Job of the release that `helm test` tests.
TESTED_JOB = "HVD_TESTED_JOB"
# Set for `helm test` where a NetworkPolicy admits only the pods of the release.
POLICY = "HVD_POLICY"

# == From the chart to the workers

# The number of ranks that this worker takes.
SLOTS = "HVD_SLOTS"
# The number of workers that the ranks need, by which the agent bounds its connections.
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
GRACE = "HVD_GRACE"
# Set in a queue of Kueue, where a worker that is deleted has not succeeded.
IN_QUEUE = "HVD_IN_QUEUE"
# Set where Horovod's fusion threshold follows from the number of ranks.
FUSION_BY_RANKS = "HVD_FUSION_BY_RANKS"
# The modules that the warm process imports, separated by spaces.
PRELOAD = "HVD_PRELOAD"
# The directory of the metrics of ranks, one file each.
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
# Where notices about ranks go (common/notices.py).
NOTICES = "HVD_NOTICES"
# Where the ranks meet (common/rank_variables.py).
MEETING = "HVD_MEETING"

# == From the master to its launcher of mode `direct`

# How many seconds ranks go on without a master; 0 or no value stands for none.
STAY_WITHIN = "HVD_STAY_WITHIN"

# == From a rank to processes that it starts

# The descriptor, the signal and the number by which a child reports to its rank.
SITE = "HVD_SITE"

# == From users

# Another file for the event log of this run than the one in memory, in master.env.
EVENTS_FILE = "HVD_EVENTS_FILE"

# == Of tests

# Another folder than the worker's memory, for what `keep` keeps.
KEEP = "HVD_KEEP"
# Another socket than the worker's, for calls from a notebook.
CALLS = "HVD_CALLS"

# == Annotations of the Job

# What becomes of the workers.
CLEANUP = "hvdchart/cleanup"
# The queue of Kueue, whose preemptions are no failures.
QUEUE = "hvdchart/queue"
# The session that the run belongs to.
SESSION = "hvdchart/session"
# After how many seconds without a renewal the master ends the run.
LEASE = "hvdchart/lease-seconds"
# The last renewal, which the command of the session writes. Only a change of it counts.
RENEWED = "hvdchart/lease-renewed"

# == Annotations of the master's pod

# Which command of hvdchart has made the run.
COMMAND = "hvdchart/command"

# == Annotations of a StatefulSet

# How many of its workers are spares.
SPARES = "hvdchart/spares"
# With how many workers the run goes on.
MINIMUM = "hvdchart/minimum"

# == Annotations of the record

# How the run has ended, for an upgrade that finds the record without data.
ENDED = "hvdchart/ended"

# == Labels of the Job and of a StatefulSet

# Hashes of the values that decide what is trained, and of those for what runs and where.
RUN_LABEL = "hvdchart/run"
SETTINGS_LABEL = "hvdchart/settings"

# == Labels of a StatefulSet and of its pods

# The group of workers. Without the prefix of the others: StatefulSets of 0.1.0 have it in their
# selector, which Kubernetes never changes.
GROUP_LABEL = "horovod/group"

# == Labels of a worker

# The revision of the release that made the pod, which HVD_REVISION tells it.
REVISION_LABEL = "hvdchart/revision"

# == Labels of a node list

# What the list is about: `staged`, for nodes that have the data.
NODE_LIST_LABEL = "hvdchart/node-list"

# == Labels of all objects

# The name of the chart, unless `nameOverride` is set.
NAME_LABEL = "app.kubernetes.io/name"
# The name of the release.
INSTANCE_LABEL = "app.kubernetes.io/instance"
# Which part of the release it is: master, worker, tensorboard and so on.
COMPONENT_LABEL = "app.kubernetes.io/component"
