package hostport

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestHostPortConflicts(t *testing.T) {
	tests := []struct {
		name          string
		taken, wanted Port
		conflict      bool
	}{
		{"same address", Port{"TCP", "10.0.0.1", 80}, Port{"TCP", "10.0.0.1", 80}, true},
		{"other address", Port{"TCP", "10.0.0.1", 80}, Port{"TCP", "10.0.0.2", 80}, false},
		{"taken on all", Port{"TCP", "0.0.0.0", 80}, Port{"TCP", "10.0.0.2", 80}, true},
		{"wanted on all", Port{"TCP", "10.0.0.1", 80}, Port{"TCP", "0.0.0.0", 80}, true},
		{"other protocol", Port{"UDP", "0.0.0.0", 80}, Port{"TCP", "0.0.0.0", 80}, false},
		{"other port", Port{"TCP", "0.0.0.0", 80}, Port{"TCP", "0.0.0.0", 81}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var ports Held
			ports.Add(test.taken)
			ports.Add(test.taken)
			if got := ports.Conflicts(test.wanted); got != test.conflict {
				t.Errorf("conflict is %v, want %v", got, test.conflict)
			}
			ports.Remove(test.taken)
			if got := ports.Conflicts(test.wanted); got != test.conflict {
				t.Errorf("with one holder left, conflict is %v, want %v", got, test.conflict)
			}
			ports.Remove(test.taken)
			if ports.Conflicts(test.wanted) {
				t.Error("a port that nobody holds conflicts")
			}
		})
	}
}

func TestHostPortsOfAPod(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	port := func(number int32, ip string) corev1.Container {
		return corev1.Container{Ports: []corev1.ContainerPort{{HostPort: number, HostIP: ip}, {ContainerPort: 9}}}
	}
	sidecar := port(3, "")
	sidecar.RestartPolicy = &always
	got := Of(&corev1.PodSpec{
		Containers:     []corev1.Container{port(1, "")},
		InitContainers: []corev1.Container{port(2, ""), sidecar, port(0, "")},
	})
	want := []Port{{"TCP", "0.0.0.0", 1}, {"TCP", "0.0.0.0", 3}}
	if !slices.Equal(got, want) {
		t.Errorf("host ports are %v, want %v: a plain init container's port does not count", got, want)
	}
}
