{{/* The keys with which the master and the agents in the workers know each other. */}}

{{- define "horovod.prepareKeys" -}}
{{- $agent := .Values.agent -}}
{{- $fullname := .facts.fullname -}}
{{- /* The keys of each agent.generation have Secrets and names of their own. */ -}}
{{- $generation := int $agent.generation -}}
{{- $secrets := dict -}}
{{- $names := dict -}}
{{- range $of := list "master" "worker" -}}
  {{- $own := printf
    "%s-agent-%s%s" $fullname $of (ternary "" (printf "-%d" $generation) (eq $generation 1)) -}}
  {{- $_ := set $secrets $of (get $agent (printf "%sSecret" $of) | default $own) -}}
  {{- $_ := set $names $of
    (printf "%s-%d.%s.%s.horovod.internal" $of $generation $fullname $.Release.Namespace) -}}
{{- end -}}
{{- $areOwn := not $agent.masterSecret -}}
{{- $masterMayMake := and $areOwn (not (empty .facts.serviceAccount)) -}}
{{- $keys := dict "secrets" $secrets "names" $names "areOwn" $areOwn "masterMayMake" $masterMayMake -}}
{{- $_ := set .facts "keys" $keys -}}
{{- $_ := ternary (include "horovod.keyData" .) "{}" $areOwn | fromJson | set $keys "data" -}}
{{- end }}

{{/*
The data of the chart's own Secrets by master and worker, as JSON: those in the cluster, or new ones where one
is missing. Without access to the cluster, each rendering would make other keys, so that the first master makes
them if it may.
*/}}
{{- define "horovod.keyData" -}}
{{- $kept := dict -}}
{{- $isComplete := true -}}
{{- $hasEmpty := false -}}
{{- range $of, $name := .facts.keys.secrets -}}
  {{- $secret := lookup "v1" "Secret" $.Release.Namespace $name | default dict -}}
  {{- $_ := set $kept $of ($secret.data | default dict) -}}
  {{- $isComplete = and $isComplete $secret.data -}}
  {{- $hasEmpty = or $hasEmpty (and $secret (not $secret.data)) -}}
{{- end -}}
{{- $masterMakes := and .facts.keys.masterMayMake (or $hasEmpty (not .facts.hasAccess)) -}}
{{- if or $isComplete $masterMakes -}}
  {{- toJson $kept -}}
{{- else -}}
  {{- $made := dict -}}
  {{- range $of, $name := .facts.keys.names -}}
    {{- $_ := dict "of" $of "name" $name | include "horovod.newKey" | fromJson | set $made $of -}}
  {{- end -}}
  {{- toJson $made -}}
{{- end -}}
{{- end }}

{{/*
A new key and its certificate, as the data of a Secret in JSON. One authority signs for masters and another one
for workers, so that a worker's key is useless for asking. Nothing keeps the authority's key.
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
