"""A worker: sshd, the sessions of the ranks, and what happens when the pod is terminated."""
