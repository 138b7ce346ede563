{{/* Refusals that need access to the cluster. */}}

{{/* Not empty where Helm can read the cluster, which the namespace's default ServiceAccount proves. */}}
{{- define "horovod.hasAccess" -}}
{{- if lookup "v1" "ServiceAccount" .Release.Namespace "default" -}}yes{{- end -}}
{{- end }}

{{/* Checks that objects which the values name exist. They need access to the cluster. */}}
{{- define "horovod.checkCluster" -}}
{{- $ns := .Release.Namespace -}}
{{- if include "horovod.once" (dict "root" . "name" "horovod.hasAccess") -}}
{{- $selector := include "horovod.runSelector" . | fromYaml -}}
{{- range .horovod.groups -}}
{{- $old := lookup "apps/v1" "StatefulSet" $ns .statefulSet | default dict -}}
{{- $instance := dig "spec" "selector" "matchLabels" "app.kubernetes.io/instance" "" $old -}}
{{- if and $instance (ne $instance (get $selector "app.kubernetes.io/instance")) -}}
{{- $problem := printf "StatefulSet %q selects pods with the instance %q" .statefulSet $instance -}}
{{- $rule := "this version of the chart selects by the release's name, and Kubernetes never changes a selector" -}}
{{- $remedy := printf "kubectl --namespace %s delete statefulset %s" $ns .statefulSet -}}
{{- fail (printf "%s: %s; end the run, delete it (%s) and upgrade again" $problem $rule $remedy) -}}
{{- end -}}
{{- end -}}
{{- with .Values.ssh.existingSecret -}}
{{- $secret := lookup "v1" "Secret" $ns . -}}
{{- range $key := list "user-key" "host-key" -}}
{{- if not (dig "data" $key "" ($secret | default dict)) -}}
{{- $remedy := "create it first, or leave ssh.existingSecret empty and the chart creates one" -}}
{{- $problem := printf "namespace %q has no such Secret with the key %q" $ns $key -}}
{{- fail (printf "ssh.existingSecret is %q but %s: %s" $.Values.ssh.existingSecret $problem $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .horovod.groups -}}
{{- range $volume := .volumes -}}
{{- $claim := dig "persistentVolumeClaim" "claimName" "" $volume -}}
{{- if and $claim (not (lookup "v1" "PersistentVolumeClaim" $ns $claim)) -}}
{{- $remedy := "create it first, or correct volumes[].persistentVolumeClaim.claimName" -}}
{{- $problem := printf "which namespace %q does not have" $ns -}}
{{- fail (printf "volume %q names the PersistentVolumeClaim %q, %s: %s" $volume.name $claim $problem $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .horovod.groups -}}
{{- if and .serviceAccount.name (not .serviceAccount.create) -}}
{{- if not (lookup "v1" "ServiceAccount" $ns .serviceAccount.name) -}}
{{- $subject := printf "worker.serviceAccount.name is %q (group %q)" .serviceAccount.name .name -}}
{{- $problem := printf "namespace %q has no such ServiceAccount" $ns -}}
{{- fail (printf "%s, but %s: create it first, or set worker.serviceAccount.create" $subject $problem) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.serviceAccount -}}
{{- if and .name (not .create) (not (lookup "v1" "ServiceAccount" $ns .name)) -}}
{{- $problem := printf "namespace %q has no such ServiceAccount: create it first, or set serviceAccount.create" $ns -}}
{{- fail (printf "serviceAccount.name is %q and serviceAccount.create is false, but %s" .name $problem) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
