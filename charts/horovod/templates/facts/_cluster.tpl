{{/* What the cluster has of the run: keys, Job, record, StatefulSets, programs and lists of nodes. */}}

{{/*
The keys with which the master and the agents in the workers know each other. The keys of each
agent.generation have Secrets and names of their own.
  keys.secrets    the Secret of the master and that of the workers
  keys.names      their names in the certificates
  keys.areOwn     whether the Secrets are the chart's own
  keys.masterMayMake  whether the first master may make the keys
*/}}
{{- define "horovod.prepareKeys" -}}
{{- $agent := .facts.values.agent -}}
{{- $fullname := .facts.fullname -}}
{{- $generation := int $agent.generation -}}
{{- $suffix := ternary "" (printf "-%d" $generation) (eq $generation 1) -}}
{{- $domain := printf "%s.%s.horovod.internal" $fullname .Release.Namespace -}}
{{- $areOwn := not $agent.masterSecret -}}
{{- $secrets := dict -}}
{{- $names := dict -}}
{{- range $component := list "master" "worker" -}}
  {{- $secret := printf "%s-agent-%s%s" $fullname $component $suffix -}}
  {{- $_ := set $secrets $component (get $agent (printf "%sSecret" $component) | default $secret) -}}
  {{- $_ := set $names $component (printf "%s-%d.%s" $component $generation $domain) -}}
{{- end -}}
{{- $keys := dict -}}
{{- $_ := set $keys "secrets" $secrets -}}
{{- $_ := set $keys "names" $names -}}
{{- $_ := set $keys "areOwn" $areOwn -}}
{{- $_ := set $keys "masterMayMake" (and $areOwn (ne .facts.serviceAccount "")) -}}
{{- $_ := set .facts "keys" $keys -}}
{{- end }}

{{/*
Without access to the cluster, each rendering would make other keys, so that the first master makes them if it
may.
  keys.data       the data of the chart's own Secrets: those in the cluster, or new ones where one is missing
*/}}
{{- define "horovod.prepareKeyData" -}}
{{- $keys := .facts.keys -}}
{{- $data := dict -}}
{{- $isComplete := true -}}
{{- $hasEmpty := false -}}
{{- if $keys.areOwn -}}
  {{- range $component, $name := $keys.secrets -}}
    {{- $secret := lookup "v1" "Secret" $.Release.Namespace $name | default dict -}}
    {{- $_ := set $data $component ($secret.data | default dict) -}}
    {{- $isComplete = and $isComplete $secret.data -}}
    {{- $hasEmpty = or $hasEmpty (and $secret (not $secret.data)) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $keys "data" $data -}}
{{- $masterMakes := and $keys.masterMayMake (or $hasEmpty (not .facts.hasAccess)) -}}
{{- if not (or $isComplete $masterMakes) -}}
  {{- range $component, $name := $keys.names -}}
    {{- $key := include "horovod.newKey" (dict "component" $component "name" $name) | fromJson -}}
    {{- $_ := set $keys.data $component $key -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
A new key and its certificate, as the data of a Secret in JSON. One authority signs for masters and another
one for workers, so that a worker's key is useless for asking. Nothing keeps the authority's key.
Call with (dict "component" "master" "name" $nameInTheCertificate).
*/}}
{{- define "horovod.newKey" -}}
{{- $days := 3650 -}}
{{- $authority := genCAWithKey (printf "horovod-%s-authority" .component) $days (genPrivateKey "ecdsa") -}}
{{- $key := genPrivateKey "ecdsa" -}}
{{- $subject := printf "horovod-%s" .component -}}
{{- $certificate := genSignedCertWithKey $subject list (list .name) $days $authority $key -}}
{{- dict
  "tls.crt" (b64enc $certificate.Cert)
  "tls.key" (b64enc $certificate.Key)
  "ca.crt" (b64enc $authority.Cert) | toJson -}}
{{- end }}

{{/*
Finds the Job. Without access to the cluster, what this and the next two steps find is empty. ADR 10
has the rules of these three steps.
  job             the newest Job of the run that has finished or has these settings, which an upgrade keeps
*/}}
{{- define "horovod.findJob" -}}
{{- $facts := .facts -}}
{{- $labels := include "horovod.releaseLabels" . | fromYaml -}}
{{- $_ := set $labels "hvdchart/run" .facts.id -}}
{{- $job := dict -}}
{{- range (lookup "batch/v1" "Job" .Release.Namespace "").items -}}
  {{- $hasSettings := eq (dig "metadata" "labels" "hvdchart/settings-hash" "" .) $facts.settingsHash -}}
  {{- $isKept := or (eq (include "horovod.jobOutcome" .) "Finished") $hasSettings -}}
  {{- $isOfRun := include "horovod.hasLabels" (dict "object" . "labels" $labels) -}}
  {{- $isNewest := gt .metadata.creationTimestamp (dig "metadata" "creationTimestamp" "" $job) -}}
  {{- if and $isOfRun $isKept $isNewest (not .metadata.deletionTimestamp) -}}{{- $job = . -}}{{- end -}}
{{- end -}}
{{- $_ := set .facts "job" $job -}}
{{- end }}

{{/* Finished or Failed when a Job has ended, else empty. Call with the Job. */}}
{{- define "horovod.jobOutcome" -}}
{{- range (dig "status" "conditions" list .) -}}
  {{- if eq .status "True" -}}{{- get (dict "Complete" "Finished" "Failed" "Failed") .type -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
Reads how the run ended: from its Job, or from the record after the Job has been removed.
  outcome         how the run ended: Finished, Failed, or empty while it has not ended
  recordedEnd     what the record says of this end; empty while it says nothing of it
  jobIsGone       whether the run has ended and its Job has been removed, so that no Job is rendered
  workersAreDone  whether it has ended and has no workers any more
*/}}
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
{{- $end := dict "outcome" $outcome "cleanup" .facts.values.cleanup -}}
{{- $isRemoval := include "horovod.removesWorkers" $end -}}
{{- $_ := set .facts "outcome" $outcome -}}
{{- $_ := set .facts "recordedEnd" $recorded -}}
{{- $_ := set .facts "jobIsGone" (and (not .facts.job) (not (empty $recorded))) -}}
{{- $_ := set .facts "workersAreDone" (not (empty $isRemoval)) -}}
{{- end }}

{{/*
"true" where a run that has ended leaves no workers, else empty. The master scales them to zero at the end by
the same rule (clean_up of hvd_pods/rules/run_end.py). An upgrade after the end needs the rule again: it
must not scale them up, and `cleanup` may be another one than at the end, such as Always after a failed run
has been looked at.
Call with (dict "outcome" "Failed" "cleanup" "Always").
*/}}
{{- define "horovod.removesWorkers" -}}
{{- $outcomes := get (dict "OnSuccess" (list "Finished") "Always" (list "Finished" "Failed")) .cleanup
  | default list -}}
{{- if has .outcome $outcomes -}}true{{- end -}}
{{- end }}

{{/*
  sets            the StatefulSets that the upgrade keeps with the Job, or after it has been removed, by name
*/}}
{{- define "horovod.findSets" -}}
{{- $sets := dict -}}
{{- if or .facts.job .facts.recordedEnd -}}
  {{- $labels := include "horovod.releaseLabels" . | fromYaml
    | merge (include "horovod.runLabels" . | fromYaml) -}}
  {{- range $name, $set := .facts.statefulSets -}}
    {{- if include "horovod.hasLabels" (dict "object" $set "labels" $labels) -}}
      {{- $_ := set $sets $name $set -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "sets" $sets -}}
{{- end }}

{{/*
  keptPrograms    the ConfigMaps of other programs that kept pods mount: those of the chart version that
                  created them
*/}}
{{- define "horovod.findKeptPrograms" -}}
{{- $mounted := list -}}
{{- range append (values .facts.sets) .facts.job -}}
  {{- range dig "spec" "template" "spec" "volumes" list . -}}
    {{- with .configMap -}}{{- $mounted = append $mounted .name -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $keptPrograms := list -}}
{{- range without ($mounted | uniq | sortAlpha) .facts.programs.configMap -}}
  {{- if hasPrefix (printf "%s-files-" $.facts.fullname) . -}}
    {{- with lookup "v1" "ConfigMap" $.Release.Namespace . -}}
      {{- $keptPrograms = append $keptPrograms . -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "keptPrograms" $keptPrograms -}}
{{- end }}

{{/*
  groups[].stagedNodes  the nodes that have the group's data
*/}}
{{- define "horovod.findNodes" -}}
{{- range $group := .facts.groups -}}
  {{- $nodeList := dict -}}
  {{- if .staged -}}
    {{- $nodeList = lookup "v1" "ConfigMap" $.Release.Namespace .staged | default dict -}}
  {{- end -}}
  {{- $_ := set $group "stagedNodes" (keys ($nodeList.data | default dict) | sortAlpha) -}}
{{- end -}}
{{- end }}
