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

{{/* Where runners find a coordinator, from which they learn the others. It must not follow the number of replicas: another
     list replaces the runners, and their agents with them. The Service leads to those that take requests; the first one is
     there before it does. */}}
{{- define "skein.coordinators" -}}
{{- $name := include "skein.fullname" . -}}
{{ printf "http://%s.%s.svc:7701,http://%s-0.%s-nodes.%s.svc:7701" $name .Release.Namespace $name $name .Release.Namespace }}
{{- end }}
