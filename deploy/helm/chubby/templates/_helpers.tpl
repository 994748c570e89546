{{- define "chubby.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The name of all objects. Names of pods and their DNS names are made of it, so it is kept short. */}}
{{- define "chubby.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "chubby.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "chubby.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "chubby.selector" -}}
app.kubernetes.io/name: {{ include "chubby.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "chubby.labels" -}}
{{ include "chubby.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "chubby.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The domain of the replicas' names: POD.NAME-peers.NAMESPACE.svc.cluster.local */}}
{{- define "chubby.peersDomain" -}}
{{- printf "%s-peers.%s.svc.%s" (include "chubby.fullname" .) .Release.Namespace .Values.clusterDomain }}
{{- end }}

{{/* The id of the replica in a pod: the pod's name, unless it joined under another. Takes a list of the root and the number. */}}
{{- define "chubby.id" -}}
{{- $root := index . 0 }}{{ $n := index . 1 | toString }}
{{- get $root.Values.replicas.joined $n | default (printf "%s-%s" (include "chubby.fullname" $root) $n) }}
{{- end }}

{{/* What certificates of a replica are called in their directory: by its id where chubbyd certs names them, and by its pod
where cert-manager does, since a volume lists the Secrets by pod. */}}
{{- define "chubby.certName" -}}
{{- $root := index . 0 }}
{{- if eq $root.Values.tls.mode "certManager" }}{{ printf "%s-%s" (include "chubby.fullname" $root) (index . 1 | toString) }}{{ else }}{{ include "chubby.id" . }}{{ end }}
{{- end }}

{{- define "chubby.certsSecret" -}}
{{- .Values.tls.secret | default (printf "%s-certs" (include "chubby.fullname" .)) }}
{{- end }}

{{- define "chubby.operatorSecret" -}}
{{- .Values.operator.secret | default (printf "%s-operator" (include "chubby.fullname" .)) }}
{{- end }}

{{/* A number of values.yaml without an exponent, and everything else as it is. */}}
{{- define "chubby.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . | toString | quote }}{{ else }}{{ toString . | quote }}{{ end }}
{{- end }}

{{/* The part of the configuration that is the same for all replicas, and whose change needs a restart. */}}
{{- define "chubby.commonConfig" -}}
{{- $own := list "cell" "id" "members" "listen" "advertise" "data" "bootstrap" "join" "spare" "operators" "insecure" "tls-cert" "tls-key" "tls-ca" "tls-crl"
  "peer-tls-cert" "peer-tls-key" "peer-tls-ca" "peer-tls-crl" "token-keys" "token-keys-ca" "token-keys-token" "token-issuer"
  "token-audience" "backup-to" "backup-every" "backup-keep" }}
{{- range $key, $value := .Values.config }}
{{- if has $key $own }}{{ fail (printf "config.%s: the chart sets %s; see its other values" $key $key) }}{{ end }}
{{ $key }}: {{ include "chubby.scalar" $value }}
{{- end }}
cell: {{ .Values.cell }}
data: /var/lib/chubby/data
{{- if eq .Values.tls.mode "none" }}
insecure: true
{{- else }}
tls-ca: /etc/chubby/tls/ca.crt
peer-tls-ca: /etc/chubby/tls/replica-ca.crt
{{- if .Values.tls.crl }}
tls-crl: /etc/chubby/tls/ca.crl
peer-tls-crl: /etc/chubby/tls/replica-ca.crl
{{- end }}
{{- end }}
{{- if .Values.tokens.enabled }}
token-keys: {{ .Values.tokens.keys }}
token-keys-ca: /var/run/secrets/chubby-tokens/ca.crt
token-keys-token: /var/run/secrets/chubby-tokens/token
token-issuer: {{ .Values.tokens.issuer }}
token-audience: {{ .Values.tokens.audience }}
{{- end }}
{{- if ne .Values.backup.to "none" }}
backup-to: {{ eq .Values.backup.to "directory" | ternary "/var/lib/chubby-backups" .Values.backup.to | quote }}
backup-every: {{ .Values.backup.every }}
backup-keep: {{ .Values.backup.keep }}
{{- end }}
{{- end }}

{{/* The configuration of the replica in one pod. Takes a list of the root and the number of the pod. */}}
{{- define "chubby.config" -}}
{{- $root := index . 0 }}{{ $n := index . 1 | toString }}
{{- $domain := include "chubby.peersDomain" $root }}
id: {{ include "chubby.id" . }}
{{- if hasKey $root.Values.replicas.joined $n }}
join: true
{{- else }}
bootstrap: {{ $root.Values.bootstrap }}
{{- end }}
members:
{{- range $i := until (int $root.Values.replicas.count) }}
{{- $host := printf "%s-%d.%s" (include "chubby.fullname" $root) $i $domain }}
  - {id: {{ include "chubby.id" (list $root $i) }}, client: "{{ $host }}:7421", raft: "{{ $host }}:7431", http: "{{ $host }}:7441"}
{{- end }}
operators: {{ join ", " $root.Values.operators | quote }}
{{- if ne $root.Values.tls.mode "none" }}
{{- $cert := include "chubby.certName" . }}
tls-cert: /etc/chubby/tls/server-{{ $cert }}.crt
tls-key: /etc/chubby/tls/server-{{ $cert }}.key
peer-tls-cert: /etc/chubby/tls/replica-{{ $cert }}.crt
peer-tls-key: /etc/chubby/tls/replica-{{ $cert }}.key
{{- end }}
{{- include "chubby.commonConfig" $root }}
{{- end }}

{{/* Nine tenths of a limit of memory, for GOMEMLIMIT: the kernel's buffers and the stacks of threads need the rest. */}}
{{- define "chubby.goMemoryLimit" -}}
{{- $limit := .Values.resources.limits.memory | toString }}
{{- if regexMatch "^[0-9]+Gi$" $limit }}{{ printf "%dMiB" (div (mul (trimSuffix "Gi" $limit | int64) 9216) 10) }}
{{- else if regexMatch "^[0-9]+Mi$" $limit }}{{ printf "%dMiB" (div (mul (trimSuffix "Mi" $limit | int64) 9) 10) }}
{{- else }}{{ fail (printf "resources.limits.memory: %q; write it as 1Gi or 1536Mi, since GOMEMLIMIT is computed of it" $limit) }}
{{- end }}
{{- end }}

{{- define "chubby.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.runAsUser }}
runAsGroup: {{ .Values.runAsGroup }}
fsGroup: {{ .Values.runAsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "chubby.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where chubbyctl finds the cell: all replicas, so that it starts whichever are down. */}}
{{- define "chubby.clientEnv" -}}
{{- $hosts := list }}
{{- range $i := until (int .Values.replicas.count) }}
{{- $hosts = append $hosts (printf "%s-%d.%s:7421" (include "chubby.fullname" $) $i (include "chubby.peersDomain" $)) }}
{{- end }}
- name: CHUBBY_CELLS
  value: {{ printf "%s=%s" .Values.cell (join "," $hosts) | quote }}
{{- if ne .Values.tls.mode "none" }}
- name: CHUBBY_CACERT
  value: /etc/chubby/operator/ca.crt
- name: CHUBBY_CERT
  value: /etc/chubby/operator/tls.crt
- name: CHUBBY_KEY
  value: /etc/chubby/operator/tls.key
{{- end }}
{{- end }}

{{/* The issuer that was given, or that of the chart. */}}
{{- define "chubby.issuer" -}}
{{- if .given }}
name: {{ .given.name }}
kind: {{ .given.kind | default "Issuer" }}
group: {{ .given.group | default "cert-manager.io" }}
{{- else -}}
name: {{ .name }}
kind: Issuer
group: cert-manager.io
{{- end }}
{{- end }}
