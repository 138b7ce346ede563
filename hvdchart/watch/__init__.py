"""One view of a run with several skins: the terminal, a page in the browser, a notebook, a file."""
