"""The exit codes of the pods' programs that the Job's policy or another program reads."""

from __future__ import annotations

import os

# EX_CONFIG, 78: the Job fails at once, because a retry cannot help.
BAD_CONFIGURATION = os.EX_CONFIG
# EX_SOFTWARE, 70, an internal error of the master: the Job creates another master.
INTERNAL_ERROR = os.EX_SOFTWARE
# Exit codes that end the master's pod but not the run: the Job creates another master. The other
# two are those of SIGKILL and SIGTERM. `make generate` writes these codes for the Job's policy.
LOST_MASTER = (INTERNAL_ERROR, 128 + 9, 128 + 15)
