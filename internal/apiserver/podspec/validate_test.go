package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

// errorsOf returns the errors of a pod's specification given as YAML, one a line.
func errorsOf(t *testing.T, text string) string {
	t.Helper()
	var spec corev1.PodSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{Name: "main", Image: "i:1"}}
	}
	defaults.SetPod(&spec)
	defaults.Set(&spec)
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
		"containers that request all that the pod does": {
			"resources: {requests: {cpu: 2}}\ncontainers: [{name: main, image: i, resources: {requests: {cpu: 1}}}, {name: b, image: i, resources: {requests: {cpu: 1}}}]", ""},
		"containers that request more than the pod": {
			"resources: {requests: {cpu: 2}}\ncontainers: [{name: main, image: i, resources: {requests: {cpu: 1}}}, {name: b, image: i, resources: {requests: {cpu: 1001m}}}]",
			`spec.resources.requests[cpu]: Invalid value: "2": must be greater than or equal to aggregate container requests of 2001m`},
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
			if got := errorsOf(t, c.spec); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
