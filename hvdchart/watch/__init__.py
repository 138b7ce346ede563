"""One view of a run in several formats: a terminal, a page in the browser, a notebook, a file."""
