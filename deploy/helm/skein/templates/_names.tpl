{{- define "skein.fullname" -}}
{{- default (ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name)) .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What tells the pods of this release from others. It may never change: a StatefulSet keeps it for life. */}}
{{- define "skein.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "skein.labels" -}}
{{ include "skein.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "skein.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "skein.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "skein.image" -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end }}

{{- define "skein.redisSecret" -}}
{{ ternary (printf "%s-redis" (include "skein.fullname" .)) .Values.redis.existingSecret (ne .Values.redis.url "") }}
{{- end }}

{{- define "skein.publicUrl" -}}
{{ default (printf "http://%s.%s.svc:7700" (include "skein.fullname" .) .Release.Namespace) .Values.coordinators.publicUrl }}
{{- end }}

{{/* The addresses of all coordinators, for a runner keeps a stream to each. */}}
{{- define "skein.coordinators" -}}
{{- $name := include "skein.fullname" . -}}
{{- $addresses := list -}}
{{- range $number := until (int .Values.coordinators.replicas) -}}
{{- $addresses = append $addresses (printf "http://%s-%d.%s-nodes.%s.svc:7701" $name $number $name $.Release.Namespace) -}}
{{- end -}}
{{ join "," $addresses }}
{{- end }}
