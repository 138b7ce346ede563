{{/* The pod of `helm test`. */}}

{{/* The template of the master's pod with the program of the test, and without what stores results. */}}
{{- define "horovod.testPod" -}}
{{- $pod := fromYaml .facts.masterPod -}}
{{- /* Only the kept master of these settings knows the kept workers, and has their keys. */ -}}
{{- if eq (dig "metadata" "labels" "hvdchart/settings-hash" "" .facts.job) .facts.settingsHash -}}
  {{- $pod = include "horovod.keptTemplate" .facts.job | fromYaml -}}
{{- end -}}
{{- $master := first $pod.spec.containers -}}
{{- /* What unpacks the programs stays; the arguments of the master's own program follow. */ -}}
{{- $unpack := slice $master.command 0 (len .facts.programs.command) -}}
{{- $_ := concat $unpack (list "-I" "/horovod/bin/hvd_pods/master/selftest.py") | set $master "command" -}}
{{- $env := append $master.env (dict "name" "HVD_TESTED_JOB" "value" .facts.jobName) -}}
{{- if .facts.hasPolicy -}}
  {{- $env = append $env (dict "name" "HVD_POLICY" "value" "Enabled") -}}
{{- end -}}
{{- $_ := set $master "env" $env -}}
{{- $_ := unset $master "ports" -}}
{{- $init := list -}}
{{- range $pod.spec.initContainers -}}
  {{- if ne .name "results" -}}{{- $init = append $init . -}}{{- end -}}
{{- end -}}
{{- $_ := set $pod.spec "initContainers" $init -}}
{{ toYaml $pod }}
{{- end }}
