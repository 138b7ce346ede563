{{/* Refusals of the timeline, TensorBoard and metrics. */}}

{{- define "horovod.checkTimeline" -}}
{{- if .facts.values.horovod.timeline -}}
  {{- range .facts.groups -}}
    {{- if not (include "horovod.envEntry" (dict "env" .env "name" "OUTPUT_PATH") | fromJson) -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "horovod.timeline is true but %s.env has no OUTPUT_PATH" .valuesKey)
        "why" "the timeline is written there"
        "do" "add OUTPUT_PATH and a volume mounted at it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkTensorboard" -}}
{{- $isEnabled := .facts.values.tensorboard.enabled -}}
{{- if and $isEnabled (not .facts.logDir) -}}
  {{- include "horovod.refuse" (dict
    "what" "tensorboard.enabled is true but tensorboard.logDir is empty and worker.env has no OUTPUT_PATH"
    "do" "set tensorboard.logDir to the directory with the logs") -}}
{{- end -}}
{{- if and $isEnabled (not .facts.logMount) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "tensorboard.logDir is %q but no entry of volumeMounts contains it" .facts.logDir)
    "why" "TensorBoard reads only from volumes") -}}
{{- end -}}
{{- end }}

{{/* The ranks write the logs in other pods than that of TensorBoard. */}}
{{- define "horovod.checkLogVolume" -}}
{{- if .facts.values.tensorboard.enabled -}}
  {{- $mount := .facts.logMount -}}
  {{- $isDeclared := false -}}
  {{- $remedy := "use one that pods share, such as a persistentVolumeClaim with a claimName" -}}
  {{- range .facts.values.volumes -}}
    {{- if eq .name $mount.name -}}
      {{- $isDeclared = true -}}
      {{- /* Kubernetes takes a volume of no kind as an emptyDir. */ -}}
      {{- $isEmptyDir := or (hasKey . "emptyDir") (eq (len .) 1) -}}
      {{- if or $isEmptyDir (hasKey . "ephemeral") -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "tensorboard.logDir is %q but volumes has %q of the kind %s"
            $.facts.logDir .name (ternary "emptyDir" "ephemeral" $isEmptyDir))
          "why" "each pod has such a volume for itself, and TensorBoard would show nothing"
          "do" $remedy) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if not $isDeclared -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "tensorboard.logDir is %q but volumes has no %q, which volumeMounts names for it"
        .facts.logDir $mount.name)
      "why" "TensorBoard mounts a volume of yours"
      "do" $remedy) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkTensorboardClients" -}}
{{- $isRestricted := not (empty .facts.values.tensorboard.allowFrom) -}}
{{- if and $isRestricted (not .facts.values.tensorboard.enabled) -}}
  {{- include "horovod.refuse" (dict
    "what" "tensorboard.allowFrom is set but tensorboard.enabled is false"
    "do" "enable TensorBoard, or remove allowFrom") -}}
{{- end -}}
{{- if and $isRestricted (not .facts.hasTensorboardPolicy) -}}
  {{- include "horovod.refuse" (dict
    "what" "tensorboard.allowFrom is set but networkPolicy.enabled is false"
    "why" "every pod may connect then"
    "do" "remove one of the two") -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkMetrics" -}}
{{- $metrics := .facts.values.metrics -}}
{{- range $key := list "podMonitor" "rules" "dashboard" "allowFrom" -}}
  {{- if and (get $metrics $key) (not $metrics.enabled) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "metrics.%s is set but metrics.enabled is false" $key)
      "why" "there would be nothing to scrape"
      "do" "set both") -}}
  {{- end -}}
{{- end -}}
{{- $port := int $metrics.port -}}
{{- if and $metrics.enabled (eq (int .facts.values.agent.port) $port) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "metrics.port is %d but agent.port is %d" $port $port)
    "why" "a worker has both ports"
    "do" "choose another port for one of them") -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkMetricsClients" -}}
{{- if and .facts.values.metrics.allowFrom (not .facts.hasPolicy) -}}
  {{- $cause := ternary "hostNetwork is true" "networkPolicy.enabled is false" .facts.values.hostNetwork -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "metrics.allowFrom is set but %s" $cause)
    "why" "the run has no NetworkPolicy then, and every pod may connect"
    "do" "remove one of the two") -}}
{{- end -}}
{{- end }}
