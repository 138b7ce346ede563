"""Carries over Intel's Machine Learning Container Templates: `mlt init`, `template_config set`.

What the horovod template made of its parameters is in its deploy.sh: mpirun with cores for each
rank, mapped by socket, on one pod for each rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import Volumes
from hvdchart.migrate.shell import Text
from hvdchart.spec.paths import KeyPath

_DEFAULTS = {
    "num_nodes": "1",
    "num_workers_per_node": "1",
    "num_inter_threads": "2",
    "sockets_per_node": "1",
    "physical_cores": "1",
    "total_steps": "50",
    "log_steps": "20",
    "batch_size": "128",
    "data_path": "/home/nfsshare/mnist",
    "output_path": "/home/nfsshare/mnist/checkpoints",
    "no_horovod": "False",
    "learning_rate": "0.001",
    "gpus": "0",
}
_UNUSED = {
    "node_selector": "its use was commented out in the template; see worker.nodeSelector",
    "memory": "its use was commented out in the template; see worker.resources",
}
_FLAGS = ("skip-crd-check", "enable-sync")
_INIT = frozenset(("template", "registry", "namespace", "name", *_FLAGS))
_SCRIPT = "/src/app/exec_multiworker.sh"
# The parameters that are the script's arguments, after the ranks of a socket.
_ARGUMENTS = (
    "num_inter_threads",
    "total_steps",
    "log_steps",
    "batch_size",
    "data_path",
    "output_path",
    "no_horovod",
    "learning_rate",
)


class Mlt:
    """The mlt lines of a script."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.parameters = dict(_DEFAULTS)
        # The lines that set parameters.
        self.lines: dict[str, KeyPath] = {}
        self.init: dict[str, str] = {}
        self.used = False

    def read(self, old: KeyPath, words: Sequence[Text]) -> None:
        """One line: its words after mlt."""
        self.used = True
        texts = [word.text for word in words]
        if unknown := next(filter(None, (word.unknown for word in words)), ""):
            raise self.ledger.error(old, f"only a shell knows {unknown}", "its value")
        if texts[:2] == ["template_config", "set"] and len(texts) == 4:
            name, value = texts[2:]
            if name not in {**_DEFAULTS, **_UNUSED}:
                problem = f"{name} is no parameter of mlt's horovod template"
                raise self.ledger.error(old, problem, f"one of {', '.join(_DEFAULTS)}")
            self.parameters[name] = value
            self.lines[name] = old
            if name in _UNUSED:
                self.ledger.drop(old, _UNUSED[name])
            else:
                reason = f"{name} {value}, as in the template's deploy.sh"
                self.ledger.change(old, ("master", "args"), reason)
        elif texts[:1] == ["init"] and texts[1:]:
            rest = texts[1:]
            while len(rest) > 1:
                name, equals, value = rest.pop(0).lstrip("-").partition("=")
                if not equals and name not in _FLAGS and rest:
                    value = rest.pop(0)
                self.init[name] = value
            self.init["name"] = "".join(rest)
            if self.init.get("template") != "horovod" or not _INIT.issuperset(self.init):
                problem = f"got mlt {' '.join(texts)}"
                raise self.ledger.error(old, problem, "mlt init --template=horovod NAME")
            self.ledger.change(old, ("helm install NAME",), "the names of release and namespace")
        elif texts[:1] in (["build"], ["deploy"], ["logs"], ["status"], ["undeploy"], ["events"]):
            self.ledger.drop(old, "helm install does it, with an image that is built and pushed")
        else:
            problem = f"migrate does not understand mlt {' '.join(texts[:2])}"
            raise self.ledger.error(old, problem, "mlt init, template_config set, build or deploy")

    def carry_over(self) -> None:
        """Put the values and the names of release and namespace into the ledger."""
        ledger = self.ledger
        lines = self.lines
        if not lines:
            expected = "lines mlt template_config set NAME VALUE; mlt template_config list shows"
            raise ledger.error((), "no line sets a parameter of the template", expected)
        counted = ("num_nodes", "num_workers_per_node", "sockets_per_node", "physical_cores")
        number = {key: self._integer(key) for key in counted}
        if self.parameters["gpus"] != "0":
            problem = f"each rank had a pod of its own with {self.parameters['gpus']} GPUs"
            raise ledger.error(lines["gpus"], problem, "no gpus, and worker.resources set by hand")
        for key, new in (("num_nodes", "number"), ("num_workers_per_node", "slots")):
            ledger.put(("worker", new), number[key], lines.get(key, ()))
        options = [
            "--map-by",
            f"socket:PE={number['physical_cores']}",
            "--bind-to",
            "core",
            "--report-bindings",
            "--oversubscribe",
        ]
        ledger.put(("launch", "options"), options, ())
        per_socket = number["num_workers_per_node"] // (number["sockets_per_node"] or 1)
        words = ["bash", _SCRIPT, str(per_socket), *(self.parameters[name] for name in _ARGUMENTS)]
        ledger.put(("master", "args"), words, ())
        data = self.parameters["data_path"]
        output = self.parameters["output_path"]
        volumes = Volumes(ledger)
        volume = {"name": "vol", "hostPath": {"path": data}}
        volumes.add_pair(lines.get("data_path", ()), volume, {"name": "vol", "mountPath": data})
        volumes.put(lines.get("data_path", ()))
        if not f"{output}/".startswith(f"{data}/"):
            ledger.add_check(f"output_path {output} is on no volume: mount one there")
        ledger.release = self.init.get("name", "")
        registry = self.init.get("registry")
        ledger.namespace = self.init.get("namespace", "")
        if registry:
            ledger.put(("image", "repository"), f"{registry}/{ledger.release}", ())
            ledger.add_check("image.tag is the one that mlt build gave the image last: set it")
        else:
            ledger.add_check("set image.repository and image.tag to the image that mlt build made")

    def _integer(self, name: str) -> int:
        text = self.parameters[name]
        if not text.isdecimal() or len(text) > 7:
            problem = f"{name} is {text}"
            raise self.ledger.error(self.lines.get(name, ()), problem, "a whole number")
        return int(text)
