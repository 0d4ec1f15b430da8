package warnings

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

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
		"host alias twice": {`hostAliases: [{ip: 10.0.0.1}, {ip: 10.0.0.1}]`,
			`spec.hostAliases[1].ip: duplicate ip "10.0.0.1"`},
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
		defaults.Set(&spec)
		if got := strings.Join(OfPod(&corev1.Pod{Spec: spec}), "\n"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// Of every kind of volume that the API takes, also one that a later version brings, nodes either mount it or the
// answer says that they do
// not.
func TestVolumesThatNobodyMountsAreTold(t *testing.T) {
	// The kinds that nodes mount; internal/agent/volumes has a test of each.
	mounted := []string{"hostPath", "emptyDir", "configMap", "secret", "downwardAPI", "projected", "image", "csi",
		"persistentVolumeClaim", "ephemeral"}
	all := reflect.TypeFor[corev1.VolumeSource]()
	for i := range all.NumField() {
		name, _, _ := strings.Cut(all.Field(i).Tag.Get("json"), ",")
		var source corev1.VolumeSource
		reflect.ValueOf(&source).Elem().Field(i).Set(reflect.New(all.Field(i).Type.Elem()))
		told := strings.Join(volumeWarnings([]corev1.Volume{{Name: "v", VolumeSource: source}},
			field.NewPath("spec", "volumes")), "\n")
		if got := strings.Contains(told, "spec.volumes[0]."+name+": nodes mount no volumes of this kind"); got == slices.Contains(mounted, name) {
			t.Errorf("of a volume of the kind %s is said: %q", name, told)
		}
	}
}

func TestWarningsAboutAnnotations(t *testing.T) {
	const critical, pod, container, armor = "scheduler.alpha.kubernetes.io/critical-pod",
		"seccomp.security.alpha.kubernetes.io/pod",
		"container.seccomp.security.alpha.kubernetes.io/main", "container.apparmor.security.beta.kubernetes.io/main"
	annotations := map[string]string{critical: "", pod: "x", container: "x", armor: "x"}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	template.Annotations = annotations
	want := []string{
		`metadata.annotations[` + critical + `]: non-functional in v1.16+; use the "priorityClassName" field instead`,
		`metadata.annotations[` + pod + `]: non-functional in v1.27+; use the "seccompProfile" field instead`,
		`metadata.annotations[` + container + `]: non-functional in v1.27+; use the "seccompProfile" field instead`,
	}
	if got := OfPod(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}); !slices.Equal(got, want) {
		t.Errorf("of a pod: got %q, want %q", got, want)
	}
	for i := range want {
		want[i] = "spec.template." + want[i]
	}
	want = append(want, `spec.template.metadata.annotations[`+armor+`]: deprecated since v1.30; use the "appArmorProfile" field instead`)
	path := field.NewPath("spec", "template")
	if got := OfTemplate(template, path); !slices.Equal(got, want) {
		t.Errorf("of a template: got %q, want %q", got, want)
	}
	template.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{},
		AppArmorProfile: &corev1.AppArmorProfile{}}
	template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{}}
	if got := OfTemplate(template, path); !slices.Equal(got, want[:1]) {
		t.Errorf("with the fields: got %q, want %q", got, want[:1])
	}
}
