{{- define "gate.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The certificate that is there already, or a new one: an upgrade must not replace it. */}}
{{- define "gate.certificate" -}}
{{- $host := printf "%s.%s.svc" .Release.Name .Release.Namespace -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace (printf "%s-tls" .Release.Name) -}}
{{- if $there -}}
ca.crt: {{ index $there.data "ca.crt" }}
tls.crt: {{ index $there.data "tls.crt" }}
tls.key: {{ index $there.data "tls.key" }}
{{- else -}}
{{- $ca := genCA "gate" 365 -}}
{{- $cert := genSignedCert $host nil (list $host) 365 $ca -}}
ca.crt: {{ $ca.Cert | b64enc }}
tls.crt: {{ $cert.Cert | b64enc }}
tls.key: {{ $cert.Key | b64enc }}
{{- end -}}
{{- end -}}

{{- define "gate.client" -}}
{{- if .root.Values.webhook.url -}}
url: {{ .root.Values.webhook.url }}{{ .path }}
caBundle: {{ .root.Values.webhook.caBundle }}
{{- else -}}
service: {name: {{ .root.Release.Name }}, namespace: {{ .root.Release.Namespace }}, path: {{ .path }}, port: 443}
caBundle: {{ index .certificate "ca.crt" }}
{{- end -}}
{{- end -}}
