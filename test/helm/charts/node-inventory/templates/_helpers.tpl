{{- define "inventory.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "inventory.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "inventory.labels" -}}
{{ include "inventory.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "inventory.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}

{{/* A Job that runs at a point of the release's life. */}}
{{- define "inventory.hook" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "inventory.name" .root }}-{{ .name }}
  labels: {{- include "inventory.labels" .root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .at }}
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: {{ .delete }}
spec:
  backoffLimit: 0
  template:
    metadata:
      labels: {app.kubernetes.io/component: {{ .name }}}
      annotations:
        checked: "yes"
        {{- with .root.Values.hooks.fault }}
        simulated.everynode.io/fault: {{ . }}
        {{- end }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .account }}
      tolerations: [{operator: Exists}]
      containers:
        - name: {{ .name }}
          image: {{ include "inventory.image" .root }}
          args: ["true"]
{{- end -}}
