package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// script is a tracker with a cluster that carries out its plans.
type script struct {
	t     *testing.T
	now   time.Time
	nodes map[string]*corev1.Node
	*Tracker
}

// TestScripts runs testdata/*. Verbs:
//
//	node NAME... [zone=Z] [COND=STATUS ...] [unschedulable] [taint=KEY:EFFECT]  make or change nodes
//	renew NAME...           the nodes' leases are renewed
//	post NAME... [COND=STATUS ...]   the nodes post their status
//	delete NAME...
//	after DURATION          time passes; everything planned meanwhile is carried out, in order
//	pod NAME                a pod of the node is seen to be ready
//
// A time is printed as seconds since the start.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t, now: epoch, nodes: map[string]*corev1.Node{}, Tracker: New(Config{})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(d)
		})
	})
}

func (s *script) run(d *datadriven.TestData) string {
	var names []string
	set := map[string][]string{}
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 && arg.Key != "unschedulable" {
			names = append(names, expand(arg.Key)...)
		} else {
			set[arg.Key] = append(set[arg.Key], arg.Vals...)
		}
	}
	var out []string
	switch d.Cmd {
	case "after":
		pause, err := time.ParseDuration(names[0])
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		return s.pass(s.now.Add(pause))
	case "node", "post":
		for _, name := range names {
			s.change(name, set, d.Cmd == "post")
		}
	case "renew":
		for _, name := range names {
			s.Renew(name, s.now, s.now)
		}
	case "delete":
		for _, name := range names {
			delete(s.nodes, name)
			s.Forget(name)
		}
	case "pod":
		s.PodReady(names[0])
	default:
		d.Fatalf(s.t, "unknown verb %q", d.Cmd)
	}
	out = append(out, s.act()...)
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

// expand turns n1-3 into n1 n2 n3.
func expand(s string) []string {
	var prefix string
	var from, to int
	if i := strings.IndexAny(s, "0123456789"); i > 0 {
		prefix = s[:i]
		if n, _ := fmt.Sscanf(s[i:], "%d-%d", &from, &to); n == 2 {
			var names []string
			for k := from; k <= to; k++ {
				names = append(names, fmt.Sprintf("%s%d", prefix, k))
			}
			return names
		}
	}
	return []string{s}
}

func (s *script) change(name string, set map[string][]string, heartbeat bool) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(s.now), Labels: map[string]string{}}}
	if old := s.nodes[name]; old != nil {
		node = old.DeepCopy()
	}
	for key, values := range set {
		value := strings.Join(values, "")
		switch key {
		case "zone":
			node.Labels[corev1.LabelTopologyZone] = value
		case "unschedulable":
			node.Spec.Unschedulable = value != "false"
		case "taint":
			for _, v := range values {
				k, effect, _ := strings.Cut(v, ":")
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffect(effect)})
			}
		default:
			setCondition(node, corev1.NodeCondition{Type: corev1.NodeConditionType(key), Status: corev1.ConditionStatus(value)})
		}
	}
	if ready := condition(node, corev1.NodeReady); heartbeat && ready != nil {
		ready.LastHeartbeatTime = metav1.NewTime(s.now)
	}
	s.nodes[name] = node
	s.Observe(node, s.now)
}

func setCondition(node *corev1.Node, c corev1.NodeCondition) {
	if have := condition(node, c.Type); have != nil {
		*have = c
		return
	}
	node.Status.Conditions = append(node.Status.Conditions, c)
}

// pass lets time go on until end, waking the tracker only when it asks for it.
func (s *script) pass(end time.Time) string {
	var out []string
	for range 10000 {
		next, ok := s.NextTick()
		if !ok || next.After(end) {
			s.now = end
			s.Tick(end)
			if late := s.act(); len(late) > 0 {
				s.t.Fatalf("at %s there was work that NextTick did not tell of: %v", end.Sub(epoch), late)
			}
			if len(out) == 0 {
				return "nothing"
			}
			return strings.Join(out, "\n")
		}
		if next.After(s.now) {
			s.now = next
		}
		s.Tick(s.now)
		out = append(out, s.act()...)
	}
	s.t.Fatal("time does not pass")
	return ""
}

// act carries out all plans until there are none and describes them.
func (s *script) act() []string {
	var out []string
	for range 100 {
		names := s.Ready(s.now)
		if len(names) == 0 {
			return out
		}
		for _, name := range names {
			plan, _ := s.Plan(name, s.now)
			out = append(out, fmt.Sprintf("%3.0fs %s:%s", s.now.Sub(epoch).Seconds(), name, s.carryOut(plan)))
		}
	}
	s.t.Fatal("plans never end")
	return nil
}

func (s *script) carryOut(plan Plan) string {
	var b strings.Builder
	node := plan.Node.DeepCopy()
	for _, c := range plan.Conditions {
		setCondition(node, c)
		fmt.Fprintf(&b, " %s=%s", c.Type, c.Status)
	}
	if len(plan.Conditions) > 0 {
		fmt.Fprintf(&b, " (%s)", plan.Conditions[0].Reason)
	}
	if plan.BecameUnknown() {
		b.WriteString(" event")
	}
	if plan.TaintsChanged {
		node.Spec.Taints = plan.Taints
		var taints []string
		for _, t := range plan.Taints {
			taints = append(taints, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
		}
		fmt.Fprintf(&b, " taints=%s", slices.Clone(taints))
	}
	if plan.MarkPods {
		b.WriteString(" pods-not-ready")
		s.PodsMarked(node.Name)
	}
	s.nodes[node.Name] = node
	s.Observe(node, s.now)
	return b.String()
}
