{{/* What the pods of coordinators and ingress have in common. Give `root`, `part` (the values) and `component`. */}}
{{- define "skein.podStart" -}}
serviceAccountName: {{ include "skein.serviceAccount" .root }}
automountServiceAccountToken: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
terminationGracePeriodSeconds: {{ .grace }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Two of a kind on one machine would end together. */}}
{{- define "skein.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "skein.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "skein.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Puts settings and keys into the data folder, where their owner alone may read them (a mounted Secret is readable by its
     group), and issues the certificate for the address that the pod has got. What signs it is seen by this container alone. */}}
{{- define "skein.prepare" -}}
initContainers:
  - name: prepare
    image: {{ include "skein.image" (dict "root" .root "image" .root.Values.image.coordinator) }}
    imagePullPolicy: {{ .root.Values.image.coordinator.pullPolicy }}
    command:
      - sh
      - -ec
      - |
        rm -rf /run/skein/work/authority
        install -d -m 0700 /var/lib/skein/data /run/skein/cluster/node /run/skein/work/authority
        install -m 0600 -t /var/lib/skein/data /run/skein/authority/keys.json /run/skein/authority/secrets.json /etc/skein/config.toml
        install -m 0600 -t /run/skein/work/authority /run/skein/authority/ca.pem /run/skein/authority/ca.key /run/skein/authority/keys.json /run/skein/authority/secrets.json
        skein cluster init --out /run/skein/work/authority --days {{ .root.Values.authority.days }} "$POD_IP"
        install -m 0600 -t /run/skein/cluster/node "/run/skein/work/authority/$POD_IP"/*
        rm -r /run/skein/work/authority
    env:
      {{- include "skein.podIp" . | nindent 6 }}
    {{- include "skein.confined" . | nindent 4 }}
    volumeMounts:
      - name: data
        mountPath: /var/lib/skein
      - name: authority
        mountPath: /run/skein/authority
        readOnly: true
      - name: config
        mountPath: /etc/skein
        readOnly: true
      - name: cluster
        mountPath: /run/skein/cluster
      - name: work
        mountPath: /run/skein/work
{{- end }}

{{/* Its name is known before the others can look it up, its address at once. */}}
{{- define "skein.podIp" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}

{{- define "skein.nodeEnv" -}}
- name: SKEIN_DATA
  value: /var/lib/skein/data
- name: SKEIN_REDIS
  valueFrom:
    secretKeyRef:
      name: {{ include "skein.redisSecret" . }}
      key: {{ ternary "url" .Values.redis.key (ne .Values.redis.url "") }}
{{ include "skein.podIp" . }}
{{- end }}

{{- define "skein.store" -}}
[store]
durability = {{ .Values.redis.durability | quote }}
{{- with .Values.redis.tls.ca }}
redis_ca = {{ . | quote }}
{{- end }}
{{- with .Values.redis.tls.certificate }}
redis_certificate = {{ . | quote }}
{{- end }}
{{- with .Values.redis.tls.key }}
redis_key = {{ . | quote }}
{{- end }}
{{- end }}

{{- define "skein.secretMounts" -}}
{{- range .Values.secrets }}
- name: secret-{{ . }}
  mountPath: /run/skein/secrets/{{ . }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "skein.nodeProbes" -}}
# A node answers this from its beginning on, also while it waits for the leases of coordinators that were killed.
startupProbe:
  httpGet:
    path: /healthz
    port: http
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 90
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "skein.nodeVolumes" -}}
- name: authority
  secret:
    secretName: {{ .root.Values.authority.existingSecret }}
    defaultMode: 0440
# In memory, for these are private keys.
- name: cluster
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: work
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: config
  configMap:
    name: {{ include "skein.fullname" .root }}-{{ .component }}
- name: tmp
  emptyDir: {}
{{- range .root.Values.secrets }}
- name: secret-{{ . }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
