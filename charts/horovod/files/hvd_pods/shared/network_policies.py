"""The messages of `helm test` and `doctor` about NetworkPolicies that the network ignores."""

from __future__ import annotations

UNENFORCED = (
    "each pod that reaches the pods of a run can take the place of a rank and, with mpirun, start "
    "programs in them; use a network plugin that enforces policies, or an encrypting mesh, or give "
    "the nodes of a run to nobody else"
)
