"""A worker: the agent, its connections, and what happens when the pod is terminated."""
