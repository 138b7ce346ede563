{{/*
The command of a container that runs a script of a shell with a command as its arguments. The script is in the
pod's template, because the image may have no Python.
Call with (dict "root" $ "script" "worker/stage.sh" "command" $list).
*/}}
{{- define "horovod.scriptCommand" -}}
{{- $text := .root.Files.Get (printf "files/hvd_pods/%s" .script) | replace "$" "$$" -}}
{{ concat (list "sh" "-c" $text (base .script)) .command | toYaml }}
{{- end }}
