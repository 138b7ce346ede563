{{/* The pods: those of each group, the master's, and that of `helm test`. */}}

{{/*
  groups[].replicas  the number of workers of its StatefulSet
*/}}
{{- define "horovod.prepareReplicas" -}}
{{- $facts := .facts -}}
{{- range $group := $facts.groups -}}
  {{- /* Workers keep the number that they were scaled to; 0 is that of a suspended run. Nobody ends the
  workers of a run that has ended, so that an upgrade adds none, even where it changes the StatefulSet or
  finds none. */ -}}
  {{- $replicas := dig .statefulSet "spec" "replicas" 0 $facts.sets | default .maximum -}}
  {{- if or $facts.values.master.suspend $facts.workersAreDone -}}
    {{- $replicas = 0 -}}
  {{- else if $facts.outcome -}}
    {{- $replicas = dig .statefulSet "spec" "replicas" 0 $facts.statefulSets -}}
  {{- end -}}
  {{- $_ := set $group "replicas" (int $replicas) -}}
{{- end -}}
{{- end }}

{{/*
  groups[].labels, groups[].annotations  of its pods
  groups[].pod    the pod spec
  groups[].revision  a hash of the pod template. It names the version of the keys, and tells the master which
                  pods are current. The nodes are no part of it: running workers are on such nodes already
*/}}
{{- define "horovod.prepareWorkers" -}}
{{- range $group := .facts.groups -}}
  {{- $metadata := include "horovod.podMetadata" (dict "root" $ "values" .) | fromJson -}}
  {{- $anywhere := include "horovod.workerPodSpec" (dict "root" $ "group" . "nodes" list) -}}
  {{- $content := list $metadata.labels $metadata.annotations | toJson | printf "%s %s" $anywhere -}}
  {{- $revision := sha256sum $content | trunc 10 -}}
  {{- /* A StatefulSet that the upgrade keeps keeps its own. */ -}}
  {{- with get $.facts.sets .statefulSet -}}
    {{- $revision = get .spec.template.metadata.labels "hvdchart/revision" -}}
  {{- end -}}
  {{- $_ := set $group "labels" $metadata.labels -}}
  {{- $_ := set $group "annotations" $metadata.annotations -}}
  {{- $pod := dict "root" $ "group" . "nodes" .stagedNodes -}}
  {{- $_ := set $group "pod" (include "horovod.workerPodSpec" $pod) -}}
  {{- $_ := set $group "revision" $revision -}}
{{- end -}}
{{- end }}

{{/*
A worker's affinity as JSON: its group's. Where that has no pod anti-affinity, `spread` adds one. The nodes
that have the staged data are added to the node affinity. They are selected by their names, from which the
label kubernetes.io/hostname may differ.
Call with (dict "root" $ "group" $group "nodes" $list).
*/}}
{{- define "horovod.workerAffinity" -}}
{{- $affinity := deepCopy .group.affinity -}}
{{- if and (ne .group.spread "None") (not (hasKey $affinity "podAntiAffinity")) -}}
  {{- $_ := set $affinity "podAntiAffinity" (include "horovod.spreadAffinity" . | fromYaml) -}}
{{- end -}}
{{- if .nodes -}}
  {{- $nodeAffinity := $affinity.nodeAffinity | default dict -}}
  {{- $places := dict "nodeAffinity" $nodeAffinity "nodes" .nodes -}}
  {{- if eq .root.facts.values.staging.nodes "Required" -}}
    {{- $terms := include "horovod.requiredTerms" $places | fromJsonArray -}}
    {{- $required := dict "nodeSelectorTerms" $terms -}}
    {{- $_ := set $nodeAffinity "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
  {{- else -}}
    {{- $preferences := include "horovod.preferredTerms" $places | fromJsonArray -}}
    {{- $_ := set $nodeAffinity "preferredDuringSchedulingIgnoredDuringExecution" $preferences -}}
  {{- end -}}
  {{- $_ := set $affinity "nodeAffinity" $nodeAffinity -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end }}

{{/*
The pod anti-affinity that places each worker of the release on a node of its own.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.spreadAffinity" -}}
{{- $workers := include "horovod.selectorLabels" (dict "root" .root "component" "worker") -}}
{{- if eq .group.spread "Required" -}}
requiredDuringSchedulingIgnoredDuringExecution:
  - topologyKey: kubernetes.io/hostname
    labelSelector:
      matchLabels:
        {{- $workers | nindent 8 }}
{{- else -}}
preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- $workers | nindent 10 }}
{{- end -}}
{{- end }}

{{/*
The node selector terms of a group, restricted to the nodes, as JSON. Terms are alternatives, so that each
term of the group is repeated with each node.
Call with (dict "nodeAffinity" $map "nodes" $list).
*/}}
{{- define "horovod.requiredTerms" -}}
{{- $required := .nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range .nodes -}}
  {{- $nodeFields := include "horovod.nodeFields" . | fromYamlArray -}}
  {{- range dig "nodeSelectorTerms" (list dict) $required -}}
    {{- $fields := concat (.matchFields | default list) $nodeFields -}}
    {{- $terms = append $terms (merge (dict "matchFields" $fields) .) -}}
  {{- end -}}
{{- end -}}
{{- toJson $terms -}}
{{- end }}

{{/*
The preferences of a group and of the nodes, as JSON.
Call with (dict "nodeAffinity" $map "nodes" $list).
*/}}
{{- define "horovod.preferredTerms" -}}
{{- $terms := .nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution | default list -}}
{{- range .nodes -}}
  {{- $fields := include "horovod.nodeFields" . | fromYamlArray -}}
  {{- $terms = append $terms (dict "weight" 100 "preference" (dict "matchFields" $fields)) -}}
{{- end -}}
{{- toJson $terms -}}
{{- end }}

{{/* Selects a node: a field selector takes one name. Call with the name. */}}
{{- define "horovod.nodeFields" -}}
- {key: metadata.name, operator: In, values: [{{ quote . }}]}
{{- end }}

{{/*
The labels and annotations of the pods of a group or of the master, as JSON: its own, those of the release's
pods, and those that schedulers, service meshes and queues read. Only the queue's override what the user has
set.
Call with (dict "root" $ "values" $group).
*/}}
{{- define "horovod.podMetadata" -}}
{{- $facts := .root.facts -}}
{{- $queue := include "horovod.podInKueue" . | fromYaml -}}
{{- $labels := list
  $facts.mesh.labels
  $facts.values.podLabels
  .values.podLabels
  $queue.labels -}}
{{- $annotations := list
  $facts.gangAnnotations
  $facts.mesh.annotations
  $facts.values.podAnnotations
  .values.podAnnotations
  $queue.annotations -}}
{{- dict
  "labels" (include "horovod.layered" $labels | fromJson)
  "annotations" (include "horovod.layered" $annotations | fromJson) | toJson -}}
{{- end }}

{{/*
What the master is told of values whose use depends on another one.
  masterInterface  network.interface; empty with hostNetwork, because only the workers have it then
  retries         master.backoffLimit for a master without a ServiceAccount; 0 with one, which reads the Job
*/}}
{{- define "horovod.prepareSettings" -}}
{{- $values := .facts.values -}}
{{- $_ := set .facts "masterInterface" (ternary "" $values.network.interface $values.hostNetwork) -}}
{{- $_ := set .facts "retries" (ternary (int $values.master.backoffLimit) 0 (eq .facts.serviceAccount "")) -}}
{{- end }}

{{/*
  masterPod       the template of the master's pod
  jobName         the name of the run's Job
*/}}
{{- define "horovod.prepareMaster" -}}
{{- $facts := .facts -}}
{{- /* A new name of a Job has a hash of the pod template, because Kubernetes allows no change of a Job's
pods. Without a ServiceAccount no record keeps another Job from repeating the run, so that the hash is that of
the settings only. */ -}}
{{- $pod := include "horovod.masterPod" . -}}
{{- $content := ternary $pod $facts.settingsHash (ne $facts.serviceAccount "") -}}
{{- $name := printf "%s-master-%s" $facts.fullname (sha256sum $content | trunc 8) -}}
{{- $_ := set $facts "masterPod" $pod -}}
{{- $_ := set $facts "jobName" (dig "metadata" "name" $name $facts.job) -}}
{{- end }}

{{/*
  testPod         the pod of `helm test`, if there is one: the template of the master's pod with the program
                  of the test
*/}}
{{- define "horovod.prepareTest" -}}
{{- $facts := .facts -}}
{{- $pod := fromYaml $facts.masterPod -}}
{{- /* Only the kept master of these settings knows the kept workers, and has their keys. */ -}}
{{- if eq (dig "metadata" "labels" "hvdchart/settings-hash" "" $facts.job) $facts.settingsHash -}}
  {{- $pod = include "horovod.keptTemplate" $facts.job | fromYaml -}}
{{- end -}}
{{- $master := first $pod.spec.containers -}}
{{- /* What unpacks the programs stays; the arguments of the master's own program follow. */ -}}
{{- $unpack := slice $master.command 0 (len $facts.programs.command) -}}
{{- $program := list "-I" "/horovod/bin/hvd_pods/master/selftest.py" -}}
{{- $_ := set $master "command" (concat $unpack $program) -}}
{{- $_ := set $master "env" (concat $master.env (include "horovod.testVariables" . | fromYamlArray)) -}}
{{- $_ := unset $master "ports" -}}
{{- $_ := set $facts "testPod" $pod -}}
{{- end }}

{{- define "horovod.testVariables" -}}
- {name: HVD_TESTED_JOB, value: {{ quote .facts.jobName }}}
{{- if .facts.hasPolicy }}
- {name: HVD_POLICY, value: Enabled}
{{- end }}
{{- end }}
