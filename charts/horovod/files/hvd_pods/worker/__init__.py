"""A worker: the agent, the sessions of the ranks, and what happens when the pod is terminated."""
