"""The check of the chart's templates finds what has another form."""

from __future__ import annotations

import pytest

from devtools.checks.templates import Template, find_problems, gang_definitions

SCHEDULERS = "".join(
    f'{{{{- define "{name}" -}}}}{{{{- end }}}}\n' for name in sorted(gang_definitions())
)
# A chart's templates without a problem.
FILES = {
    "facts/_prepare.tpl": """\
{{/* The facts. */}}
{{/*
  values          the values, which horovod.checks reads
  code.size       the bytes of the code
  groups          the groups
  groups[].pod    the pod
*/}}
{{- define "horovod.prepare" -}}
{{- $values := deepCopy .Values -}}
{{- $_ := set .facts "values" $values -}}
{{- $code := dict -}}
{{- $_ := set $code "size" 1 -}}
{{- $_ := set .facts "code" $code -}}
{{- range $group := .groups -}}{{- $_ := set $group "pod" 1 -}}{{- end -}}
{{- $_ := set .facts "groups" .groups -}}
{{- include "horovod.checks" . -}}
{{- end }}
""",
    "checks/_checks.tpl": """\
{{- define "horovod.checks" -}}
{{- include "horovod.checkCode" . -}}
{{- include "horovod.checkNames" . -}}
{{- include "horovod.checkSize" . -}}
{{- if .facts.values -}}{{- end -}}
{{- end }}
{{- define "horovod.refuse" -}}{{- fail . -}}{{- end }}
""",
    "checks/_code.tpl": """\
{{- define "horovod.checkCode" -}}{{- include "horovod.refuse" . -}}{{- end }}
""",
    "checks/_names.tpl": """\
{{- define "horovod.checkNames" -}}{{- end }}
{{- define "horovod.checkSize" -}}{{- .facts.code.size -}}{{- end }}
""",
    "scheduling/_gang.tpl": SCHEDULERS,
    "job.yaml": """\
{{- include "horovod.prepare" . -}}
{{- range .facts.groups }}{{ .pod }}{{ end }}
""",
}


def problems_after(file: str, old: str, new: str) -> list[str]:
    """Return the problems of the templates with a text of a file replaced."""
    assert old in FILES.get(file, "")
    changed = {**FILES, file: FILES.get(file, "").replace(old, new, 1)}
    return list(find_problems([Template(name, text) for name, text in changed.items()]))


def test_templates_of_the_form_have_no_problem() -> None:
    assert problems_after("job.yaml", "", "") == []


SIZE = "  code.size       the bytes of the code\n"
SET_SIZE = '{{- $_ := set $code "size" 1 -}}'
CHECK_CODE = '{{- include "horovod.checkCode" . -}}\n'
CHECK_SIZE = '{{- include "horovod.checkSize" . -}}\n'


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("job.yaml", '{{- include "horovod.prepare" . -}}', "", "job.yaml: begin with"),
        ("worker/_code.tpl", "", "", "worker/_code.tpl: another file of definitions"),
        ("job.yaml", "{{ .pod }}", "{{ .pod }}{{ .Values.a }}", "job.yaml: read .facts.values"),
        ("facts/_prepare.tpl", "deepCopy .Values", "dict", "facts/: 0 steps have"),
        ("facts/_prepare.tpl", SIZE, SIZE * 2, "code.size is declared 2 times"),
        ("facts/_prepare.tpl", SIZE, "", "facts/: code is set, and no comment"),
        ("facts/_prepare.tpl", SET_SIZE, "", "code.size is declared, and no step sets it"),
        ("job.yaml", "{{ .pod }}", "{{ .facts.other }}{{ .pod }}", "job.yaml: reads other,"),
        (
            "job.yaml",
            "{{ .pod }}",
            "{{ .facts.code.other }}{{ .pod }}",
            "job.yaml: reads code.other,",
        ),
        ("job.yaml", "{{ .pod }}", "", "groups[].pod is declared, and no template reads it"),
        ("checks/_names.tpl", ".facts.code.size", ".facts.code", "code.size is declared, and no"),
        ("job.yaml", "", '{{ define "horovod.a" }}{{ end }}', "horovod.a is never included"),
        ("job.yaml", "", '{{ include "horovod.a" . }}', "horovod.a is included, and defined"),
        ("job.yaml", "", '{{ define "horovod.refuse" }}{{ end }}', "horovod.refuse is defined 2"),
        ("facts/_prepare.tpl", "which horovod.checks", "which horovod.a", "names horovod.a,"),
        ("checks/_checks.tpl", CHECK_CODE, "", "horovod.checkCode is listed 0 times"),
        ("checks/_checks.tpl", CHECK_CODE, CHECK_CODE * 2, "horovod.checkCode is listed 2 times"),
        (
            "checks/_checks.tpl",
            CHECK_CODE,
            CHECK_SIZE + CHECK_CODE,
            "list the checks of checks/_names.tpl together",
        ),
        ("job.yaml", "", "{{ fail }}", "job.yaml: only horovod.refuse calls"),
        ("job.yaml", "", '{{ set .a "b" 1 }}', "job.yaml: write {{- $_ := set"),
    ],
)
def test_another_form_is_a_problem(file: str, old: str, new: str, problem: str) -> None:
    problems = problems_after(file, old, new)
    assert [text for text in problems if problem in text] != []
