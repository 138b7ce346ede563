{{/*
The facts: what follows from the values and from what the cluster has, computed once. Read the files of this
folder in this order, in which the steps run:
- _prepare.tpl has the order of the steps, completes the values, and has names, programs and the network.
- _groups.tpl has the worker groups, and what follows from all of them.
- _code_and_data.tpl has the user's code and command, and the directories of data, output and logs.
- _identity.tpl has what identifies the run.
- _cluster.tpl has the keys and what the cluster has of the run.
- _pods.tpl has the pods, and what has a hash of them in its name.

Every template file includes horovod.prepare first. Helm renders all files of a chart with the same root, so
the first call does the work and keeps the facts in .facts, which the templates print. The comment of each
step lists the facts that it adds, as NAME, NAME.KEY, or groups[].KEY for a key of each group. A step reads
the facts of the steps before it. A definition that a step includes prints YAML or JSON, which the step
parses.

Other templates loop and print. Where the chart and the user both give entries, as of variables, mounts and
labels, the template that prints them combines them.
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "facts") -}}
  {{- $_ := set . "facts" dict -}}
  {{- /* Derive what follows from the values. */ -}}
  {{- include "horovod.prepareValues" . -}}
  {{- include "horovod.prepareNames" . -}}
  {{- include "horovod.prepareSelectors" . -}}
  {{- include "horovod.preparePrograms" . -}}
  {{- include "horovod.prepareNetwork" . -}}
  {{- include "horovod.prepareGroups" . -}}
  {{- include "horovod.prepareSizes" . -}}
  {{- include "horovod.prepareCapabilities" . -}}
  {{- include "horovod.preparePodValues" . -}}
  {{- include "horovod.prepareTags" . -}}
  {{- include "horovod.prepareDevices" . -}}
  {{- include "horovod.prepareFusion" . -}}
  {{- include "horovod.prepareTuning" . -}}
  {{- include "horovod.prepareGang" . -}}
  {{- include "horovod.prepareCode" . -}}
  {{- include "horovod.prepareCodeData" . -}}
  {{- include "horovod.prepareScript" . -}}
  {{- include "horovod.prepareCleanMounts" . -}}
  {{- include "horovod.prepareMounts" . -}}
  {{- include "horovod.prepareRun" . -}}
  {{- include "horovod.nameSets" . -}}
  {{- include "horovod.checks" . -}}
  {{- /* The values are free of contradictions here. Find what the cluster has of the run. */ -}}
  {{- include "horovod.prepareStaging" . -}}
  {{- include "horovod.prepareKeys" . -}}
  {{- include "horovod.prepareKeyData" . -}}
  {{- include "horovod.findJob" . -}}
  {{- include "horovod.readEnd" . -}}
  {{- include "horovod.findSets" . -}}
  {{- include "horovod.findKeptPrograms" . -}}
  {{- include "horovod.checkKeptPrograms" . -}}
  {{- include "horovod.findNodes" . -}}
  {{- /* Render the pods. */ -}}
  {{- include "horovod.prepareReplicas" . -}}
  {{- include "horovod.prepareWorkers" . -}}
  {{- include "horovod.prepareSettings" . -}}
  {{- include "horovod.prepareMaster" . -}}
  {{- if .facts.hasTest -}}{{- include "horovod.prepareTest" . -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
Completes the values, and reads what several steps need. Only this step reads .Values, and nothing changes it.
  values          .Values, with the default of each key that is missing or null
  effective       these values, with a number in the place of each null that stands for one
  shared          resources.json: what hvdchart and the pods know of names, limits and devices, too
  launchers       launcher_options.json: what they know of launchers
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
{{- $_ := set .facts "launchers" (.Files.Get "files/hvd_pods/shared/launcher_options.json" | fromJson) -}}
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
{{- end }}

{{/*
  selectors       of the pods of the master and of the workers, as the API takes them in a query:
                  KEY=VALUE,...
*/}}
{{- define "horovod.prepareSelectors" -}}
{{- $selectors := dict -}}
{{- range $component := list "master" "worker" -}}
  {{- $terms := list -}}
  {{- $labels := include "horovod.selectorLabels" (dict "root" $ "component" $component) | fromYaml -}}
  {{- range $key, $value := $labels -}}
    {{- $terms = append $terms (printf "%s=%s" $key $value) -}}
  {{- end -}}
  {{- $_ := set $selectors $component (join "," $terms) -}}
{{- end -}}
{{- $_ := set .facts "selectors" $selectors -}}
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
  libraryVariables  the variables by which libraries of the ranks choose a network, in the workers
*/}}
{{- define "horovod.prepareNetwork" -}}
{{- $values := .facts.values -}}
{{- /* By default there are NetworkPolicies, because MPI, Gloo, NCCL and TensorBoard have no authentication;
but none for the workers on their nodes' network, to which a NetworkPolicy does not apply. */ -}}
{{- $hasPolicies := ne (toString $values.networkPolicy.enabled) "false" -}}
{{- $mesh := dict -}}
{{- $_ := set $mesh "labels" (include "horovod.meshLabels" . | fromYaml) -}}
{{- $_ := set $mesh "annotations" (include "horovod.meshAnnotations" . | fromYaml) -}}
{{- $_ := set .facts "mesh" $mesh -}}
{{- $_ := set .facts "hasPolicy" (and $hasPolicies (not $values.hostNetwork)) -}}
{{- $_ := set .facts "hasTensorboardPolicy" (and $hasPolicies $values.tensorboard.enabled) -}}
{{- $_ := set .facts "libraryVariables" (include "horovod.libraryVariables" . | fromYamlArray) -}}
{{- end }}

{{- define "horovod.meshLabels" -}}
{{- $mesh := .facts.values.serviceMesh -}}
{{- if eq $mesh "Disabled" -}}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
{{- else if eq $mesh "Ambient" -}}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: ambient
{{- end -}}
{{- end }}

{{/*
A native sidecar starts before the init containers and ends with the pod. Meshes that cannot inject one hold
the containers back until the proxy has started.
*/}}
{{- define "horovod.meshAnnotations" -}}
{{- $mesh := .facts.values.serviceMesh -}}
{{- if eq $mesh "Disabled" -}}
linkerd.io/inject: disabled
{{- else if eq $mesh "Hold" -}}
sidecar.istio.io/nativeSidecar: "true"
config.beta.linkerd.io/proxy-enable-native-sidecar: "true"
proxy.istio.io/config: '{"holdApplicationUntilProxyStarts": true}'
config.linkerd.io/proxy-await: enabled
{{- end -}}
{{- end }}

{{- define "horovod.libraryVariables" -}}
{{- $network := .facts.values.network -}}
{{- if $network.interface -}}
{{- range .facts.launchers.interfaceVariables -}}
{{- if and (has "workers" .setOn) (ne $network.transport (.unlessTransport | default "never")) }}
- {name: {{ .name }}, value: {{ quote $network.interface }}}
{{- end }}
{{- end }}
{{- end }}
{{- if eq $network.transport "TCP" }}
- {name: FI_PROVIDER, value: tcp}
- {name: UCX_TLS, value: "self,sm,tcp"}
- {name: NCCL_IB_DISABLE, value: "1"}
{{- end }}
{{- end }}
