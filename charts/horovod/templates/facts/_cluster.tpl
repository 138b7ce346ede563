{{/* What the cluster has of the run: keys, Job, record, StatefulSets, programs and lists of nodes. */}}

{{/*
The keys with which the master and the agents in the workers know each other. Without access to the cluster,
each rendering would make other keys, so that the first master makes them if it may.
  keys.secrets    the Secret of the master and that of the workers
  keys.names      their names in the certificates
  keys.areOwn     whether the Secrets are the chart's own
  keys.masterMayMake  whether the first master may make the keys
  keys.data       the data of the chart's own Secrets: those in the cluster, or new ones where one is missing
*/}}
{{- define "horovod.prepareKeys" -}}
{{- $agent := .facts.values.agent -}}
{{- $fullname := .facts.fullname -}}
{{- /* The keys of each agent.generation have Secrets and names of their own. */ -}}
{{- $generation := int $agent.generation -}}
{{- $suffix := ternary "" (printf "-%d" $generation) (eq $generation 1) -}}
{{- $secrets := dict -}}
{{- $names := dict -}}
{{- range $of := list "master" "worker" -}}
  {{- $own := printf "%s-agent-%s%s" $fullname $of $suffix -}}
  {{- $_ := set $secrets $of (get $agent (printf "%sSecret" $of) | default $own) -}}
  {{- $_ := set $names $of
    (printf "%s-%d.%s.%s.horovod.internal" $of $generation $fullname $.Release.Namespace) -}}
{{- end -}}
{{- $areOwn := not $agent.masterSecret -}}
{{- $masterMayMake := and $areOwn (not (empty .facts.serviceAccount)) -}}
{{- $kept := dict -}}
{{- $isComplete := true -}}
{{- $hasEmpty := false -}}
{{- range $of, $name := ternary $secrets dict $areOwn -}}
  {{- $secret := lookup "v1" "Secret" $.Release.Namespace $name | default dict -}}
  {{- $_ := set $kept $of ($secret.data | default dict) -}}
  {{- $isComplete = and $isComplete $secret.data -}}
  {{- $hasEmpty = or $hasEmpty (and $secret (not $secret.data)) -}}
{{- end -}}
{{- $masterMakes := and $masterMayMake (or $hasEmpty (not .facts.hasAccess)) -}}
{{- $keys := dict -}}
{{- $_ := set $keys "secrets" $secrets -}}
{{- $_ := set $keys "names" $names -}}
{{- $_ := set $keys "areOwn" $areOwn -}}
{{- $_ := set $keys "masterMayMake" $masterMayMake -}}
{{- $_ := set $keys "data" $kept -}}
{{- if not (or $isComplete $masterMakes) -}}
  {{- range $of, $name := $names -}}
    {{- $_ := set $keys.data $of (include "horovod.newKey" (dict "of" $of "name" $name) | fromJson) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "keys" $keys -}}
{{- end }}

{{/*
A new key and its certificate, as the data of a Secret in JSON. One authority signs for masters and another
one for workers, so that a worker's key is useless for asking. Nothing keeps the authority's key.
Call with (dict "of" "master" "name" $nameInTheCertificate).
*/}}
{{- define "horovod.newKey" -}}
{{- $days := 3650 -}}
{{- $authority := genCAWithKey (printf "horovod-%s-authority" .of) $days (genPrivateKey "ecdsa") -}}
{{- $key := genPrivateKey "ecdsa" -}}
{{- $certificate := genSignedCertWithKey (printf "horovod-%s" .of) list (list .name) $days $authority $key -}}
{{- dict
  "tls.crt" (b64enc $certificate.Cert)
  "tls.key" (b64enc $certificate.Key)
  "ca.crt" (b64enc $authority.Cert) | toJson -}}
{{- end }}

{{/*
Identifies the run of these values. docs/adr/0010 has the rules of this step and the next three.
  id              a hash of the values that identify the run
  settingsHash    a hash of all settings of the run
*/}}
{{- define "horovod.prepareRun" -}}
{{- $id := include "horovod.hashedValues" (dict "root" . "hash" "identity") | sha256sum | trunc 10 -}}
{{- $settings := include "horovod.hashedValues" (dict "root" . "hash" "settings") | sha256sum | trunc 10 -}}
{{- $_ := set .facts "id" $id -}}
{{- $_ := set .facts "settingsHash" $settings -}}
{{- end }}

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
{{- $ofRun := dict "from" .root.facts.values "keys" (omit $keys "workerGroups") -}}
{{- $hashed := include "horovod.pickHashed" $ofRun | fromJson -}}
{{- $_ := set $hashed "workerGroups" $groups -}}
{{- toJson $hashed -}}
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
    {{- $below := dict "from" ($value | default dict) "keys" $none -}}
    {{- $value = include "horovod.pickHashed" $below | fromJson -}}
    {{- $none = dict -}}
  {{- end -}}
  {{- if not (or (kindIs "invalid" $value) (eq (toJson $value) (toJson $none))) -}}
    {{- $_ := set $picked $key $value -}}
  {{- end -}}
{{- end -}}
{{- toJson $picked -}}
{{- end }}

{{/*
Finds the Job. Without access to the cluster, what this and the next two steps find is empty.
  job             the newest Job of the run that has finished or has these settings, which an upgrade keeps
*/}}
{{- define "horovod.findJob" -}}
{{- $facts := .facts -}}
{{- $own := include "horovod.releaseLabels" . | fromYaml -}}
{{- $_ := set $own "hvdchart/run" .facts.id -}}
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

{{/* Finished or Failed when a Job has ended, else empty. Call with the Job. */}}
{{- define "horovod.jobOutcome" -}}
{{- range (dig "status" "conditions" list .) -}}
  {{- if eq .status "True" -}}{{- get (dict "Complete" "Finished" "Failed" "Failed") .type -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
"true" when an object has all of the labels, else empty.
Call with (dict "of" $object "labels" $labels).
*/}}
{{- define "horovod.hasLabels" -}}
{{- $has := .of.metadata.labels | default dict -}}
{{- $missing := false -}}
{{- range $key, $value := .labels -}}
  {{- if ne (get $has $key) $value -}}
    {{- $missing = true -}}
  {{- end -}}
{{- end -}}
{{- if not $missing -}}true{{- end -}}
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
the same rule (scale_down of hvd_pods/rules/run_end.py). An upgrade after the end needs the rule again: it
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
  {{- $own := include "horovod.releaseLabels" . | fromYaml
    | merge (include "horovod.runLabels" . | fromYaml) -}}
  {{- range $name, $set := .facts.statefulSets -}}
    {{- if include "horovod.hasLabels" (dict "of" $set "labels" $own) -}}
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
{{- $kept := list -}}
{{- range without ($mounted | uniq | sortAlpha) .facts.programs.configMap -}}
  {{- if hasPrefix (printf "%s-files-" $.facts.fullname) . -}}
    {{- with lookup "v1" "ConfigMap" $.Release.Namespace . -}}{{- $kept = append $kept . -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "keptPrograms" $kept -}}
{{- end }}

{{/*
Finds the nodes that have the data of each group: the keys of a ConfigMap (hvd_pods/cluster/staged.py writes
it). Its name is a hash of the source and the directory, so that later runs and other releases of the
namespace share it.
  stagingKey      a hash of the source of the data
  groups[].staged  the ConfigMap of the nodes that have the group's data; empty without one
  groups[].stagedNodes  these nodes
  nodeLists       these ConfigMaps of all groups
  nodesWithData   these nodes of all groups
*/}}
{{- define "horovod.findNodes" -}}
{{- $staging := .facts.values.staging -}}
{{- $key := pick $staging "image" "command" "env" | toJson | sha256sum | trunc 16 -}}
{{- $_ := set .facts "stagingKey" $key -}}
{{- $path := trimSuffix "/" $staging.path -}}
{{- $lists := list -}}
{{- $nodes := list -}}
{{- range $group := .facts.groups -}}
  {{- $staged := "" -}}
  {{- if and $staging.command (ne $staging.nodes "Any") -}}
    {{- $mount := include "horovod.mountOf" (dict "mounts" .volumeMounts "path" $path) | fromJson -}}
    {{- $below := trimPrefix (trimSuffix "/" $mount.mountPath) $path -}}
    {{- range .volumes -}}
      {{- if and (eq .name $mount.name) .hostPath (not $mount.subPathExpr) -}}
        {{- $directory := printf "%s/%s/%s" .hostPath.path ($mount.subPath | default "") $below | clean -}}
        {{- $staged = printf "%s %s" $directory $key | sha256sum | trunc 10 | printf "horovod-staged-%s" -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $list := dict -}}
  {{- if $staged -}}
    {{- $list = lookup "v1" "ConfigMap" $.Release.Namespace $staged | default dict -}}
  {{- end -}}
  {{- $_ := set $group "staged" $staged -}}
  {{- $lists = append $lists $staged | uniq -}}
  {{- $_ := set $group "stagedNodes" (keys ($list.data | default dict) | sortAlpha) -}}
  {{- $nodes = concat $nodes $group.stagedNodes | uniq -}}
{{- end -}}
{{- $_ := set .facts "nodeLists" (without $lists "") -}}
{{- $_ := set .facts "nodesWithData" $nodes -}}
{{- end }}
