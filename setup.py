"""The packages of the wheel; pyproject.toml has the rest.

Its discovery finds packages in their own folders alone. The chart and the examples are outside of
the library, and become packages of it.
"""

from setuptools import find_packages, setup

POD_PROGRAMS = "charts/horovod/files"
FOLDERS = {
    "hvd_pods": f"{POD_PROGRAMS}/hvd_pods",
    "hvdchart.chart": "charts/horovod",
    "hvdchart.examples": "examples",
}

setup(
    packages=[
        *find_packages(include=["hvdchart", "hvdchart.*"]),
        *find_packages(POD_PROGRAMS),
        "hvdchart.chart",
        "hvdchart.examples",
    ],
    package_dir=FOLDERS,
)
