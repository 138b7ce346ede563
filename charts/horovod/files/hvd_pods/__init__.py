"""The programs that run inside the pods.

In the container of the master:
- master/ drives a run: it waits for the workers, and starts the launcher.
- rules/ decides what the master does. It has no side effects.
- cluster/ calls the Kubernetes API and DNS.

In the containers of the workers:
- worker/ has the agent, which starts programs for the master, and what ends them.
- warm/ imports the frameworks once, and forks the ranks.
- rank/ runs around the script of each rank.
- library/ has the modules that scripts import.

In both:
- protocol/ is the connection between the master and the agent of a worker.
- pod/ has what all of them share: the log, processes, servers, the user's code.
- shared/ has what hvdchart uses, too: the run, its errors, facts about launchers.

They run on the Python of whichever image is used: standard library only, Python 3.8 and newer.
"""
