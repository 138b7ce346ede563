"""The lease of a session: what the command that keeps a run, its master and `status` share."""

from __future__ import annotations

# Annotations of the Job: the session that it belongs to, after how many seconds without a renewal
# its master ends the run, and the last renewal, of which only a change counts.
SESSION = "horovod/session"
LEASE = "horovod/lease-seconds"
RENEWED = "horovod/lease-renewed"
# What the record says of a run that has ended while its workers stay for the session's next one.
LEASE_KEPT = "kept"
