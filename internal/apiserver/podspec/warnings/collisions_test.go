package warnings

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What is said of few files and ports is what comparing each with all before it says.
func TestCollisionsAreThoseOfAllPairs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 5000 {
		files := make([]file, random.IntN(8))
		for i := range files {
			files[i].path = pick("a", "a/", "a-", "a-/b", "a/b", "a/b/c", "a/bc", "b", "", "c/d")
		}
		var want []string
		for i, f := range files {
			for _, earlier := range files[:i] {
				a, b := strings.TrimRight(f.path, "/"), strings.TrimRight(earlier.path, "/")
				if a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") {
					want = append(want, fmt.Sprintf("v: overlapping paths: %s with %s", f, earlier))
				}
			}
		}
		if got := collisions("v", files); !slices.Equal(got, want) {
			t.Fatalf("%v: %q, want %q", files, got, want)
		}
	}
	for range 5000 {
		c := &corev1.Container{Ports: make([]corev1.ContainerPort, random.IntN(8))}
		for i := range c.Ports {
			c.Ports[i] = corev1.ContainerPort{ContainerPort: int32(random.IntN(2)), HostPort: int32(random.IntN(3)),
				HostIP: pick("", "10.0.0.1", "10.0.0.2")}
		}
		var want []string
		for i, p := range c.Ports {
			if p.HostIP != "" && p.HostPort == 0 {
				want = append(want, fmt.Sprintf("c.ports[%d]: hostIP set without hostPort: %+v", i, p))
			}
			for j, o := range c.Ports[:i] {
				how := ""
				switch {
				case p.ContainerPort != o.ContainerPort:
				case p.HostIP == o.HostIP && p.HostPort == o.HostPort:
					how = "duplicate"
				case p.HostPort == 0 || o.HostPort == 0:
					how = "overlapping"
				case p.HostPort == o.HostPort && (p.HostIP == "" || o.HostIP == ""):
					how = "dangerously ambiguous"
				}
				if how != "" {
					want = append(want, fmt.Sprintf("c.ports[%d]: %s port definition with c.ports[%d]", i, how, j))
				}
			}
		}
		if got := portWarnings([]located{{c, field.NewPath("c")}}); !slices.Equal(got, want) {
			t.Fatalf("%v: %q, want %q", c.Ports, got, want)
		}
	}
}

// A request of some hundred kilobytes must not become gigabytes of warnings.
func TestCollisionsAreSaidOfSome(t *testing.T) {
	const n = 100_000
	files, c := make([]file, n), &corev1.Container{Ports: make([]corev1.ContainerPort, n)}
	for i := range n {
		files[i].path = "a"
		c.Ports[i] = corev1.ContainerPort{ContainerPort: 80, HostPort: int32(i + 1)}
	}
	if got := len(collisions("v", files)); got != maxCollisions {
		t.Errorf("%d warnings of files, want %d", got, maxCollisions)
	}
	if got := portWarnings([]located{{c, field.NewPath("c")}}); len(got) > 0 {
		t.Errorf("%d warnings of host ports of which each is there once", len(got))
	}
	for i := range n {
		c.Ports[i].HostPort, c.Ports[i].HostIP = 1, ""
	}
	if got := len(portWarnings([]located{{c, field.NewPath("c")}})); got != maxCollisions {
		t.Errorf("%d warnings of ports, want %d", got, maxCollisions)
	}
}
