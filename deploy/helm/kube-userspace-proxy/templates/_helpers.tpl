{{/* Of every object. Selectors have k8s-app alone. */}}
{{- define "labels" -}}
k8s-app: {{ .Release.Name }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "image" -}}
{{- with .Values.image -}}
{{- $repository := required "image.repository is missing: say where you pushed the image, with --set image.repository=REGISTRY/kube-userspace-proxy" .repository -}}
{{- if .digest -}}
{{ $repository }}@{{ .digest }}
{{- else -}}
{{ $repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "account" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end -}}

{{/*
The fields of the configuration file, as JSON. A file decides all that it has a field for, so where there is one, the
kubeconfig has to stand in it, too.
*/}}
{{- define "fields" -}}
{{- $fields := deepCopy .Values.config -}}
{{- if .Values.kubeProxy.configMap -}}
{{- $fields = mergeOverwrite (dict "clientConnection" (dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf")) $fields -}}
{{- end -}}
{{ toJson $fields }}
{{- end -}}

{{/* Of what the program takes as "ip" or "ip:port". */}}
{{- define "address-and-port" -}}
^(?:([^:]*)|\[(.*)\]):([0-9]+)$
{{- end -}}

{{/* The port of "address"; with "default". */}}
{{- define "port" -}}
{{- $with := include "address-and-port" . -}}
{{- if regexMatch $with .address -}}
{{ regexReplaceAll $with .address "${3}" }}
{{- else -}}
{{ .default }}
{{- end -}}
{{- end -}}

{{/* The one address of "address"; empty where that is all of the node's, of which the kubelet asks the Pod's. */}}
{{- define "host" -}}
{{- $host := regexReplaceAll (include "address-and-port" .) .address "${1}${2}" -}}
{{- if not (has $host (list "0.0.0.0" "::")) -}}
{{ $host }}
{{- end -}}
{{- end -}}
