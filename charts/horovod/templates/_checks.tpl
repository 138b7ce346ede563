{{/*
Checks of what the schema cannot express, by subject: keys that contradict each other, and names that are too long.
They render nothing and fail with both keys and the remedy. horovod.prepare runs them before any pod is rendered.
*/}}
{{- define "horovod.checks" -}}
{{- include "horovod.checkRetired" . -}}
{{- include "horovod.checkNames" . -}}
{{- include "horovod.checkImages" . -}}
{{- include "horovod.checkGroups" . -}}
{{- include "horovod.checkPlacement" . -}}
{{- include "horovod.checkSecurity" . -}}
{{- include "horovod.checkLaunch" . -}}
{{- include "horovod.checkElastic" . -}}
{{- include "horovod.checkBinding" . -}}
{{- include "horovod.checkMemory" . -}}
{{- include "horovod.checkEnd" . -}}
{{- include "horovod.checkNetwork" . -}}
{{- include "horovod.checkWatching" . -}}
{{- include "horovod.checkStaging" . -}}
{{- include "horovod.checkResults" . -}}
{{- include "horovod.checkCode" . -}}
{{- include "horovod.checkReserved" . -}}
{{- include "horovod.checkPods" . -}}
{{- include "horovod.checkCluster" . -}}
{{- end }}

{{- define "horovod.checkRetired" -}}
{{- $values := .Values -}}
{{- range $key, $instead := include "horovod.retired" . | fromJson -}}
{{- $parts := splitList "." $key -}}
{{- $parent := $values -}}
{{- range initial $parts -}}{{- $parent = get $parent . | default dict -}}{{- end -}}
{{- if hasKey $parent (last $parts) -}}
{{- fail (printf "%s is a key of older charts; use instead: %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkNames" -}}
{{- $fullname := include "horovod.fullname" . -}}
{{- $from := "from the release's name and the chart's alias" -}}
{{- if eq $fullname .Release.Name -}}{{- $from = "the release's name" -}}{{- end -}}
{{- if .Values.nameOverride -}}{{- $from = "from the release's name and nameOverride" -}}{{- end -}}
{{- if .Values.fullnameOverride -}}{{- $from = "fullnameOverride" -}}{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- $rule := "it must consist of lower-case letters, digits and '-' and start with a letter" -}}
{{- fail (printf "the name of the objects is %q (%s): it becomes part of host names, so %s" $fullname $from $rule) -}}
{{- end -}}
{{- if gt (len $fullname) 47 -}}
{{- $reason := "because the name of the master's Job must not exceed 63; fullnameOverride replaces it" -}}
{{- $subject := printf "the name of the objects, %q (%s), has %d characters" $fullname $from (len $fullname) -}}
{{- fail (printf "%s: use at most 47, %s" $subject $reason) -}}
{{- end -}}
{{- end }}

{{/* The chart has no default image, because no public registry has one with everything that it needs. */}}
{{- define "horovod.checkImages" -}}
{{- $owners := dict "master" .Values.master.image -}}
{{- range .horovod.groups -}}{{- $_ := set $owners (printf "group %q" .name) .image -}}{{- end -}}
{{- $default := .Values.image.repository -}}
{{- range $of, $image := $owners -}}
{{- if not (or $image.repository $default) -}}
{{- $needs := "an image with Python 3, MPI, an SSH server and an SSH client" -}}
{{- $example := "--set image.repository=registry.example/team/app --set image.tag=1.0" -}}
{{- $build := "docs/images.md of the chart's repository shows how to build one" -}}
{{- fail (printf "image.repository is empty (%s): set it to %s, such as %s; %s" $of $needs $example $build) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkSecurity" -}}
{{- with .Values.podSecurityContext -}}
{{- if and .runAsNonRoot (eq (toString .runAsUser) "0") -}}
{{- $remedy := "for a root image set runAsNonRoot to false too" -}}
{{- fail (printf "podSecurityContext.runAsUser is 0 but runAsNonRoot is true: %s" $remedy) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What happens at the end of the run. */}}
{{- define "horovod.checkEnd" -}}
{{- if and (not (kindIs "invalid" .Values.master.ttlSecondsAfterFinished)) (ne .Values.cleanup "Always") -}}
{{- $why := "the workers of a failed run would remain after the Job is removed; set cleanup to Always" -}}
{{- fail (printf "master.ttlSecondsAfterFinished is set but cleanup is %s: %s" .Values.cleanup $why) -}}
{{- end -}}
{{- if and (eq .Values.cleanup "Always") (not (include "horovod.serviceAccount" .)) -}}
{{- $none := "there is no serviceAccount (serviceAccount.create is false, serviceAccount.name empty)" -}}
{{- fail (printf "cleanup is Always but %s: the master could not scale the workers" $none) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkNetwork" -}}
{{- if .Values.hostNetwork -}}
{{- if eq .Values.serviceMesh "Ambient" -}}
{{- $why := "Istio's ambient mesh leaves out pods on their node's network; set one of them to another value" -}}
{{- fail (printf "serviceMesh is Ambient but hostNetwork is true: %s" $why) -}}
{{- end -}}
{{- if .Values.networkPolicy.enabled -}}
{{- $why := "a NetworkPolicy does not apply to pods on their node's network; set one of them to false" -}}
{{- fail (printf "networkPolicy.enabled is true but hostNetwork is true: %s" $why) -}}
{{- end -}}
{{- $port := int .Values.ssh.port -}}
{{- $ofKubelet := and (ge $port 10248) (le $port 10259) -}}
{{- $ofServices := and (ge $port 30000) (le $port 32767) -}}
{{- if or (has $port (list 2379 2380 6443)) $ofKubelet $ofServices -}}
{{- $users := "etcd, API server, kubelet, kube-proxy or node ports" -}}
{{- $remedy := printf "Kubernetes uses that port on nodes (%s); choose another port" $users -}}
{{- fail (printf "hostNetwork is true but ssh.port is %d: %s" $port $remedy) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkWatching" -}}
{{- if .Values.horovod.timeline -}}
{{- range .horovod.groups -}}
{{- if not (include "horovod.hasEnv" (dict "env" .env "name" "OUTPUT_PATH")) -}}
{{- $problem := printf "horovod.timeline is true but worker.env has no OUTPUT_PATH (group %q)" .name -}}
{{- fail (printf "%s: the timeline is written there; add OUTPUT_PATH and a volume mounted at it" $problem) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.tensorboard.enabled -}}
{{- $logDir := include "horovod.logDir" . -}}
{{- if not $logDir -}}
{{- $problem := "tensorboard.enabled is true but tensorboard.logDir is empty and worker.env has no OUTPUT_PATH" -}}
{{- fail (printf "%s: set tensorboard.logDir to the directory with the logs" $problem) -}}
{{- end -}}
{{- if not (include "horovod.mountOf" (dict "mounts" .Values.volumeMounts "path" $logDir)) -}}
{{- $problem := printf "tensorboard.logDir is %q but no entry of volumeMounts contains it" $logDir -}}
{{- fail (printf "%s: TensorBoard reads only from volumes" $problem) -}}
{{- end -}}
{{- end -}}
{{- if .Values.tensorboard.allowFrom -}}
{{- $none := "tensorboard.allowFrom is set but" -}}
{{- if not .Values.tensorboard.enabled -}}
{{- fail (printf "%s tensorboard.enabled is false: enable TensorBoard, or remove allowFrom" $none) -}}
{{- end -}}
{{- if eq (toString .Values.networkPolicy.enabled) "false" -}}
{{- $why := "every pod may connect then; remove one of the two" -}}
{{- fail (printf "%s networkPolicy.enabled is false: %s" $none $why) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor (not .Values.metrics.enabled) -}}
{{- fail "metrics.podMonitor is set but metrics.enabled is false: there would be nothing to scrape; set both" -}}
{{- end -}}
{{- end }}

{{/* Names that the chart needs for itself, in lists that are merged with its own. */}}
{{- define "horovod.checkReserved" -}}
{{- $environments := dict "master.env" .Values.master.env "staging.env" .Values.staging.env -}}
{{- $_ := set $environments "results.env" .Values.results.env -}}
{{- $volumes := dict "volumes" .Values.volumes -}}
{{- $mounts := dict "volumeMounts" .Values.volumeMounts -}}
{{- range .horovod.groups -}}
{{- $_ := set $environments (printf "worker.env (group %q)" .name) .env -}}
{{- $_ := set $volumes (printf "volumes of group %q" .name) .volumes -}}
{{- $_ := set $mounts (printf "volumeMounts of group %q" .name) .volumeMounts -}}
{{- end -}}
{{- range $of, $entries := $environments -}}
{{- range $entries -}}
{{- if regexMatch "^(HVD_.*|STAGING_(PATH|KEY|OWNER|VERIFY)|RESULTS_(PATH|EXCHANGE))$" .name -}}
{{- fail (printf "%s has %s: the chart sets that variable; give yours another name" $of .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $of, $entries := $volumes -}}
{{- range $entries -}}
{{- if regexMatch "^(programs-(common|master|rank|warm|worker)|generated|ssh|code)$" .name -}}
{{- fail (printf "%s has one named %q: the chart has a volume of that name; rename yours" $of .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $of, $entries := $mounts -}}
{{- range $entries -}}
{{- if regexMatch "^/(horovod(/(bin(/.*)?|generated|results|ssh|code|code-source))?|etc/passwd)/?$" .mountPath -}}
{{- fail (printf "%s has the mountPath %s: the chart's own files are there; choose another path" $of .mountPath) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
