package podspec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// check returns the errors of a pod's specification given as YAML, one a line.
func check(t *testing.T, text string) string {
	t.Helper()
	var spec corev1.PodSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{Name: "main", Image: "i:1"}}
	}
	SetPodDefaults(&spec)
	SetDefaults(&spec)
	var lines []string
	for _, err := range ValidateNewPod(&spec, field.NewPath("spec")) {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"two sources of a volume": {
			`volumes: [{name: v, emptyDir: {}, hostPath: {path: /x}}]`,
			"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"},
		"one file twice in a projected volume": {
			`volumes: [{name: v, projected: {sources: [{secret: {name: s, items: [{key: a, path: f}]}}, {configMap: {name: c, items: [{key: b, path: f}]}}]}}]`,
			`spec.volumes[0].projected: Invalid value: "c": conflicting duplicate paths`},
		"two tokens of one path": {
			"serviceAccountName: a\n" +
				`volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: f}}, {serviceAccountToken: {path: f}}]}}]`, ""},
		"reserved file name": {
			`volumes: [{name: v, configMap: {name: c, items: [{key: a, path: ..data}]}}]`,
			`spec.volumes[0].configMap.items[0].path: Invalid value: "..data": must not start with '..'`},
		"absolute path in a volume": {
			`volumes: [{name: v, secret: {secretName: s, items: [{key: a, path: /a}]}}]`,
			`spec.volumes[0].secret.items[0].path: Invalid value: "/a": must be a relative path`},
		"bidirectional mount of an ordinary container": {
			"volumes: [{name: v}]\ncontainers: [{name: main, image: i, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}]",
			"spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"},
		"bidirectional mount of a privileged container": {
			"volumes: [{name: v}]\ncontainers: [{name: main, image: i, securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}]", ""},
		"recursively read-only, but writable": {
			"volumes: [{name: v}]\ncontainers: [{name: main, image: i, volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Enabled}]}]",
			"spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"},
		"unknown resource": {
			`containers: [{name: main, image: i, resources: {limits: {gpu: 1}}}]`,
			"spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified\n" +
				"spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers\n" +
				"spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified\n" +
				"spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers"},
		"part of a device": {
			`containers: [{name: main, image: i, resources: {limits: {example.com/gpu: 500m}, requests: {example.com/gpu: 500m}}}]`,
			"spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"500m\": must be an integer\n" +
				"spec.containers[0].resources.requests[example.com/gpu]: Invalid value: \"500m\": must be an integer"},
		"fewer devices than the limit": {
			`containers: [{name: main, image: i, resources: {limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}}}]`,
			`spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2`},
		"more than the limit": {
			`containers: [{name: main, image: i, resources: {limits: {cpu: 1}, requests: {cpu: 2}}}]`,
			`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		"negative amount": {
			`containers: [{name: main, image: i, resources: {requests: {cpu: -1}}}]`,
			`spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0`},
		"huge pages alone": {
			`containers: [{name: main, image: i, resources: {limits: {hugepages-2Mi: 2Mi}}}]`,
			"spec.containers[0].resources: Forbidden: HugePages require cpu or memory"},
		"odd divisor": {
			`containers: [{name: main, image: i, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]}]`,
			`spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource`},
		"value and source": {
			`containers: [{name: main, image: i, env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]`,
			"spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"},
		"label by name": {
			`containers: [{name: main, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}]}]`, ""},
		"all labels in one variable": {
			`containers: [{name: main, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]}]`,
			`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`},
		"probe of an init container": {
			`initContainers: [{name: i, image: i, livenessProbe: {exec: {command: [x]}}}]`,
			"spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
		"probe of a sidecar": {
			`initContainers: [{name: i, image: i, restartPolicy: Always, livenessProbe: {exec: {command: [x]}}}]`, ""},
		"two handlers": {
			`containers: [{name: main, image: i, readinessProbe: {exec: {command: [x]}, tcpSocket: {port: 1}}}]`,
			"spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"},
		"longer pause than the grace period": {
			"terminationGracePeriodSeconds: 5\ncontainers: [{name: main, image: i, lifecycle: {preStop: {sleep: {seconds: 6}}}}]",
			"spec.containers[0].lifecycle.preStop.sleep: Invalid value: 6: must be non-negative and less than terminationGracePeriodSeconds (5)"},
		"restart rules without a policy": {
			`containers: [{name: main, image: i, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [3]}}]}]`,
			"spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used"},
		"no DNS at all": {
			`dnsPolicy: None`, "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"},
		"too many nameservers": {
			`dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3, 4.4.4.4]}`,
			`spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","2.2.2.2","3.3.3.3","4.4.4.4"]: must not have more than 3 nameservers`},
		"toleration with a value it cannot compare": {
			`tolerations: [{key: k, operator: Exists, value: v}]`,
			"spec.tolerations[0].operator: Invalid value: {\"Key\":\"k\",\"Operator\":\"Exists\",\"Value\":\"v\",\"Effect\":\"\",\"TolerationSeconds\":null}: value must be empty when `operator` is 'Exists'"},
		"kernel parameter of the node": {
			"hostNetwork: true\nsecurityContext: {sysctls: [{name: net.core.somaxconn, value: \"1\"}]}",
			`spec.securityContext.sysctls[0].name: Invalid value: "net.core.somaxconn": may not be specified when 'hostNetwork' is true`},
		"privileged without escalation": {
			`containers: [{name: main, image: i, securityContext: {privileged: true, allowPrivilegeEscalation: false}}]`,
			`spec.containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}: cannot set ` + "`allowPrivilegeEscalation` to false and `privileged` to true"},
		"the whole of /proc with the node's users": {
			`containers: [{name: main, image: i, securityContext: {procMount: Unmasked}}]`,
			"spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
		"the whole of /proc with the node's users, said so": {
			"hostUsers: true\ncontainers: [{name: main, image: i, securityContext: {procMount: Unmasked}}]",
			"spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
		"seccomp profile of its own": {
			`securityContext: {seccompProfile: {type: Localhost}}`,
			"spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"},
		"gated, but placed": {
			"nodeName: n1\nschedulingGates: [{name: g}]",
			"spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"},
		"spread twice": {
			`topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]`,
			`spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{z, DoNotSchedule}"`},
		"label keys without a selector": {
			`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, matchLabelKeys: [a]}]}}`,
			"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := check(t, c.spec); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"nothing to say": {`nodeSelector: {kubernetes.io/os: linux}`, ""},
		"renamed label": {`nodeSelector: {beta.kubernetes.io/os: linux}`,
			`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		"hidden file": {`volumes: [{name: v, configMap: {name: c, items: [{key: a, path: d}, {key: b, path: d/f}]}}]`,
			`volume "v" (ConfigMap "c"): overlapping paths: "d/f" with "d"`},
		"file twice": {`volumes: [{name: v, secret: {secretName: s, items: [{key: a, path: d}, {key: b, path: d}]}}]`,
			`volume "v" (Secret "s"): overlapping paths: "d" with "d"`},
		"hidden file of another source": {`volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: t/x, fieldRef: {fieldPath: metadata.name}}]}}]}}]`,
			`volume "v" (Projected): overlapping paths: "t/x" (DownwardAPI) with "t" (ServiceAccountToken)`},
		"variable twice": {`containers: [{name: main, image: i, env: [{name: A, value: "1"}, {name: A, value: "2"}, {name: A, value: $(A)3}]}]`,
			`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`},
		"port twice": {`containers: [{name: main, image: i, ports: [{containerPort: 1}, {containerPort: 1}]}]`,
			"spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"},
		"X from X alone": {`containers: [{name: main, image: i, env: [{name: A, value: "1"}, {name: A, value: $(A)}]}]`,
			`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`},
		"variable from elsewhere": {`containers: [{name: main, image: i, env: [{name: A, value: "1"}, {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]`,
			`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`},
		"port of two containers": {`{initContainers: [{name: i, image: i, ports: [{containerPort: 1}]}], containers: [{name: main, image: i, ports: [{containerPort: 1}]}]}`,
			"spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]"},
		"port with and without the host's": {`containers: [{name: main, image: i, ports: [{containerPort: 1, hostPort: 1}, {containerPort: 1}]}]`,
			"spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"},
		"host port on one address and on all": {`containers: [{name: main, image: i, ports: [{containerPort: 1, hostPort: 1, hostIP: 10.0.0.1}, {containerPort: 1, hostPort: 1}]}]`,
			"spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"},
		"host port on two addresses": {`containers: [{name: main, image: i, ports: [{containerPort: 1, hostPort: 1, hostIP: 10.0.0.1}, {containerPort: 1, hostPort: 1, hostIP: 10.0.0.2}]}]`, ""},
		"host address without host port": {`containers: [{name: main, image: i, ports: [{containerPort: 80, protocol: UDP, hostIP: 10.0.0.1}]}]`,
			"spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:UDP HostIP:10.0.0.1}"},
		"port name twice": {`containers: [{name: a, image: i, ports: [{name: web, containerPort: 1}]}, {name: b, image: i, ports: [{name: web, containerPort: 2}]}]`,
			`spec.containers[1].ports[0]: duplicate port name "web" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]`},
		"secrets: twice, then nameless": {`imagePullSecrets: [{name: ""}, {name: s}, {name: s}]`,
			"spec.imagePullSecrets[2].name: duplicate name \"s\"\nspec.imagePullSecrets[0].name: invalid empty name \"\""},
		"host alias twice": {`hostAliases: [{ip: 10.0.0.1}, {ip: 10.0.0.1}]`, `spec.hostAliases[1].ip: duplicate ip "10.0.0.1"`},
		"renamed label in an affinity": {`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: beta.kubernetes.io/arch, operator: Exists}]}]}}}`,
			`spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead`},
		"preference that no label meets": {`affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: ["b c"]}]}}]}}`,
			`spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: b c is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		"negative grace": {`terminationGracePeriodSeconds: -1`,
			"spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"},
		"selector of nothing": {`affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}`,
			"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod"},
		"a folder of another machine": {`volumes: [{name: v, nfs: {server: s, path: /p}}]`,
			"spec.volumes[0].nfs: nodes mount no volumes of this kind, and a pod with one waits; use a storage driver (csi), or mount it on the machines and use hostPath"},
		"what nodes do not project": {`volumes: [{name: v, projected: {sources: [{configMap: {name: c}}, {clusterTrustBundle: {name: b, path: b}}, {podCertificate: {signerName: x.y/z, keyType: ED25519, keyPath: k}}]}}]`,
			"spec.volumes[0].projected.sources[1].clusterTrustBundle: nodes know no trust bundles, and a pod with one waits; use a configMap\n" +
				"spec.volumes[0].projected.sources[2].podCertificate: nodes get no certificates for pods, and a pod that asks for one waits; use a secret"},
		"part of a byte": {`containers: [{name: main, image: i, resources: {requests: {memory: 100m}}}]`,
			`spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer`},
	} {
		var spec corev1.PodSpec
		if err := yaml.UnmarshalStrict([]byte(c.spec), &spec); err != nil {
			t.Fatal(err)
		}
		SetDefaults(&spec)
		if got := strings.Join(PodWarnings(&corev1.Pod{Spec: spec}), "\n"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// Of every kind of volume that the API takes, also one that a later version brings, nodes either mount it or the answer says that they do
// not.
func TestVolumesThatNobodyMountsAreTold(t *testing.T) {
	// The kinds that nodes mount; internal/agent/volumes has a test of each.
	mounted := []string{"hostPath", "emptyDir", "configMap", "secret", "downwardAPI", "projected", "image", "csi", "persistentVolumeClaim", "ephemeral"}
	all := reflect.TypeFor[corev1.VolumeSource]()
	for i := range all.NumField() {
		name, _, _ := strings.Cut(all.Field(i).Tag.Get("json"), ",")
		var source corev1.VolumeSource
		reflect.ValueOf(&source).Elem().Field(i).Set(reflect.New(all.Field(i).Type.Elem()))
		told := strings.Join(volumeWarnings([]corev1.Volume{{Name: "v", VolumeSource: source}}, field.NewPath("spec", "volumes")), "\n")
		if got := strings.Contains(told, "spec.volumes[0]."+name+": nodes mount no volumes of this kind"); got == slices.Contains(mounted, name) {
			t.Errorf("of a volume of the kind %s is said: %q", name, told)
		}
	}
}

func TestWarningsAboutAnnotations(t *testing.T) {
	const critical, pod, container, armor = "scheduler.alpha.kubernetes.io/critical-pod", "seccomp.security.alpha.kubernetes.io/pod",
		"container.seccomp.security.alpha.kubernetes.io/main", "container.apparmor.security.beta.kubernetes.io/main"
	annotations := map[string]string{critical: "", pod: "x", container: "x", armor: "x"}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	template.Annotations = annotations
	want := []string{
		`metadata.annotations[` + critical + `]: non-functional in v1.16+; use the "priorityClassName" field instead`,
		`metadata.annotations[` + pod + `]: non-functional in v1.27+; use the "seccompProfile" field instead`,
		`metadata.annotations[` + container + `]: non-functional in v1.27+; use the "seccompProfile" field instead`,
	}
	if got := PodWarnings(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}); !slices.Equal(got, want) {
		t.Errorf("of a pod: got %q, want %q", got, want)
	}
	for i := range want {
		want[i] = "spec.template." + want[i]
	}
	want = append(want, `spec.template.metadata.annotations[`+armor+`]: deprecated since v1.30; use the "appArmorProfile" field instead`)
	path := field.NewPath("spec", "template")
	if got := TemplateWarnings(template, path); !slices.Equal(got, want) {
		t.Errorf("of a template: got %q, want %q", got, want)
	}
	template.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{}, AppArmorProfile: &corev1.AppArmorProfile{}}
	template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{}}
	if got := TemplateWarnings(template, path); !slices.Equal(got, want[:1]) {
		t.Errorf("with the fields: got %q, want %q", got, want[:1])
	}
}
