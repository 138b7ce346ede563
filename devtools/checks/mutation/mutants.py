"""What is changed: the modules, the functions in them, and the mutants of a module."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[3]
# Of each pair of like operators one is enough: any other replacement of `==` fails as `!=` does.
REPLACEMENTS = {
    "Eq": "NotEq", "NotEq": "Eq", "Lt": "LtE", "LtE": "Lt", "Gt": "GtE", "GtE": "Gt",
    "Is": "IsNot", "IsNot": "Is", "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul",
    "FloorDiv": "Mul", "Mod": "Mul", "Pow": "Mul", "BitOr": "BitAnd", "BitAnd": "BitOr",
    "LShift": "RShift", "RShift": "LShift",
}  # fmt: skip
OTHERS = (
    "AddNot", "ReplaceOrWithAnd", "ReplaceAndWithOr", "ReplaceTrueWithFalse", "NumberReplacer",
    "ReplaceFalseWithTrue", "ZeroIterationForLoop", "ExceptionReplacer", "RemoveDecorator",
    "ReplaceContinueWithBreak", "ReplaceBreakWithContinue", "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
)  # fmt: skip

FRACTION = re.compile(r"[0-9_]*\.[0-9]|[0-9_]+e")


@dataclass(frozen=True)
class Mutant:
    """One change: `operator` applied where it fits for the `occurrence`-th time in a module.

    `line` and `column` are its place, `text` is the line without its indentation. `function` is
    the line of the `def` in whose body it is; 0 where Python evaluates it on import.
    """

    module: str
    operator: str
    occurrence: int
    line: int
    column: int
    text: str
    function: int

    @property
    def name(self) -> str:
        """The operator without cosmic-ray's prefix."""
        return self.operator.partition("/")[2]

    @property
    def key(self) -> str:
        """The mutant's name in tests/mutation-survivors.yaml: it stays when lines move."""
        return f"{self.module}: {self.name}: {self.text}"

    def apply(self, source: str) -> str | None:
        """The changed source of the module; None when the change is not valid Python."""
        operator = get_operator(self.operator)()
        try:
            changed: str | None = mutate_code(source, operator, self.occurrence)
        except AttributeError:
            # cosmic-ray's ExceptionReplacer fails at names with a dot, such as tarfile.TarError.
            return None
        if changed is None:
            raise RuntimeError(f"{self.key}: the operator no longer fits")
        try:
            ast.parse(changed)
        except SyntaxError:
            return None
        return changed


def targets() -> dict[str, list[Path]]:
    """The modules to mutate: those of the pods, of each package of the library, and at its top."""
    library = ROOT / "hvdchart"
    packages = sorted(path.parent for path in library.glob("*/__init__.py"))
    return {
        "pods": sorted(ROOT.glob("charts/horovod/files/*.py")),
        "base": sorted(library.glob("*.py")),
        **{package.name: sorted(package.rglob("*.py")) for package in packages},
    }


def operators() -> list[str]:
    """The names of the operators in use."""
    pairs = {f"{old}_{new}" for old, new in REPLACEMENTS.items()}
    return [
        name
        for name in operator_names()
        if name.partition("/")[2] in OTHERS
        or (name.partition("/")[2].partition("Operator_")[2] in pairs)
    ]


def mutants_of(module: Path) -> list[Mutant]:
    """Every mutant of a module but those in type annotations, which nothing evaluates."""
    return list(find_mutants(str(module.relative_to(ROOT)), module.read_text("utf-8")))


def find_mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module's source."""
    nodes = list(ast_nodes(get_ast(source)))
    annotations, functions = _annotation_spans(source), functions_of(source)
    lines = source.splitlines()
    for name in operators():
        operator = get_operator(name)()
        positions = itertools.chain.from_iterable(map(operator.mutation_positions, nodes))
        for occurrence, (start, _) in enumerate(positions):
            # The replacer of numbers adds one, then takes one away: the first is enough.
            if name.endswith("NumberReplacer") and occurrence % 2:
                continue
            line, column = start
            if _is_without_effect(name, lines[line - 1], column):
                continue
            if not any(first <= start < last for first, last in annotations):
                inside = [each.line for each in functions if each.first <= line <= each.last]
                text = lines[line - 1].strip()
                yield Mutant(module, name, occurrence, line, column, text, max(inside, default=0))


def _is_without_effect(operator: str, line: str, column: int) -> bool:
    """Whether no test could notice a mutant, or none should.

    Numbers with a fraction are times, sizes and ratios that were measured or chosen: one more
    breaks no promise. Nothing assigns to the fields of frozen dataclasses: `frozen` states it.
    """
    if operator.endswith("NumberReplacer"):
        return bool(FRACTION.match(line[column:]))
    return operator.endswith("TrueWithFalse") and line.lstrip().startswith("@dataclass(")


@dataclass(frozen=True)
class Function:
    """The lines of a function: of its `def`, and the first and last one of its body.

    `entry` is the (line, column) of the first statement after the docstring, if there is one.
    """

    line: int
    first: int
    last: int
    entry: tuple[int, int] | None


def functions_of(source: str) -> list[Function]:
    """All functions of a module, methods and inner functions included."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            first = min(first_line(statement) for statement in node.body)
            apart = bool(body) and first > node.lineno
            entry = (first_line(body[0]), body[0].col_offset) if apart else None
            found.append(Function(node.lineno, first, node.end_lineno or first, entry))
    return found


def first_line(statement: ast.stmt) -> int:
    """The line where a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _annotation_spans(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    spans = []
    for node in ast.walk(ast.parse(source)):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if isinstance(part, ast.expr):
                end = (part.end_lineno or part.lineno, part.end_col_offset or 0)
                spans.append(((part.lineno, part.col_offset), end))
    return spans
