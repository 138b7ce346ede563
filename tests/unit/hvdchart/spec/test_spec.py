"""Every wrong spec is refused with one message: place, problem and what was expected."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.load import load_tree, parse_spec
from hvdchart.spec.yaml_tree import MAX_BYTES

GOOD = """\
apiVersion: hvdchart/v1
name: run
nodes:
  - name: xeon
    count: 2
    sockets: 2
    coresPerSocket: 28
train:
  command: [python, train.py]
"""


def refused(text: str | bytes) -> SpecError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SpecError) as caught:
        parse_spec(data, "a.yaml")
    return caught.value


def test_valid_spec_is_read() -> None:
    spec = parse_spec(GOOD.encode())
    assert (spec.name, spec.nodes[0].sockets, spec.train.command) == (
        "run", 2, ("python", "train.py"),
    )  # fmt: skip


def test_node_with_zero_gpus_is_a_cpu_node() -> None:
    assert parse_spec((GOOD.replace("sockets: 2", "gpus: 0")).encode()).nodes[0].gpus == 0


@pytest.mark.parametrize("name", ["a.yaml", "-"])
def test_spec_of_a_byte_too_many_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for size in (MAX_BYTES, MAX_BYTES + 1):
        text = b"# " + b"x" * (size - 7) + b"\na: b"
        Path("a.yaml").write_bytes(text)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        if size == MAX_BYTES:
            load_tree(Path(name))
    with pytest.raises(SpecError, match="the file is too long"):
        load_tree(Path(name))


# What replaces what in the good spec; where the message must point; what it must say.
WRONG_VALUES = [
    ("sockets: 2", "socket: 2", "6:5", "did you mean 'sockets'?"),
    ("sockets: 2", 'sockets: "2"', "6:14", "'2'; expected a whole number from 1 to 64"),
    ("sockets: 2", "sockets: true", "6:14", "expected a whole number"),
    ("sockets: 2", "sockets: 2.5", "6:14", "got 2.5"),
    ("sockets: 2", "sockets: 0", "6:14", "got 0"),
    ("sockets: 2", "sockets:", "6:5", "nothing (null)"),
    ("count: 2", "count: " + "9" * 500, "5:12", "finite decimal number"),
    ("count: 2", "count: 1e999", "5:12", "finite decimal number"),
    ("count: 2", "count: 010", "5:12", "number 010"),
    ("count: 2", "count: 1_000", "5:12", "number 1_000 with '_'; expected 1000, or quotes"),
    ("count: 2", "count: 1_0.5", "5:12", "expected 10.5, or quotes"),
    ("count: 2", "count: [2]", "5:12", "a list of 1"),
    ("    count: 2\n", "", "4:5", "key 'count' is missing"),
    ("    coresPerSocket: 28\n", "", "4:5", "needs coresPerSocket or gpus"),
    ("hvdchart/v1", "hvdchart/v2", "1:13", "one of hvdchart/v1"),
    ("name: run", "name: Run", "2:7", "a-z, 0-9 and -"),
    ("name: run", "name: " + "a" * 46, "2:7", "52"),
    ("name: run", "name: 7", "2:7", 'in quotes: "7"'),
    ("[python, train.py]", "python train.py", "9:12", "expected a list"),
    ("[python, train.py]", "[]", "9:12", "a list of 1 to"),
    ("train:\n", "train:\n  env: {1A: x}\n", "9:9", "name of an environment variable"),
    ("train:\n", "train:\n  env: {A: true}\n", "9:12", "need quotes"),
    ("train:\n", "volumes: {data: {hostPath: ../../etc}}\ntrain:\n", "8:28", "absolute path"),
    ("train:\n", "volumes: {data: {hostPath: /a/../../etc}}\ntrain:\n", "8:28", "without .."),
    ("train:\n", "volumes: {data: {}}\ntrain:\n", "8:17", "no source"),
    ("train:\n", "volumes: {x: {emptyDir: {}}}\ntrain:\n", "8:14", "'mountPath' is missing"),
    ("train:\n", "volumes: {data: {emptyDir: {}}, x: {emptyDir: {}, mountPath: /data/}}\ntrain:\n",
     "8:62", "mounted at /data as well"),
    ("train:\n", "  - {name: xeon, count: 1, gpus: 1}\ntrain:\n", "8:12", "has the same name"),
    ("train:\n", "launch: {mode: elastic, elastic: {minRanks: 5}}\ntrain:\n", "8:45", "4 ranks"),
    ("train:\n", "launch: {mode: elastic, elastic: {maxRanks: 3}}\ntrain:\n", "8:45", "4 ranks"),
    ("train:\n", "launch: {elastic: {minRanks: 1}}\ntrain:\n", "8:30", "mode: elastic"),
    ("count: 2", "count: 2\n    spares: -1", "6:13", "a whole number from 0"),
    ("28\n", "28\n    spares: 1\nlaunch: {mode: elastic}\n", "8:13", "launch.mode elastic"),
    ("train:\n", "launch: {mode: custom, options: [-x]}\ntrain:\n", "8:33", "takes no options"),
    ("train:\n", "volumes: {tmp: {emptyDir: {}, mountPath: /t}}\ntrain:\n", "8:16",
     "the chart has a volume named 'tmp'"),
    ("train:\n", "volumes: {t: {emptyDir: {}, mountPath: /tmp}}\ntrain:\n", "8:40",
     "used by the system or by the chart"),
    ("train:\n", "volumes: {t: {emptyDir: {}, mountPath: /}}\ntrain:\n", "8:40",
     "used by the system or by the chart"),
    ("train:\n", "volumes: {data: {pvc: a, nfs: {server: b, path: /c}}}\ntrain:\n", "8:17",
     "pvc and nfs together"),
    ("train:\n", "volumes: {data: {pvc: a, groups: [z]}}\ntrain:\n", "8:35", "no group 'z'"),
    ("train:\n", "volumes: {output: {pvc: a, readOnly: true}}\ntrain:\n", "8:38",
     "mounted read-only"),
    ("train:\n", "train:\n  checkpoints: a\n", "9:16", "volumes.output"),
    ("train:\n", "horovod: {timeline: true}\ntrain:\n", "8:21", "volumes.output"),
    ("train:\n", "horovod: {fusionThreshold: 1000}\ntrain:\n", "8:28", "not a multiple of 1Mi"),
    ("    count: 2\n", "    count: 2\n    cpuManager: static\n", "6:17", "without memory"),
    ("    count: 2\n", "    count: 2\n    reserved: {cpu: 56}\n", "6:21", "all 56"),
    ("    count: 2\n", "    count: 2\n    shared: true\n    reserved: {cpu: 1}\n", "7:15",
     "nothing is reserved"),
    ("    count: 2\n", "    count: 2\n    memory: 8Gi\n    cpuManager: static\n"
     "    reserved: {cpu: 55500m}\n", "7:17",
     "none of 56 cores is left: the kubelet reserves 55500m CPUs, and the master and DaemonSets "
     "need 600m"),
    ("sockets: 2\n    coresPerSocket: 28", "numaPerSocket: 4\n    coresPerSocket: 3", "6:20",
     "4 NUMA nodes in a socket of 3 cores"),
    ("sockets: 2\n    coresPerSocket: 28", "numaPerSocket: 4\n    gpus: 1", "6:20",
     "numaPerSocket has no effect without coresPerSocket"),
    ("train:\n", "tuning: {binding: core, slots: 57}\ntrain:\n", "8:19", "57 ranks to bind"),
    ("train:\n", "  - {name: d, count: 1, coresPerSocket: 2, tuning: {binding: none}}\n"
     "tuning: {binding: core}\ntrain:\n", "8:62", "none here and core in tuning.binding"),
    ("train:\n", "tuning: {binding: socket, slots: 3}\ntrain:\n", "8:19", "on 2 sockets"),
    ("train:\n", "tuning: {binding: none}\nlaunch: {mode: elastic}\ntrain:\n", "8:19",
     "takes no binding"),
    ("train:\n", "  - {name: d, count: 1, gpus: 1, tuning: {binding: core}}\ntrain:\n", "8:52",
     "no coresPerSocket"),
    ("train:\n", "  - {name: master, count: 1, gpus: 1}\ntrain:\n", "8:12", "master"),
    ("train:\n", "  - {name: d, count: 1, gpus: 4, tuning: {slots: 3}}\ntrain:\n",
     "8:50", "4 GPUs"),
    ("train:\n", "  - {name: d, count: 1, gpus: 4, nodeSelector: {a b: c}}\ntrain:\n",
     "8:49", "label"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "says"), WRONG_VALUES)
def test_wrong_value_is_refused_at_its_place(old: str, new: str, place: str, says: str) -> None:
    assert old in GOOD
    error = refused(GOOD.replace(old, new, 1))
    assert error.place == f"a.yaml:{place}", str(error)
    assert says in str(error)
    assert "\n" not in str(error)


def test_all_errors_of_a_spec_are_reported_at_once() -> None:
    text = GOOD.replace("name: run", "name: Run").replace("count: 2", "count: 0")
    text = text.replace("sockets: 2", "socket: 2") + "  env: {1A: x, B: true}\nlaunch: 7\n"
    error = refused(text)
    assert [each.place for each in error.errors] == [
        f"a.yaml:{place}"
        for place in ("2:7", "6:5", "5:12", "10:9", "10:19", "11:9")
    ]  # fmt: skip
    assert str(error) == "\n".join(map(str, error.errors))
    assert (error.place, error.path) == ("a.yaml:2:7", "name")


def test_all_contradictions_of_a_spec_are_reported_at_once() -> None:
    text = GOOD.replace(
        "    count: 2\n", "    count: 2\n    cpuManager: static\n    shared: true\n"
    )
    error = refused(text + "  checkpoints: a\nlaunch: {options: [--np, --gloo]}\n")
    said = [each.problem for each in error.errors]
    assert said == [
        "static together with shared: true",
        "static without memory",
        "checkpoints need an output volume",
        "option 'np', but the chart sets worker.number and worker.slots",
    ]


def test_of_very_many_errors_the_first_are_shown() -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(50))
    error = refused(GOOD + keys)
    assert len(error.errors) == 50
    lines = str(error).splitlines()
    assert (len(lines), lines[-1]) == (21, "and 30 more errors")


TEN_TO_THE_SEVENTH = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{c}: &{c} [{','.join([f'*{p}'] * 10)}]\n" for p, c in zip("abcdef", "bcdefg", strict=True)
)
BROKEN_YAML: list[tuple[str | bytes, str, str]] = [
    ("", "a.yaml", "no YAML value"),
    ("# nothing\n", "a.yaml", "no YAML value"),
    ("- 1\n", "a.yaml:1:1", "expected a map"),
    ("a: 1\na: 2\n", "a.yaml:2:1", "'a' is given twice"),
    ("a: &x [*x]\n", "a.yaml:1:4", "inside its own anchor"),
    ("a: b: c\n", "a.yaml:1:5", "a ':' where no key can be"),
    ("a: 1\n b: 2\n", "a.yaml:2:3", "a ':' where no key can be"),
    ("a: [1\n", "a.yaml", "']' or ',' is missing in the brackets that open at 1:4"),
    ("a: {b: 1\nc: 2\n", "a.yaml:2:2", "'}' or ',' is missing in the brackets that open at 1:4"),
    ("a: 1\n---\nb: 2\n", "a.yaml:2:1", "a second document begins here"),
    ("a: 1\nb: 'x\nc: 2\n", "a.yaml:4:1", "the text in quotes that begins at 2:4 does not end"),
    ("a:\n\tb: 1\n", "a.yaml:2:1", "a tab; expected spaces"),
    ("a: @b\n", "a.yaml:1:4", "'@' at the start of a value; expected quotes"),
    ("a: *b\n", "a.yaml:1:4", "*b refers to an anchor &b that is not above it"),
    ("- a\nb: 1\n", "a.yaml:2:1", "indented unlike the lines before it, from 1:1 on"),
    ("a: |\nb\n", "a.yaml:3:1", "the line 2:1 is neither a key"),
    ("a: {{ x }}\n", "a.yaml:1:5", "a template with {{ }} must be rendered first"),
    ('a: "\\q"\n', "a.yaml:1:6", "unknown escape character 'q', in what begins at 1:4"),
    ("a: \x07\n", "a.yaml:1:4", "control character"),
    ('a: "\\0"\n', "a.yaml:1:4", "control character"),
    (b"a: b\nc: \xff\n", "a.yaml:2:4", "0xff is not UTF-8"),
    ("a: !!python/object:os.system x\n", "a.yaml:1:4", "tag"),
    ("a: !mine {}\n", "a.yaml:1:4", "tag"),
    ("? [1]\n: 2\n", "a.yaml:1:3", "as a key"),
    ("1: 2\n", "a.yaml:1:1", "not text"),
    ("a: " + "[" * 60 + "]" * 60, "a.yaml:1:43", "nested too deep"),
    ("a: " + "[" * 2000, "a.yaml:1:43", "nested too deep"),
    ("a: .nan\n", "a.yaml:1:4", "finite"),
    ("x" * 600_000, "a.yaml", "at most"),
    (TEN_TO_THE_SEVENTH, "a.yaml", "aliases expand to too many values"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("text", "place", "says"), BROKEN_YAML)
def test_broken_yaml_is_refused_at_its_place(text: str | bytes, place: str, says: str) -> None:
    error = refused(text)
    assert error.place == place or (error.place.startswith(place + ":")), str(error)
    assert says in str(error)
    assert "\n" not in str(error)


def test_anchors_and_merge_keys_are_resolved() -> None:
    text = GOOD.replace("  - name: xeon", "  - &one\n    name: xeon")
    text = text.replace("train:\n", "  - {<<: *one, name: other, count: 3}\ntrain:\n")
    other = parse_spec(text.encode()).nodes[1]
    assert (other.name, other.count, other.sockets) == ("other", 3, 2)


def test_the_places_of_a_spec_are_no_part_of_its_value() -> None:
    spec, moved = parse_spec(GOOD.encode()), parse_spec(f"# A comment.\n\n{GOOD}".encode())
    assert spec == moved
    assert "Place(" not in repr(spec), "the spec is printed without them"


def test_the_file_of_a_text_can_be_named_by_keyword() -> None:
    with pytest.raises(SpecError, match=r"^mine\.yaml: "):
        parse_spec(data="", file="mine.yaml")
