"""Mutation testing: how many deliberate defects do the tests that need no cluster notice?

The defects are those of cosmic-ray's operators. Its own runner starts all tests anew for each
mutant, which would take days here. mutmut 3 is fast, but changes only what is inside functions,
and chooses the mutant by a variable of the environment, which programs in pods do not inherit.
So mutants are tried here in forks of a process that has imported all tests (worker.py), with the
tests that call the changed function (reach.py). coverage.py cannot tell these: the programs of the
pods run with `python3 -I -S`, in environments of their own, over SSH, and end by exec or a signal.
"""
