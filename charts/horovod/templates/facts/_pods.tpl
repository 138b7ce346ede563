{{/* The pods: those of each group, the master's, and that of `helm test`. */}}

{{/*
  groups[].statefulSet  the name of the group's StatefulSet of this run
  groups[].replicas  its number of workers
  groups[].labels, groups[].annotations  of its pods
  groups[].pod    the pod spec
  groups[].revision  a hash of the pod template
*/}}
{{- define "horovod.prepareWorkers" -}}
{{- $facts := .facts -}}
{{- range $group := .facts.groups -}}
  {{- /* A master in a queue cannot replace the pods of the run before, so that each run has StatefulSets of
  its own. */ -}}
  {{- $ofRun := printf "%s-%s" .objectName (trunc 8 $facts.settingsHash) -}}
  {{- $name := ternary .objectName $ofRun (empty $facts.kueue) -}}
  {{- /* Workers keep the number that they were scaled to; 0 is that of a suspended run. Nobody ends the
  workers of a run that has ended, so that an upgrade adds none, even where it changes the StatefulSet or
  finds none. */ -}}
  {{- $replicas := dig $name "spec" "replicas" 0 $facts.sets | default .maximum -}}
  {{- if or $.facts.values.master.suspend $facts.workersAreDone -}}
    {{- $replicas = 0 -}}
  {{- else if $facts.outcome -}}
    {{- $replicas = dig $name "spec" "replicas" 0 $facts.statefulSets -}}
  {{- end -}}
  {{- $metadata := include "horovod.podMetadata" (dict "root" $ "of" $group) | fromJson -}}
  {{- $placed := include "horovod.workerAffinity" (dict "root" $ "group" $group "nodes" .stagedNodes) -}}
  {{- $anywhere := include "horovod.workerAffinity" (dict "root" $ "group" $group "nodes" list) -}}
  {{- $pod := dict "root" $ "group" $group "affinity" (fromJson $placed) -}}
  {{- $hashed := dict "root" $ "group" $group "affinity" (fromJson $anywhere) -}}
  {{- /* The revision names the version of the keys, and tells the master which pods are current. The nodes
  are no part of it: running workers are on such nodes already. A StatefulSet that the upgrade keeps keeps
  its own. */ -}}
  {{- $content := list $metadata.labels $metadata.annotations | toJson
    | printf "%s %s" (include "horovod.workerPodSpec" $hashed) -}}
  {{- $revision := sha256sum $content | trunc 10 -}}
  {{- with get $facts.sets $name -}}
    {{- $revision = get .spec.template.metadata.labels "hvdchart/revision" -}}
  {{- end -}}
  {{- $_ := set $group "statefulSet" $name -}}
  {{- $_ := set $group "replicas" (int $replicas) -}}
  {{- $_ := set $group "labels" $metadata.labels -}}
  {{- $_ := set $group "annotations" $metadata.annotations -}}
  {{- $_ := set $group "pod" (include "horovod.workerPodSpec" $pod) -}}
  {{- $_ := set $group "revision" $revision -}}
{{- end -}}
{{- end }}

{{/*
A worker's affinity as JSON: its group's. Where that has no pod anti-affinity, `spread` adds the one that
places each worker of the release on a node of its own. The nodes that have the staged data are added to the
node affinity. They are selected by their names, from which the label kubernetes.io/hostname may differ.
Call with (dict "root" $ "group" $group "nodes" $list).
*/}}
{{- define "horovod.workerAffinity" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $affinity := deepCopy .group.affinity -}}
{{- if and (ne .group.spread "None") (not (hasKey $affinity "podAntiAffinity")) -}}
  {{- $labels := include "horovod.selectorLabels" (dict "root" .root "component" "worker") | fromYaml -}}
  {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
  {{- $weighted := dict "weight" 100 "podAffinityTerm" $term -}}
  {{- $spread := ternary (dict $required (list $term)) (dict $preferred (list $weighted))
    (eq .group.spread "Required") -}}
  {{- $_ := set $affinity "podAntiAffinity" $spread -}}
{{- end -}}
{{- if .nodes -}}
  {{- $own := $affinity.nodeAffinity | default dict -}}
  {{- $terms := list -}}
  {{- $preferences := get $own $preferred | default list -}}
  {{- range $node := .nodes -}}
    {{- /* A field selector takes one name. */ -}}
    {{- $fields := list (dict "key" "metadata.name" "operator" "In" "values" (list $node)) -}}
    {{- /* Terms are alternatives, so that each term of the group is repeated with each node. */ -}}
    {{- range dig $required "nodeSelectorTerms" (list dict) $own -}}
      {{- $term := deepCopy . -}}
      {{- $_ := set $term "matchFields" (concat (.matchFields | default list) $fields) -}}
      {{- $terms = append $terms $term -}}
    {{- end -}}
    {{- $preferences = append $preferences (dict "weight" 100 "preference" (dict "matchFields" $fields)) -}}
  {{- end -}}
  {{- if eq .root.facts.values.staging.nodes "Required" -}}
    {{- $_ := set $own $required (dict "nodeSelectorTerms" $terms) -}}
  {{- else -}}
    {{- $_ := set $own $preferred $preferences -}}
  {{- end -}}
  {{- $_ := set $affinity "nodeAffinity" $own -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end }}

{{/*
The labels and annotations of the pods of a group or of the master, as JSON: its own, those of the release's
pods, and those that schedulers, service meshes and queues read. Only the queue's override what the user has
set.
Call with (dict "root" $ "of" $group).
*/}}
{{- define "horovod.podMetadata" -}}
{{- $facts := .root.facts -}}
{{- $values := .root.facts.values -}}
{{- $gang := dict -}}
{{- if eq $values.gang "Volcano" -}}
  {{- $gang = dict "scheduling.k8s.io/group-name" $facts.podGroup -}}
{{- end -}}
{{- $queueLabels := dict -}}
{{- $queueAnnotations := dict -}}
{{- if $facts.kueue -}}
  {{- /* Kueue takes the pods for a group of plain pods. It must not take the StatefulSets and the Job for
  jobs of their own, so that only the pods have the queue's label. Its Workload has the name of the
  group. */ -}}
  {{- $queueLabels = dict
    "kueue.x-k8s.io/queue-name" $facts.kueue
    "kueue.x-k8s.io/managed" "true"
    "kueue.x-k8s.io/pod-group-name" (printf "%s-%s" $facts.fullname $facts.settingsHash) -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/pod-group-total-count" (toString $facts.gangSize) -}}
  {{- /* Kueue shows the master and each worker group by these names, with their resources. */ -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/role-hash" (.of.name | default "master") -}}
  {{- if .of.name -}}
    {{- /* Kueue gives the nodes of a topology to the workers of a group in the order of this label, which the
    StatefulSet sets: workers of consecutive ranks are neighbours. The master's pod has no such label. */ -}}
    {{- $index := "apps.kubernetes.io/pod-index" -}}
    {{- $_ := set $queueAnnotations "kueue.x-k8s.io/pod-group-pod-index-label" $index -}}
  {{- end -}}
  {{- /* The run is over as soon as no pod is active. Otherwise, each pod would have to succeed, as workers
  never do. */ -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/retriable-in-group" "false" -}}
  {{- /* Kueue then leaves its finalizer out, which would keep the StatefulSet from replacing a worker under
  its name. */ -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/pod-suspending-parent" "horovod" -}}
{{- end -}}
{{- $mesh := $facts.mesh -}}
{{- $labels := list $mesh.labels $values.podLabels .of.podLabels $queueLabels -}}
{{- $ofUser := list $values.podAnnotations .of.podAnnotations -}}
{{- $annotations := concat (list $gang $mesh.annotations) $ofUser (list $queueAnnotations) -}}
{{- dict
  "labels" (include "horovod.layered" $labels | fromJson)
  "annotations" (include "horovod.layered" $annotations | fromJson) | toJson -}}
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
                  of the test, and without what stores results
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
{{- $env := append $master.env (dict "name" "HVD_TESTED_JOB" "value" $facts.jobName) -}}
{{- if $facts.hasPolicy -}}
  {{- $env = append $env (dict "name" "HVD_POLICY" "value" "Enabled") -}}
{{- end -}}
{{- $_ := set $master "env" $env -}}
{{- $_ := unset $master "ports" -}}
{{- $init := list -}}
{{- range $pod.spec.initContainers -}}
  {{- if ne .name "results" -}}{{- $init = append $init . -}}{{- end -}}
{{- end -}}
{{- $_ := set $pod.spec "initContainers" $init -}}
{{- $_ := set $facts "testPod" $pod -}}
{{- end }}
