package health

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// TestOracle: after any mix of signs, silence, joins and leaves, the nodes' conditions and
// taints are those that follow from the times of their last signs, and nobody is evicted
// while no node anywhere is healthy.
func TestOracle(t *testing.T) {
	names := []string{"n1", "n2", "n3", "n4", "n5"}
	rapid.Check(t, func(rt *rapid.T) {
		s := &script{t: t, now: epoch, nodes: map[string]*corev1.Node{}, Tracker: New(Config{})}
		seen := map[string]time.Time{}
		posted := map[string]corev1.ConditionStatus{} // as long as it never fell silent since
		disrupted := false
		// settle carries out the plans and follows the one event that resets all times.
		settle := func() {
			s.act()
			for name := range s.nodes {
				if s.now.Sub(seen[name]) >= 40*time.Second {
					delete(posted, name)
				}
			}
			now := len(s.nodes) > 0
			for _, node := range s.nodes {
				now = now && readyStatus(node) != corev1.ConditionTrue
			}
			if disrupted && !now {
				for name := range seen {
					seen[name] = s.now
				}
			}
			disrupted = now
		}
		rt.Repeat(map[string]func(*rapid.T){
			"post": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "name")
				ready := rapid.SampledFrom([]string{"True", "True", "False"}).Draw(rt, "ready")
				zone := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "zone")
				s.change(name, map[string][]string{"Ready": {ready}, "zone": {zone}}, true)
				seen[name] = s.now
				posted[name] = corev1.ConditionStatus(ready)
				settle()
			},
			"renew": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "name")
				s.Renew(name, s.now, s.now)
				if _, known := s.nodes[name]; known {
					seen[name] = s.now
				}
				settle()
			},
			"leave": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "name")
				delete(s.nodes, name)
				delete(seen, name)
				delete(posted, name)
				s.Forget(name)
				settle()
			},
			"wait": func(rt *rapid.T) {
				end := s.now.Add(time.Duration(rapid.IntRange(1, 50).Draw(rt, "seconds")) * time.Second)
				for {
					next, ok := s.NextTick()
					if !ok || next.After(end) {
						break
					}
					s.now = next
					s.Tick(s.now)
					settle()
				}
				s.now = end
			},
			"": func(rt *rapid.T) {
				for name, node := range s.nodes {
					checkNode(rt, s, name, node, s.now.Sub(seen[name]) >= 40*time.Second, disrupted)
					if want, ok := posted[name]; ok && readyStatus(node) != want {
						rt.Fatalf("%s posted Ready=%s, was never silent and is Ready=%s", name, want, readyStatus(node))
					}
				}
				if s.graces.Len() > len(s.nodes) {
					rt.Fatalf("%d timers for %d nodes", s.graces.Len(), len(s.nodes))
				}
			},
		})
	})
}

func checkNode(t *rapid.T, s *script, name string, node *corev1.Node, silent, disrupted bool) {
	ready := readyStatus(node)
	if silent && ready != corev1.ConditionUnknown {
		t.Fatalf("%s has been silent for 40 s and is still Ready=%s", name, ready)
	}
	var got []string
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			if disrupted {
				t.Fatalf("%s is evicted from while nobody is healthy", name)
			}
			if ready == corev1.ConditionTrue {
				t.Fatalf("%s is evicted from though it is ready", name)
			}
			continue
		}
		got = append(got, taint.Key)
	}
	var want []string
	switch ready {
	case corev1.ConditionFalse:
		want = []string{corev1.TaintNodeNotReady}
	case corev1.ConditionUnknown:
		want = []string{corev1.TaintNodeUnreachable}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s is Ready=%s and has the NoSchedule taints %v, want %v", name, ready, got, want)
	}
	if plan, _ := s.Plan(name, s.now); !plan.Empty() {
		t.Fatalf("%s: something was left undone: %s", name, fmt.Sprint(plan.Conditions, plan.Taints))
	}
}

// BenchmarkRenew shows that a lease renewal costs the same however many nodes there are.
func BenchmarkRenew(b *testing.B) {
	for _, size := range []int{100, 10000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := &script{now: epoch, nodes: map[string]*corev1.Node{}, Tracker: New(Config{})}
			names := make([]string, size)
			for i := range names {
				names[i] = fmt.Sprintf("n%d", i)
				s.change(names[i], map[string][]string{"Ready": {"True"}}, true)
			}
			s.Ready(s.now)
			b.ResetTimer()
			for i := range b.N {
				now := epoch.Add(time.Duration(i) * time.Millisecond)
				s.Renew(names[i%size], now, now)
				if i%1000 == 0 {
					s.Tick(now)
				}
			}
		})
	}
}
