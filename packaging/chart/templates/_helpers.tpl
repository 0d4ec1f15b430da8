{{- define "controller.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "controller.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "controller.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "controller.selector" -}}
app.kubernetes.io/name: everynode-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "controller.labels" -}}
{{ include "controller.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* What a controller beside another one, and who leaves, must agree about. */}}
{{- define "controller.webhook" -}}
- --webhook-namespace={{ .Release.Namespace }}
- --webhook-service={{ include "controller.name" . }}-webhook
- --webhook-secret={{ include "controller.name" . }}-webhook
{{- with .Values.beside.url }}
- --webhook-url={{ . }}
{{- end }}
{{- end -}}
