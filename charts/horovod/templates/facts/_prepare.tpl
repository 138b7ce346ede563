{{/*
The facts: what follows from the values and from what the cluster has, computed once. Read the files of this
folder in this order, in which the steps run:
- _prepare.tpl has the order of the steps, completes the values, and derives names and files from them.
- _groups.tpl has the worker groups, and what follows from all of them.
- _cluster.tpl has the keys and what the cluster has of the run.
- _pods.tpl has the pods, and what has a hash of them in its name.

Every template file includes horovod.prepare first. Helm renders all files of a chart with the same root, so
the first call does the work and keeps the facts in .facts, which the templates print. The comment of each
step lists the facts that it adds, as NAME, NAME.KEY, or groups[].KEY for a key of each group. A step reads
the facts of the steps before it.

Other templates loop and print, but for what a single object needs. Where the chart and the user both give
entries, as of variables, mounts and labels, the template that prints them combines them. master/_run.tpl
gives the master an empty value or zero for a setting that another one turns off. worker/_pod.tpl has the
variables by which libraries choose a network, and worker/statefulset.yaml the strategy of its updates.
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "facts") -}}
  {{- $_ := set . "facts" dict -}}
  {{- /* Derive what follows from the values. */ -}}
  {{- include "horovod.prepareValues" . -}}
  {{- include "horovod.prepareNames" . -}}
  {{- include "horovod.preparePrograms" . -}}
  {{- include "horovod.prepareNetwork" . -}}
  {{- include "horovod.prepareCode" . -}}
  {{- include "horovod.prepareScript" . -}}
  {{- include "horovod.prepareGroups" . -}}
  {{- include "horovod.prepareTuning" . -}}
  {{- include "horovod.prepareGang" . -}}
  {{- include "horovod.checks" . -}}
  {{- /* The values are free of contradictions here. Find what the cluster has of the run. */ -}}
  {{- include "horovod.prepareKeys" . -}}
  {{- include "horovod.prepareRun" . -}}
  {{- include "horovod.findJob" . -}}
  {{- include "horovod.readEnd" . -}}
  {{- include "horovod.findSets" . -}}
  {{- include "horovod.findKeptPrograms" . -}}
  {{- include "horovod.checkKeptPrograms" . -}}
  {{- include "horovod.findNodes" . -}}
  {{- /* Render the pods. */ -}}
  {{- include "horovod.prepareWorkers" . -}}
  {{- include "horovod.prepareMaster" . -}}
  {{- if .facts.hasTest -}}{{- include "horovod.prepareTest" . -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
Completes the values, and reads what several steps need. Only this step reads .Values, and nothing changes it.
  values          .Values, with the default of each key that is missing or null
  effective       these values, with a number in the place of each null that stands for one
  shared          resources.json: what hvdchart and the pods know of names, limits and devices, too
  hasAccess       whether Helm can read the cluster
  statefulSets    the StatefulSets of the namespace, by name
*/}}
{{- define "horovod.prepareValues" -}}
{{- $values := deepCopy .Values -}}
{{- $defaults := include "horovod.defaults" . | fromJson -}}
{{- include "horovod.addDefaults" (dict "into" $values "defaults" $defaults) -}}
{{- /* Null stays in .facts.values, from which the hashes of a run are made. */ -}}
{{- $effective := deepCopy $values -}}
{{- $numbers := include "horovod.effective" . | fromJson -}}
{{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
{{- $_ := set .facts "values" $values -}}
{{- $_ := set .facts "effective" $effective -}}
{{- $_ := set .facts "shared" (.Files.Get "files/hvd_pods/shared/resources.json" | fromJson) -}}
{{- $_ := set .facts "hasAccess" (lookup "v1" "ServiceAccount" .Release.Namespace "default" | empty | not) -}}
{{- $statefulSets := dict -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
  {{- $_ := set $statefulSets .metadata.name . -}}
{{- end -}}
{{- $_ := set .facts "statefulSets" $statefulSets -}}
{{- end }}

{{/*
  fullname        the prefix of all object names
  name            the label that tells two dependencies of one release apart
  serviceAccount  the master's ServiceAccount; empty when the master has no access to the API
  record          the ConfigMap in which the master records how the last run ended, and which master controls
                  the workers; the chart does not set its data
  kueue           Kueue's LocalQueue; empty without one
  hasTest         whether there is a pod of `helm test`
  selectors       of the pods of the master and of the workers, as the API takes them in a query:
                  KEY=VALUE,...
*/}}
{{- define "horovod.prepareNames" -}}
{{- $facts := .facts -}}
{{- /* As in charts that `helm create` makes, nameOverride is left out when the release's name contains
it. */ -}}
{{- $suffix := .facts.values.nameOverride -}}
{{- if and $suffix (contains $suffix .Release.Name) -}}
  {{- $suffix = "" -}}
{{- else if and (not $suffix) (ne .Chart.Name "horovod") -}}
  {{- $suffix = .Chart.Name -}}
{{- end -}}
{{- $derived := list .Release.Name $suffix | compact | join "-" -}}
{{- $fullname := .facts.values.fullnameOverride | default $derived -}}
{{- $account := ternary (printf "%s-master" $fullname) "" .facts.values.serviceAccount.create -}}
{{- $_ := set $facts "fullname" $fullname -}}
{{- $_ := set $facts "name" (.facts.values.nameOverride | default .Chart.Name) -}}
{{- $_ := set $facts "serviceAccount" (.facts.values.serviceAccount.name | default $account) -}}
{{- $_ := set $facts "record" (printf "%s-run" $fullname) -}}
{{- /* With Volcano, queueName is a queue of Volcano. */ -}}
{{- $_ := set $facts "kueue" (ternary "" .facts.values.queueName (eq .facts.values.gang "Volcano")) -}}
{{- /* It would wait in the queue for workers that nobody has scaled up. */ -}}
{{- $_ := set $facts "hasTest" (and $facts.serviceAccount (not $facts.kueue)) -}}
{{- $selectors := dict -}}
{{- range $component := list "master" "worker" -}}
  {{- $terms := list -}}
  {{- $labels := include "horovod.selectorLabels" (dict "root" $ "component" $component) | fromYaml -}}
  {{- range $key, $value := $labels -}}
    {{- $terms = append $terms (printf "%s=%s" $key $value) -}}
  {{- end -}}
  {{- $_ := set $selectors $component (join "," $terms) -}}
{{- end -}}
{{- $_ := set $facts "selectors" $selectors -}}
{{- end }}

{{/*
The programs of the pods: the archive that `make generate` makes of files/hvd_pods.
  programs.configMap  the ConfigMap with the archive
  programs.command    what unpacks it, in the place of files/unpack.py, and then runs the Python whose
                      arguments follow
*/}}
{{- define "horovod.preparePrograms" -}}
{{- $hash := .Subcharts.programs.Files.Get "programs.tgz" | sha256sum -}}
{{- $programs := dict -}}
{{- /* Named after its content and immutable, so that a pod never sees the programs of another chart
version. */ -}}
{{- $_ := set $programs "configMap" (printf "%s-files-%s" .facts.fullname (trunc 8 $hash)) -}}
{{- /* Kubernetes turns $$ into $. */ -}}
{{- $unpack := .Files.Get "files/unpack.py" | replace "$" "$$" -}}
{{- $_ := set $programs "command" (list "python3" "-I" "-S" "-c" $unpack $hash) -}}
{{- $_ := set .facts "programs" $programs -}}
{{- end }}

{{/*
  hasPolicy       whether master and workers have a NetworkPolicy
  hasTensorboardPolicy  whether TensorBoard has one
  mesh.labels     the labels by which a service mesh knows whether a pod belongs to it, and how
  mesh.annotations  the annotations for the same
*/}}
{{- define "horovod.prepareNetwork" -}}
{{- /* By default there are NetworkPolicies, because MPI, Gloo, NCCL and TensorBoard have no authentication;
but none for the workers on their nodes' network, to which a NetworkPolicy does not apply. */ -}}
{{- $hasPolicies := ne (toString .facts.values.networkPolicy.enabled) "false" -}}
{{- $_ := set .facts "hasPolicy" (and $hasPolicies (not .facts.values.hostNetwork)) -}}
{{- $_ := set .facts "hasTensorboardPolicy" (and $hasPolicies .facts.values.tensorboard.enabled) -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- if eq .facts.values.serviceMesh "Disabled" -}}
  {{- $labels = dict "sidecar.istio.io/inject" "false" "istio.io/dataplane-mode" "none" -}}
  {{- $annotations = dict "linkerd.io/inject" "disabled" -}}
{{- else if eq .facts.values.serviceMesh "Ambient" -}}
  {{- $labels = dict "sidecar.istio.io/inject" "false" "istio.io/dataplane-mode" "ambient" -}}
{{- else if eq .facts.values.serviceMesh "Hold" -}}
  {{- /* A native sidecar starts before the init containers and ends with the pod. Meshes that cannot inject
  one hold the containers back until the proxy has started. */ -}}
  {{- $annotations = dict
    "sidecar.istio.io/nativeSidecar" "true"
    "config.beta.linkerd.io/proxy-enable-native-sidecar" "true"
    "proxy.istio.io/config" `{"holdApplicationUntilProxyStarts": true}`
    "config.linkerd.io/proxy-await" "enabled" -}}
{{- end -}}
{{- $mesh := dict -}}
{{- $_ := set $mesh "labels" $labels -}}
{{- $_ := set $mesh "annotations" $annotations -}}
{{- $_ := set .facts "mesh" $mesh -}}
{{- end }}

{{/*
The user's code: files of the release that the master hands to the workers (hvd_pods/master/user_code.py).
  code.files      the files by name
  code.size       their characters
  code.version    a hash of the code; like the next ones empty without code
  code.sha256     the hash of what `sha256sum` prints of the ConfigMap's keys: the master's pod has it in its
                  template, and runs no other code (hvd_pods/pod/code_archive.py)
  code.configMap  the ConfigMap with the code
  code.data, code.binaryData  its content
*/}}
{{- define "horovod.prepareCode" -}}
{{- $archive := .facts.values.code.archive -}}
{{- $text := include "horovod.flattenFiles" (dict "files" .facts.values.code.files "prefix" "") -}}
{{- $files := fromJson $text -}}
{{- $size := len $archive -}}
{{- range $files -}}{{- $size = add $size (len .) -}}{{- end -}}
{{- $code := dict -}}
{{- $_ := set .facts "code" $code -}}
{{- $_ := set $code "files" $files -}}
{{- $_ := set $code "size" (int $size) -}}
{{- $_ := set $code "version" "" -}}
{{- $_ := set $code "sha256" "" -}}
{{- $_ := set $code "configMap" "" -}}
{{- $_ := set $code "data" dict -}}
{{- $_ := set $code "binaryData" dict -}}
{{- if or .facts.values.code.files $archive -}}
  {{- $version := printf "%s %s" $text $archive | sha256sum | trunc 10 -}}
  {{- $keys := deepCopy $files -}}
  {{- with $archive -}}{{- $_ := set $keys "archive.tgz" (nospace . | b64dec) -}}{{- end -}}
  {{- $lines := "" -}}
  {{- range keys $keys | sortAlpha -}}
    {{- $lines = printf "%s%s  %s\n" $lines (get $keys . | sha256sum) . -}}
  {{- end -}}
  {{- $_ := set $code "version" $version -}}
  {{- $_ := set $code "sha256" (sha256sum $lines) -}}
  {{- $_ := set $code "configMap" (printf "%s-code-%s" .facts.fullname $version) -}}
  {{- /* A text with characters that YAML cannot have, and that JSON does not escape, is binary data. */ -}}
  {{- range $name, $content := $files -}}
    {{- if regexMatch "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]" $content -}}
      {{- $_ := set $code.binaryData $name (b64enc $content) -}}
    {{- else -}}
      {{- $_ := set $code.data $name $content -}}
    {{- end -}}
  {{- end -}}
  {{- with $archive -}}{{- $_ := set $code.binaryData "archive.tgz" (nospace .) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
The files by name, as JSON. An unquoted `--set-file code.files.train\.py=train.py` loses its backslash in the
shell, and Helm then makes {train: {py: ...}} of it.
Call with (dict "files" $map "prefix" "").
*/}}
{{- define "horovod.flattenFiles" -}}
{{- $prefix := .prefix -}}
{{- $files := dict -}}
{{- range $name, $content := .files -}}
  {{- if kindIs "map" $content -}}
    {{- $nested := include "horovod.flattenFiles"
      (dict "files" $content "prefix" (printf "%s%s." $prefix $name)) -}}
    {{- $files = merge $files ($nested | fromJson) -}}
  {{- else -}}
    {{- $_ := set $files (printf "%s%s" $prefix $name) (toString $content) -}}
  {{- end -}}
{{- end -}}
{{ toJson $files }}
{{- end }}

{{/*
  command         the training command
  resultsPath     what results.command stores at the end
  logDir          what TensorBoard reads
*/}}
{{- define "horovod.prepareScript" -}}
{{- /* A single Python file is the command itself. */ -}}
{{- $files := keys .facts.code.files -}}
{{- $command := .facts.values.master.args -}}
{{- $hasArchive := not (empty .facts.values.code.archive) -}}
{{- $isOneScript := and (eq (len $files) 1) (hasSuffix ".py" (first $files)) (not $hasArchive) -}}
{{- if and $isOneScript (not $command) (ne .facts.values.launch.mode "custom") -}}
  {{- $command = list "python3" (first $files) -}}
{{- end -}}
{{- $variable := dict "env" .facts.values.worker.env "name" "OUTPUT_PATH" -}}
{{- $entry := include "horovod.envEntry" $variable | fromJson -}}
{{- $output := $entry.value | default "" -}}
{{- $_ := set .facts "command" $command -}}
{{- $_ := set .facts "resultsPath" (.facts.values.results.path | default $output) -}}
{{- $_ := set .facts "logDir" (.facts.values.tensorboard.logDir | default $output) -}}
{{- end }}
