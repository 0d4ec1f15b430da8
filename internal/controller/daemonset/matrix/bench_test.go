package matrix

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// fleet is a settled DaemonSet on n nodes.
func fleet(n int) (*Matrix, []fact.Pod) {
	m := New(row.Config{StatusInterval: time.Hour})
	m.Step(fact.Now{Time: noon})
	for i := range n {
		m.Step(fleetNode(i))
	}
	m.Step(fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a",
		Placement: placement.Compile(&corev1.PodSpec{NodeSelector: map[string]string{"os": "linux"}}), Strategy: rollingUpdate("10%", "0")})
	pods := make([]fact.Pod, n)
	for i := range pods {
		pods[i] = fact.Pod{UID: types.UID(fmt.Sprintf("pod-%d", i)), Name: fmt.Sprintf("logs-%d", i), Owner: "logs",
			Node: fleetNode(i).Name, Bound: true, Revision: "a", Ready: true, ReadySince: noon, Created: noon}
		m.Step(pods[i])
	}
	for _, a := range m.Ready() {
		m.Step(action.Answer{Action: a, Outcome: action.OK})
	}
	return m, pods
}

func fleetNode(i int) fact.Node {
	return fact.Node{Name: fmt.Sprintf("node-%05d", i), Labels: map[string]string{"os": "linux", "zone": "a", "arch": "amd64"}}
}

var fleetSizes = []int{100, 1000, 10000}

// A pod turns unready and ready again: the work must not grow with the fleet.
func BenchmarkPodEvent(b *testing.B) {
	for _, n := range fleetSizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m, pods := fleet(n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p := &pods[i%n]
				p.Ready = !p.Ready
				m.Step(*p)
				m.Ready()
			}
		})
	}
}

// A heartbeat tells what is known already.
func BenchmarkHeartbeat(b *testing.B) {
	for _, n := range fleetSizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m, _ := fleet(n)
			nodes := make([]fact.Node, n)
			for i := range nodes {
				nodes[i] = fleetNode(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Step(nodes[i%n])
				m.Ready()
			}
		})
	}
}

// An audit at once, and the slice of one that takes longest: it is what an event waits for.
func BenchmarkAudit(b *testing.B) {
	for _, n := range []int{1000, 10000, 50000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m, _ := fleet(n)
			longest := time.Duration(0)
			for b.Loop() {
				for done := false; !done; {
					var found []string
					start := time.Now()
					found, done = m.AuditSlice(500)
					if longest = max(longest, time.Since(start)); len(found) > 0 {
						b.Fatal(found)
					}
				}
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-slice-ms")
		})
	}
}

// A whole rolling update, by pod: deletion, disappearance, creation, readiness.
func BenchmarkRolloutPerPod(b *testing.B) {
	for _, n := range fleetSizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m, _ := fleet(n)
			info := *m.rows["logs"].Info()
			made := 0
			for b.Loop() {
				info.Generation++
				info.Revision = fmt.Sprint("rev-", info.Generation)
				m.Step(info)
				made = rollOut(b, m, made)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/pod")
		})
	}
}

// rollOut obeys until there is nothing left to do.
func rollOut(b *testing.B, m *Matrix, made int) int {
	for actions := m.Ready(); len(actions) > 0; actions = m.Ready() {
		for _, a := range actions {
			switch a := a.(type) {
			case *action.DeletePod:
				m.Step(fact.PodGone(a.PodUID))
			case *action.CreatePod:
				made++
				uid := types.UID(fmt.Sprintf("new-%d", made))
				m.Step(action.Answer{Action: a, Pod: uid})
				m.Step(fact.Pod{UID: uid, Name: a.PodName, Owner: a.UID, Node: a.Node,
					Bound: true, Revision: a.Revision, Ready: true, ReadySince: noon, Created: noon})
			}
			if _, made := a.(*action.CreatePod); !made {
				m.Step(action.Answer{Action: a, Outcome: action.OK})
			}
		}
	}
	if st := m.rows["logs"].Status(); st.Updated != st.Desired || st.Available != st.Desired {
		b.Fatalf("the rollout stopped at %v", st)
	}
	return made
}
