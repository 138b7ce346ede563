"""The process that has imported the frameworks of a worker, and its forks, the warm ranks."""
