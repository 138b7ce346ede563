{{/* Identifies the run of these values, and finds it in the cluster. docs/adr/0010 has the rules. */}}

{{/*
The values in a hash of the run, as JSON: identity has the values that decide what is trained, and settings
also has the values that decide how it starts. values.source.yaml declares the hash of each key; the merged
groups replace worker.
Call with (dict "root" $ "hash" "identity").
*/}}
{{- define "horovod.hashedValues" -}}
{{- $keys := get (include "horovod.hashes" . | fromJson) .hash -}}
{{- $groups := list -}}
{{- range .root.facts.groups -}}
  {{- $group := include "horovod.pickHashed" (dict "from" . "keys" $keys.workerGroups) | fromJson -}}
  {{- $groups = append $groups $group -}}
{{- end -}}
{{- $ofRun := dict "from" .root.Values "keys" (omit $keys "workerGroups") -}}
{{- $hashed := include "horovod.pickHashed" $ofRun | fromJson -}}
{{- set $hashed "workerGroups" $groups | toJson -}}
{{- end }}

{{/*
The values of some keys, as JSON, without those that are null or equal the content of the key in `keys`: a key
that a newer chart adds changes nothing. What the user writes below a key counts as it is, with what is empty
or false.
Call with (dict "from" $values "keys" $keys).
*/}}
{{- define "horovod.pickHashed" -}}
{{- $picked := dict -}}
{{- range $key, $none := .keys -}}
  {{- $value := index $.from $key -}}
  {{- if and (kindIs "map" $none) $none -}}
    {{- $value = include "horovod.pickHashed" (dict "from" ($value | default dict) "keys" $none) | fromJson -}}
    {{- $none = dict -}}
  {{- end -}}
  {{- if not (or (kindIs "invalid" $value) (eq (toJson $value) (toJson $none))) -}}
    {{- $_ := set $picked $key $value -}}
  {{- end -}}
{{- end -}}
{{- toJson $picked -}}
{{- end }}

{{/* Finished or Failed when a Job has ended, else empty. Call with the Job. */}}
{{- define "horovod.jobOutcome" -}}
{{- range (dig "status" "conditions" list .) -}}
  {{- if eq .status "True" -}}{{- get (dict "Complete" "Finished" "Failed" "Failed") .type -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
Not empty where a run that has ended leaves no workers. The master scales them to zero at the end by the same
rule (scale_down of hvd_pods/rules/run_end.py). An upgrade after the end needs the rule again: it must not
scale them up, and `cleanup` may be another one than at the end, such as Always after a failed run has been
looked at.
Call with (dict "outcome" "Failed" "cleanup" "Always").
*/}}
{{- define "horovod.removesWorkers" -}}
{{- $outcomes := get (dict "OnSuccess" (list "Finished") "Always" (list "Finished" "Failed")) .cleanup
  | default list -}}
{{- if has .outcome $outcomes -}}yes{{- end -}}
{{- end }}

{{/* Not empty when an object has all of the labels. Call with (dict "of" $object "labels" $labels). */}}
{{- define "horovod.hasLabels" -}}
{{- $has := .of.metadata.labels | default dict -}}
{{- $missing := false -}}
{{- range $key, $value := .labels -}}
  {{- if ne (get $has $key) $value -}}
    {{- $missing = true -}}
  {{- end -}}
{{- end -}}
{{- if not $missing -}}yes{{- end -}}
{{- end }}

{{/* Identifies the run of these values. */}}
{{- define "horovod.prepareRun" -}}
{{- $id := include "horovod.hashedValues" (dict "root" . "hash" "identity") | sha256sum | trunc 10 -}}
{{- $settings := include "horovod.hashedValues" (dict "root" . "hash" "settings") | sha256sum | trunc 10 -}}
{{- $_ := set .facts "id" $id -}}
{{- $_ := set .facts "settingsHash" $settings -}}
{{- end }}

{{/* Finds the newest Job of the run that has finished or has these settings. */}}
{{- define "horovod.findJob" -}}
{{- $facts := .facts -}}
{{- $own := set (include "horovod.runSelector" . | fromYaml) "hvdchart/run" .facts.id -}}
{{- $job := dict -}}
{{- range (lookup "batch/v1" "Job" .Release.Namespace "").items -}}
  {{- $hasSettings := eq (dig "metadata" "labels" "hvdchart/settings-hash" "" .) $facts.settingsHash -}}
  {{- $isKept := or (eq (include "horovod.jobOutcome" .) "Finished") $hasSettings -}}
  {{- $isOwn := and (not .metadata.deletionTimestamp)
    (include "horovod.hasLabels" (dict "of" . "labels" $own)) -}}
  {{- $isNewest := gt .metadata.creationTimestamp (dig "metadata" "creationTimestamp" "" $job) -}}
  {{- if and $isOwn $isKept $isNewest -}}{{- $job = . -}}{{- end -}}
{{- end -}}
{{- $_ := set .facts "job" $job -}}
{{- end }}

{{/* Reads how the run ended: from its Job, or from the record after the Job has been removed. */}}
{{- define "horovod.readEnd" -}}
{{- $config := lookup "v1" "ConfigMap" .Release.Namespace .facts.record | default dict -}}
{{- $record := $config.data | default dict -}}
{{- if not (get $record "run") -}}
  {{- $record = dig "metadata" "annotations" "hvdchart/ended" "{}" $config | fromJson -}}
{{- end -}}
{{- $hasSettings := eq (get $record "settingsHash") .facts.settingsHash -}}
{{- $failed := and (eq (get $record "state") "Failed") $hasSettings -}}
{{- $isOver := or $failed (eq (get $record "state") "Finished") -}}
{{- $recorded := ternary $record dict (and $isOver (eq (get $record "run") .facts.id)) -}}
{{- $outcome := get $recorded "state" -}}
{{- with .facts.job -}}{{- $outcome = include "horovod.jobOutcome" . -}}{{- end -}}
{{- $isRemoval := include "horovod.removesWorkers" (dict "outcome" $outcome "cleanup" .Values.cleanup) -}}
{{- $_ := set .facts "recordedEnd" $recorded -}}
{{- $_ := set .facts "outcome" $outcome -}}
{{- $_ := set .facts "jobIsGone" (and (not .facts.job) (not (empty $recorded))) -}}
{{- $_ := set .facts "workersAreDone" (eq $isRemoval "yes") -}}
{{- end }}

{{/* Finds the StatefulSets that belong to the Job or to the recorded end. */}}
{{- define "horovod.findSets" -}}
{{- $sets := dict -}}
{{- if or .facts.job .facts.recordedEnd -}}
  {{- $own := include "horovod.runSelector" . | fromYaml
    | merge (include "horovod.runLabels" . | fromYaml) -}}
  {{- range $name, $set := .facts.statefulSets -}}
    {{- if include "horovod.hasLabels" (dict "of" $set "labels" $own) -}}
      {{- $_ := set $sets $name $set -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "sets" $sets -}}
{{- end }}

{{/* Labels with the run of a Job or StatefulSet. */}}
{{- define "horovod.runLabels" -}}
hvdchart/run: {{ .facts.id | quote }}
hvdchart/settings-hash: {{ .facts.settingsHash | quote }}
{{- end }}

{{/*
The pod template of a Job or StatefulSet that the upgrade keeps, without what the Job controller adds. Call
with the object.
*/}}
{{- define "horovod.keptTemplate" -}}
{{- $template := .spec.template -}}
{{- $labels := omit $template.metadata.labels "controller-uid" "job-name" -}}
{{- $labels = omit $labels "batch.kubernetes.io/controller-uid" "batch.kubernetes.io/job-name" -}}
{{- $metadata := merge (dict "labels" $labels) (pick $template.metadata "annotations") -}}
{{- dict "metadata" $metadata "spec" $template.spec | toYaml -}}
{{- end }}
