"""Where the chart mounts what pods use, as texts: programs that start for each SSH session do
without pathlib, whose import takes longer than all that they do.
"""

from __future__ import annotations

# This folder. __file__ would do for this pod only: it is resolved to the directory of one version
# of the ConfigMap.
FILES = "/horovod/bin"
SECRETS = "/horovod/ssh"
# An emptyDir in memory. Scripts written for older charts read `hostfile` from here.
GENERATED = "/horovod/generated"
# The user's code: as the chart mounts it into the master, and where every pod unpacks it.
CODE_SOURCE, CODE = "/horovod/code-source", "/horovod/code"
# The container's environment for its SSH sessions: each entry ended by a NUL.
ENVIRONMENT = f"{GENERATED}/environment"
# The newest epoch that this worker has served.
EPOCH = f"{GENERATED}/epoch"
