package podadmission

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// A pod waits for those that leave where it needs what they have, and only a critical one ends others.
func TestDecide(t *testing.T) {
	widget := corev1.ResourceName("example.com/widget")
	node := Node{
		Object:   &corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("2", "1Gi")}},
		Provides: func(name corev1.ResourceName) bool { return name == widget },
	}
	pod := func(name, cpu string, change ...func(*Pod)) Pod {
		p := Pod{Object: boxPod()}
		p.Object.Name, p.Object.UID = name, types.UID(name)
		p.Object.Spec.Containers[0].Resources.Requests = amounts(cpu, "1Mi")
		for _, c := range change {
			c(&p)
		}
		return p
	}
	static := func(p *Pod) { p.Static = true }
	gone := func(p *Pod) { p.Gone = true }
	devices := func(p *Pod) { p.Object.Spec.Containers[0].Resources.Requests[widget] = resource.MustParse("1") }
	pressed := func(p *Pod) { p.Object.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }
	for name, c := range map[string]struct {
		pod              Pod
		others           []Pod
		pressures        []corev1.NodeConditionType
		reason           string
		victims, leaving []string
	}{
		"room":                        {pod: pod("a", "1"), others: []Pod{pod("b", "1")}},
		"no room":                     {pod: pod("a", "1"), others: []Pod{pod("b", "1500m")}, reason: "OutOfcpu"},
		"room once one has left":      {pod: pod("a", "1"), others: []Pod{pod("b", "1500m", gone)}, leaving: []string{"b"}},
		"room beside one that leaves": {pod: pod("a", "1"), others: []Pod{pod("b", "1", gone)}},
		"its devices": {pod: pod("a", "1", devices), others: []Pod{pod("b", "1m", gone, devices), pod("c", "1m", gone)},
			leaving: []string{"b"}},
		"critical":           {pod: pod("a", "1", static), others: []Pod{pod("b", "1500m")}, victims: []string{"b"}},
		"critical in vain":   {pod: pod("a", "3", static), others: []Pod{pod("b", "1500m")}, reason: "OutOfcpu"},
		"critical both":      {pod: pod("a", "1", static), others: []Pod{pod("b", "1500m", static)}, reason: "OutOfcpu"},
		"under pressure":     {pod: pod("a", "1", pressed), pressures: []corev1.NodeConditionType{corev1.NodeMemoryPressure}, reason: "Evicted"},
		"static in pressure": {pod: pod("a", "1", pressed, static), pressures: []corev1.NodeConditionType{corev1.NodeMemoryPressure}},
	} {
		n := node
		n.Pressures = c.pressures
		given, why := Decide(c.pod, n, c.others)
		if why == nil {
			why = &Refusal{}
		}
		if why.Reason != c.reason || !slices.Equal(names(given.Victims), c.victims) || !slices.Equal(names(given.Leaving), c.leaving) {
			t.Errorf("%s: refused for %q, victims %v, leaving %v; want %+v", name, why.Reason, names(given.Victims), names(given.Leaving), c)
		}
	}
}

func names(pods []*corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
