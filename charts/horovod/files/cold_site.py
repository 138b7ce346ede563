"""What Python imports first in a rank that starts cold, in place of any `sitecustomize`.

The rank writes its stack when it is asked to (files/stacks.py). Apart from that, it finds what it
would find without this: the path, the variables and the image's own `sitecustomize`. The image's
Python may be of any version.
"""

import os
import sys

HERE = os.path.dirname(__file__)
sys.path[:] = [folder for folder in sys.path if folder != HERE]
given = [word for word in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if word != HERE]
if given:
    os.environ["PYTHONPATH"] = os.pathsep.join(given)
chosen = os.environ.pop("HVD_STACK", "")
try:
    import faulthandler

    descriptor, number = map(int, chosen.split())
    faulthandler.register(number, descriptor)
    if descriptor > 2:
        # For this process only, not for those that it starts.
        os.set_inheritable(descriptor, False)
except (AttributeError, ImportError, OSError, ValueError):
    # Another Python than CPython.
    pass
# The image's own, if it has one; without, Python goes on.
del sys.modules[__name__]
__import__(__name__)
