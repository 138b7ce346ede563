{{/*
The keys with which the master and the agents in the workers know each other. One authority signs for masters and
another one for workers, so that a worker's key is useless for asking.
*/}}

{{/* Not empty when the keys are in Secrets of the chart's own. */}}
{{- define "horovod.ownKeys" -}}
{{- if not .Values.agent.masterSecret -}}yes{{- end -}}
{{- end }}

{{/* Not empty when the first master may make the keys. */}}
{{- define "horovod.masterMayMakeKeys" -}}
{{- if and (include "horovod.ownKeys" .) (include "horovod.serviceAccount" .) -}}yes{{- end -}}
{{- end }}

{{/*
The Secret with the keys of the master or of the workers. Those of each agent.generation have names of their own.
Call with (dict "root" $ "of" "master").
*/}}
{{- define "horovod.keysSecret" -}}
{{- $agent := .root.Values.agent -}}
{{- $suffix := ternary "" (printf "-%d" (int $agent.generation)) (eq (int $agent.generation) 1) -}}
{{- $own := printf "%s-agent-%s%s" (include "horovod.fullname" .root) .of $suffix -}}
{{ get $agent (printf "%sSecret" .of) | default $own }}
{{- end }}

{{/* Both Secrets, as a JSON list. */}}
{{- define "horovod.keysSecrets" -}}
{{- $names := list -}}
{{- range list "master" "worker" -}}
{{- $names = append $names (include "horovod.keysSecret" (dict "root" $ "of" .)) -}}
{{- end -}}
{{ toJson $names }}
{{- end }}

{{/* The only DNS name in the certificate of the master or of the workers. Call with the same. */}}
{{- define "horovod.certifiedName" -}}
{{- $generation := int .root.Values.agent.generation -}}
{{ .of }}-{{ $generation }}.{{ include "horovod.fullname" .root }}.{{ .root.Release.Namespace }}.horovod.internal
{{- end }}

{{/* The data of a new Secret, as YAML. Nothing keeps the authority's key. Call with the same. */}}
{{- define "horovod.newKeys" -}}
{{- $days := 3650 -}}
{{- $authority := genCAWithKey (printf "horovod-%s-authority" .of) $days (genPrivateKey "ecdsa") -}}
{{- $names := list (include "horovod.certifiedName" .) -}}
{{- $key := genPrivateKey "ecdsa" -}}
{{- $certificate := genSignedCertWithKey (printf "horovod-%s" .of) list $names $days $authority $key -}}
tls.crt: {{ $certificate.Cert | b64enc }}
tls.key: {{ $certificate.Key | b64enc }}
ca.crt: {{ $authority.Cert | b64enc }}
{{- end }}

{{/*
The volume with a pod's certificate and key, and with the authority of its peers. The kubelet holds a pod back until the
Secrets have them, but not the master that may make them. Call with (dict "root" $ "of" "worker" "peer" "master").
*/}}
{{- define "horovod.keysVolume" -}}
{{- $makes := and (eq .of "master") (include "horovod.masterMayMakeKeys" .root) -}}
{{- $items := list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key") -}}
{{- $ofPeer := list (dict "key" "ca.crt" "path" "peer-ca.crt") -}}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      {{- range $of, $items := dict .of $items .peer $ofPeer }}
      - secret:
          name: {{ include "horovod.keysSecret" (dict "root" $.root "of" $of) | quote }}
          items: {{ toJson $items }}
          {{- if $makes }}
          optional: true
          {{- end }}
      {{- end }}
{{- end }}
