"""Words of the record that its master writes, and that hvdchart reads (docs/life.md)."""

from __future__ import annotations

# The states of a run.
FINISHED = "Finished"
FAILED = "Failed"
RUNNING = "Running"
# Results that were stored; of others, the record says why they were not.
STORED = "Stored"
# Of the lease: the run has ended while its workers stay for the session's next one.
LEASE_KEPT = "kept"
