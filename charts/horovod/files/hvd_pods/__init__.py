"""The programs that run inside the pods, each folder by who runs it.

master/ decides what the run does, and cluster/ has its calls to the Kubernetes API. worker/ serves
the ranks of a pod; rank/ is what each rank goes through; warm/ is the process that has imported the
frameworks. All of them use pod/ and shared/, and hvdchart uses shared/, too. They run on the Python
3 of whichever image is used: standard library only, Python 3.8 and newer.
"""
