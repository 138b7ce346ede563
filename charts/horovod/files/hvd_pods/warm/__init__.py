"""The process that imports the frameworks of a worker, and its forks, the warm ranks."""
