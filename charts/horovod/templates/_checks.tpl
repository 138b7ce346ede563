{{/* Checks that fail when values contradict each other, by topic. validate.yaml includes them; they render nothing. */}}

{{- define "horovod.checkPlacement" -}}
{{- $root := . -}}
{{- range include "horovod.userGroups" . | fromJsonArray -}}
{{- if and (eq .spread "Required") (hasKey .affinity "podAntiAffinity") -}}
{{- fail (printf "group %q: spread is Required but affinity.podAntiAffinity is given too: use only one of them (spread: None leaves it to affinity)" .name) -}}
{{- end -}}
{{- if and .capabilities (ne (toString $root.Values.podSecurityContext.runAsUser) "0") -}}
{{- fail (printf "group %q: capabilities is %s but podSecurityContext.runAsUser is %s: Linux gives added capabilities to root only; run as 0 (with runAsNonRoot: false), or remove them and raise the node's memlock limit instead" .name (toJson .capabilities) (toString ($root.Values.podSecurityContext.runAsUser | default "the image's"))) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkNetwork" -}}
{{- if and .Values.hostNetwork .Values.networkPolicy.enabled -}}
{{- fail "networkPolicy.enabled is true but hostNetwork is true: a NetworkPolicy does not apply to pods on their node's network; set one of them to false" -}}
{{- end -}}
{{- $port := int .Values.ssh.port -}}
{{- if and .Values.hostNetwork (or (has $port (list 2379 2380 6443)) (and (ge $port 10248) (le $port 10259)) (and (ge $port 30000) (le $port 32767))) -}}
{{- fail (printf "hostNetwork is true but ssh.port is %d: Kubernetes uses that port on nodes (etcd, API server, kubelet, kube-proxy or node ports); choose another port" $port) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkWatching" -}}
{{- $root := . -}}
{{- if .Values.horovod.timeline -}}
{{- range include "horovod.userGroups" . | fromJsonArray -}}
{{- if not (include "horovod.hasEnv" (dict "env" .env "name" "OUTPUT_PATH")) -}}
{{- fail (printf "horovod.timeline is true but worker.env has no OUTPUT_PATH (group %q): the timeline is written there; add OUTPUT_PATH and a volume mounted at it" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.tensorboard.enabled -}}
{{- $logDir := include "horovod.logDir" . -}}
{{- if not $logDir -}}
{{- fail "tensorboard.enabled is true but tensorboard.logDir is empty and worker.env has no OUTPUT_PATH: set tensorboard.logDir to the directory with the logs" -}}
{{- end -}}
{{- if not (include "horovod.mountOf" (dict "mounts" .Values.volumeMounts "path" $logDir)) -}}
{{- fail (printf "tensorboard.logDir is %q but no entry of volumeMounts contains it: TensorBoard reads only from volumes" $logDir) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor (not .Values.metrics.enabled) -}}
{{- fail "metrics.podMonitor is true but metrics.enabled is false: there would be nothing to scrape" -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkStorage" -}}
{{- $staging := .Values.staging -}}
{{- if and $staging.command (not $staging.path) -}}
{{- fail "staging.command is set but staging.path is empty: set it to the directory that the command fills" -}}
{{- end -}}
{{- if and $staging.path (not $staging.command) -}}
{{- fail (printf "staging.path is %q but staging.command is empty: set the command that fills it" $staging.path) -}}
{{- end -}}
{{- if $staging.command -}}
{{- $path := trimSuffix "/" $staging.path -}}
{{- range include "horovod.userGroups" . | fromJsonArray -}}
{{- $mount := include "horovod.mountOf" (dict "mounts" .volumeMounts "path" $path) -}}
{{- if not $mount -}}
{{- fail (printf "staging.path is %q but no entry of volumeMounts contains it (group %q): staged data must be on a volume" $path .name) -}}
{{- end -}}
{{- if eq $path (trimSuffix "/" ($mount | fromJson).mountPath) -}}
{{- fail (printf "staging.path %q is a volumeMounts[].mountPath itself (group %q): name a directory below it, because a mount cannot be replaced atomically" $path .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
