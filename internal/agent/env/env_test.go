package env

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objects is a fixed set of API objects.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
	services   []*corev1.Service
	files      map[string]string
}

func (o objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if data, ok := o.configMaps[name]; ok {
		return &corev1.ConfigMap{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (o objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	if data, ok := o.secrets[name]; ok {
		return &corev1.Secret{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (o objects) Services(context.Context, string) ([]*corev1.Service, error) { return o.services, nil }

func (o objects) NodeAllocatable() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
	}
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func testPod() *corev1.Pod {
	off := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fleet-x", Namespace: "team", UID: "u-1",
			Labels:      map[string]string{"app": "fleet", "a/b": `quo"te`},
			Annotations: map[string]string{"note": "für\nalle"},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "robot", EnableServiceLinks: &off,
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("150m")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
			}}},
			InitContainers: []corev1.Container{{Name: "first", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
			}}},
		},
	}
}

func fieldRef(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func resourceRef(container, name, divisor string) *corev1.EnvVarSource {
	s := &corev1.ResourceFieldSelector{ContainerName: container, Resource: name}
	if divisor != "" {
		s.Divisor = resource.MustParse(divisor)
	}
	return &corev1.EnvVarSource{ResourceFieldRef: s}
}

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func TestBuildValues(t *testing.T) {
	yes := true
	cm := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local(name), Key: key, Optional: optional}}
	}
	secret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local(name), Key: key, Optional: optional}}
	}
	const unset = "<unset>"
	tests := []struct {
		name string
		from *corev1.EnvVarSource
		text string
		want string
		err  string
	}{
		{name: "plain", text: "v", want: "v"},
		{name: "empty", text: "", want: ""},
		{name: "reference to an earlier variable", text: "$(EARLY)-$(P_host)", want: "early-db"},
		{name: "escaped reference", text: "$$(EARLY)", want: "$(EARLY)"},
		{name: "name", from: fieldRef("metadata.name"), want: "fleet-x"},
		{name: "namespace", from: fieldRef("metadata.namespace"), want: "team"},
		{name: "uid", from: fieldRef("metadata.uid"), want: "u-1"},
		{name: "one label", from: fieldRef("metadata.labels['a/b']"), want: `quo"te`},
		{name: "missing label", from: fieldRef("metadata.labels['no']"), want: ""},
		{name: "one annotation", from: fieldRef("metadata.annotations['note']"), want: "für\nalle"},
		{name: "all labels", from: fieldRef("metadata.labels"), want: "a/b=\"quo\\\"te\"\napp=\"fleet\""},
		{name: "node", from: fieldRef("spec.nodeName"), want: "n1"},
		{name: "account", from: fieldRef("spec.serviceAccountName"), want: "robot"},
		{name: "pod IP", from: fieldRef("status.podIP"), want: "10.0.0.1"},
		{name: "pod IPs", from: fieldRef("status.podIPs"), want: "10.0.0.1,fd00::1"},
		{name: "host IP", from: fieldRef("status.hostIP"), want: "192.168.0.1"},
		{name: "host IPs", from: fieldRef("status.hostIPs"), want: "192.168.0.1"},
		{name: "unknown field", from: fieldRef("spec.hostname"), err: "unsupported fieldPath: spec.hostname"},
		{name: "unknown subscript", from: fieldRef("metadata.name['x']"), err: `fieldPath "metadata.name['x']" does not support subscript`},
		{name: "cpu request rounds up", from: resourceRef("", "requests.cpu", "1"), want: "1"},
		{name: "cpu request in thousandths", from: resourceRef("", "requests.cpu", "1m"), want: "150"},
		{name: "unset cpu limit is the node's", from: resourceRef("", "limits.cpu", ""), want: "4"},
		{name: "memory limit", from: resourceRef("", "limits.memory", ""), want: "104857600"},
		{name: "memory limit in MiB", from: resourceRef("", "limits.memory", "1Mi"), want: "100"},
		{name: "unset memory request", from: resourceRef("", "requests.memory", ""), want: "0"},
		{name: "another container's", from: resourceRef("first", "limits.cpu", "1m"), want: "1500"},
		{name: "unset huge pages", from: resourceRef("", "limits.hugepages-2Mi", ""), want: "0"},
		{name: "no such container", from: resourceRef("gone", "limits.cpu", ""), err: "container gone not found"},
		{name: "no such resource", from: resourceRef("", "limits.color", ""), err: "unsupported container resource : color"},
		{name: "config map key", from: cm("conf", "host", nil), want: "db"},
		{name: "config map without the key", from: cm("conf", "port", nil), err: "couldn't find key port in ConfigMap team/conf"},
		{name: "config map without the optional key", from: cm("conf", "port", &yes), want: unset},
		{name: "no config map", from: cm("gone", "port", nil), err: `configmap "gone" not found`},
		{name: "no optional config map", from: cm("gone", "port", &yes), want: unset},
		{name: "secret key", from: secret("pass", "word", nil), want: "geheim\xff"},
		{name: "secret without the key", from: secret("pass", "port", nil), err: "couldn't find key port in Secret team/pass"},
		{name: "no secret", from: secret("gone", "port", nil), err: `secret "gone" not found`},
		{name: "no source at all", from: &corev1.EnvVarSource{}, err: "environment variable has a source that this node does not support"},
	}
	o := objects{
		configMaps: map[string]map[string]string{"conf": {"host": "db"}},
		secrets:    map[string]map[string][]byte{"pass": {"word": []byte("geheim\xff")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			container := &corev1.Container{
				Name:    "main",
				EnvFrom: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("conf")}}},
				Env:     []corev1.EnvVar{{Name: "EARLY", Value: "early"}, {Name: "X", Value: test.text, ValueFrom: test.from}},
			}
			vars, err := Build(t.Context(), testPod(), container, []string{"10.0.0.1", "fd00::1"}, []string{"192.168.0.1"}, o)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, ok := Lookup(vars)("X")
			if !ok {
				got = unset
			}
			if got != test.want {
				t.Errorf("X is %q, want %q", got, test.want)
			}
		})
	}
}

func TestBuildPrecedence(t *testing.T) {
	yes := true
	pod := testPod()
	pod.Spec.EnableServiceLinks = nil
	o := objects{
		configMaps: map[string]map[string]string{"one": {"A": "one", "B": "one", "C": "one"}, "two": {"B": "two", "C": "two"}},
		secrets:    map[string]map[string][]byte{"s": {"D": []byte("secret")}},
		services:   []*corev1.Service{service("team", "c", "10.96.0.7", corev1.ServicePort{Port: 80})},
	}
	container := &corev1.Container{
		Name: "main",
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("one")}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("two")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("gone"), Optional: &yes}},
		},
		Env: []corev1.EnvVar{
			{Name: "C", Value: "env after $(C)"},
			{Name: "C_SERVICE_HOST", Value: "mine"},
			{Name: "URL", Value: "$(C_PORT)"},
			{Name: "LATE", Value: "$(LATER)"},
			{Name: "LATER", Value: "x"},
		},
	}
	vars, err := Build(t.Context(), pod, container, nil, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	want := []Var{
		{"A", "one"}, {"B", "two"}, {"C", "env after two"},
		{"C_PORT", "tcp://10.96.0.7:80"}, {"C_PORT_80_TCP", "tcp://10.96.0.7:80"}, {"C_PORT_80_TCP_ADDR", "10.96.0.7"},
		{"C_PORT_80_TCP_PORT", "80"}, {"C_PORT_80_TCP_PROTO", "tcp"}, {"C_SERVICE_HOST", "mine"}, {"C_SERVICE_PORT", "80"},
		{"D", "secret"}, {"LATE", "$(LATER)"}, {"LATER", "x"}, {"URL", "tcp://10.96.0.7:80"},
	}
	if diff := cmp.Diff(want, vars); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	container.EnvFrom[3].SecretRef.Optional = nil
	if _, err := Build(t.Context(), pod, container, nil, nil, o); err == nil || !strings.Contains(err.Error(), `"gone" not found`) {
		t.Errorf("a missing secret that isn't optional gives %v", err)
	}
}

func TestServiceVars(t *testing.T) {
	services := []*corev1.Service{
		service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443}),
		service("default", "other", "10.96.0.2", corev1.ServicePort{Port: 1}),
		service("team", "my-db", "fd00::5", corev1.ServicePort{Name: "sql-in", Port: 5432}, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}),
		service("team", "headless", corev1.ClusterIPNone, corev1.ServicePort{Port: 1}),
		service("team", "external", "", corev1.ServicePort{Port: 1}),
		service("team", "portless", "10.96.0.9"),
	}
	without := serviceVars(services, "team", false)
	want := map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
		"KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
	}
	if diff := cmp.Diff(want, without); diff != "" {
		t.Errorf("without links only the API server (-want +got):\n%s", diff)
	}
	for name, value := range map[string]string{
		"MY_DB_SERVICE_HOST": "fd00::5", "MY_DB_SERVICE_PORT": "5432", "MY_DB_SERVICE_PORT_SQL_IN": "5432", "MY_DB_SERVICE_PORT_DNS": "53",
		"MY_DB_PORT": "tcp://[fd00::5]:5432", "MY_DB_PORT_5432_TCP": "tcp://[fd00::5]:5432", "MY_DB_PORT_5432_TCP_PROTO": "tcp",
		"MY_DB_PORT_5432_TCP_PORT": "5432", "MY_DB_PORT_5432_TCP_ADDR": "fd00::5", "MY_DB_PORT_53_UDP": "udp://[fd00::5]:53",
		"MY_DB_PORT_53_UDP_PROTO": "udp", "MY_DB_PORT_53_UDP_PORT": "53", "MY_DB_PORT_53_UDP_ADDR": "fd00::5",
	} {
		want[name] = value
	}
	if diff := cmp.Diff(want, serviceVars(services, "team", true)); diff != "" {
		t.Errorf("with links (-want +got):\n%s", diff)
	}
	services = append(services, service("team", "kubernetes", "10.96.0.66", corev1.ServicePort{Port: 1}))
	got := serviceVars(services, "team", true)
	if got["KUBERNETES_SERVICE_HOST"] != "10.96.0.66" || got["KUBERNETES_PORT_443_TCP"] != "" {
		t.Errorf("a namespace's own service kubernetes doesn't replace the API server's variables: %v", got)
	}
}
