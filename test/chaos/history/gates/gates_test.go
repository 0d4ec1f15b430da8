package gates

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history"
)

// tell makes a history of lines, one of each revision from 1: "node N closed", "node N open", "node N gone",
// "pod P on N", "pod P waits", "pod P gone", "NAME on N ready", "NAME on N there", "NAME on N gone" for the daemon of a
// DaemonSet, and "-" for what concerns nobody. A word "tolerates" at the end has the pod tolerate the gate.
func tell(lines ...string) (out []Write) {
	lives := map[string]int{}
	for i, line := range lines {
		revision := int64(i + 1)
		words := strings.Fields(line)
		last := words[len(words)-1]
		switch {
		case line == "-":
			continue
		case words[0] == "node":
			n := &Node{Name: words[1], UID: types.UID(fmt.Sprint(words[1], lives[words[1]])), Closed: last == "closed"}
			if last == "gone" {
				lives[words[1]]++
			}
			out = append(out, Write{Revision: revision, Node: n, Gone: last == "gone"})
		case words[0] == "pod":
			p := &Pod{Name: words[1], UID: types.UID(words[1]), Tolerates: last == "tolerates"}
			if words[2] == "on" {
				p.Node = words[3]
			}
			out = append(out, Write{Revision: revision, Pod: p, Gone: last == "gone"})
		default:
			p := &Pod{Name: words[0] + "-" + words[2], UID: types.UID(words[0] + words[2]), Node: words[2], Daemon: "default/" + words[0]}
			p.Ready, p.Tolerates = slices.Contains(words, "ready"), last != "plain"
			out = append(out, Write{Revision: revision, Pod: p, Gone: last == "gone"})
		}
	}
	return out
}

func TestEarly(t *testing.T) {
	for name, c := range map[string]struct {
		want  string // in the only fault; "" for none
		tried int
		lines []string
	}{
		"after it opened":          {"", 1, []string{"pod p waits", "node a closed", "node a open", "pod p on a"}},
		"before":                   {"at revision 3: pod p is bound to a, which is closed", 1, []string{"pod p waits", "node a closed", "pod p on a", "node a open"}},
		"before the second group":  {"at revision 4: pod p is bound to a", 1, []string{"pod p waits", "node a closed", "node a closed", "pod p on a", "node a open"}},
		"it is told of once":       {"at revision 3", 1, []string{"pod p waits", "node a closed", "pod p on a", "pod p on a"}},
		"of another node":          {"", 0, []string{"pod p waits", "node a closed", "node b open", "pod p on b"}},
		"a node without a gate":    {"", 0, []string{"pod p waits", "node a open", "pod p on a"}},
		"it tolerates the gate":    {"", 0, []string{"pod p waits tolerates", "node a closed", "pod p on a tolerates"}},
		"its author names it":      {"", 1, []string{"node a closed", "pod p on a"}},
		"a daemon that waits":      {"", 0, []string{"node a closed", "cni on a there"}},
		"a daemon of no group":     {"pod other-a is bound to a", 1, []string{"node a closed", "other on a there plain"}},
		"made again":               {"at revision 6: pod p is bound to a", 1, []string{"pod p waits", "node a closed", "node a open", "node a gone", "node a closed", "pod p on a"}},
		"made again and open":      {"", 1, []string{"pod p waits", "node a closed", "node a open", "node a gone", "node a closed", "node a open", "pod p on a"}},
		"closed by its machine":    {"", 1, []string{"pod p waits", "node a closed", "node a open", "node a closed", "pod p on a"}},
		"a pod of that name again": {"at revision 5", 1, []string{"node a closed", "pod p waits", "pod p gone", "pod p waits", "pod p on a"}},
		"a node that nobody knows": {"", 0, []string{"pod p waits", "pod p on a"}},
	} {
		writes := tell(c.lines...)
		got := Early(writes)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), c.want)) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
		if n := Tried(writes); n != c.tried {
			t.Errorf("%s: %d were tried, want %d", name, n, c.tried)
		}
	}
}

// seen are moments at which each revision is seen, a second apart.
func seen(n int) (out []Moment) {
	for i := range n {
		out = append(out, Moment{int64(i + 1), time.Duration(i+1) * time.Second})
	}
	return out
}

func TestOpening(t *testing.T) {
	both := []string{"default/cni", "default/logs"}
	for name, c := range map[string]struct {
		want    string // in the only fault
		waits   string
		served  string
		outages []Outage
		lines   []string
	}{
		"one after the other": {"", "[2s]", "[2s]", nil, []string{
			"node a closed", "cni on a there", "cni on a ready", "node a closed", "logs on a ready", "-", "node a open"}},
		"the longest is last": {"", "[1s 3s]", "[1s 3s]", nil, []string{
			"node a closed", "node b closed", "cni on a ready", "cni on b ready", "logs on a ready", "logs on b ready", "node b open", "node a open"}},
		"one stays": {"at revision 4: node b stays closed, and all its daemons are available", "[2s]", "[2s]", nil, []string{
			"node a closed", "node b closed", "cni on b ready", "logs on b ready", "cni on a ready", "logs on a ready", "-", "node a open"}},
		"one waits":             {"node a stays closed, and default/logs is not available there", "[]", "[]", nil, []string{"node a closed", "cni on a ready", "logs on a there"}},
		"one is opened without": {"at revision 3: node a opens, and default/logs is not available there", "[]", "[]", nil, []string{"node a closed", "cni on a ready", "node a open"}},
		"one falls over": {"at revision 5: node a opens, and default/cni is not available there", "[]", "[]", nil, []string{
			"node a closed", "cni on a ready", "logs on a ready", "cni on a there", "node a open"}},
		"one falls over and is back": {"", "[1s]", "[1s]", nil, []string{
			"node a closed", "cni on a ready", "logs on a ready", "cni on a there", "cni on a ready", "node a open"}},
		"one says so again": {"", "[2s]", "[2s]", nil, []string{
			"node a closed", "cni on a ready", "logs on a ready", "cni on a ready", "node a open"}},
		"one is removed": {"node a opens, and default/cni", "[]", "[]", nil, []string{
			"node a closed", "cni on a ready", "logs on a ready", "cni on a ready gone", "node a open"}},
		"created open": {"at revision 1: node a is created without its gate", "[]", "[]", nil, []string{"node a open"}},
		"closed again": {"at revision 5: node a is closed again", "[1s]", "[1s]", nil, []string{
			"node a closed", "cni on a ready", "logs on a ready", "node a open", "node a closed"}},
		"gone": {"at revision 2: node a is gone", "[]", "[]", nil, []string{"node a closed", "node a gone"}},
		"others do not count": {"", "[2s]", "[2s]", nil, []string{
			"node a closed", "cni on a ready", "logs on a ready", "other on a there", "node a open"}},
		"no server meanwhile": {"", "[7s]", "[3s]", []Outage{{0, 2 * time.Second}, {4 * time.Second, 6 * time.Second}, {8 * time.Second, 20 * time.Second}}, []string{
			"node a closed", "cni on a ready", "logs on a ready", "-", "-", "-", "-", "-", "-", "node a open"}},
	} {
		got := Judge(History{Writes: tell(c.lines...), Moments: seen(len(c.lines)), Outages: c.outages, Daemons: both})
		text := fmt.Sprint(got.Faults)
		if c.want == "" && len(got.Faults) > 0 || c.want != "" && !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %q", name, text, c.want)
		}
		if fmt.Sprint(got.Waits) != c.waits || fmt.Sprint(got.Served) != c.served {
			t.Errorf("%s: they wait for %v, of it served %v; want %s, %s", name, got.Waits, got.Served, c.waits, c.served)
		}
	}
}

func TestHowManyThereWere(t *testing.T) {
	got := Judge(History{Writes: tell("pod p waits", "pod q waits", "node a closed", "cni on a ready", "node a open", "node b closed", "pod p on a", "pod p on a"),
		Moments: seen(8), Daemons: []string{"default/cni"}})
	if got.Nodes != 2 || got.Opened != 1 || got.Bound != 1 || got.Joining != 3*time.Second || got.All != 2*time.Second {
		t.Errorf("of %d nodes, which joined in %v, %d opened in %v, and %d pods were bound", got.Nodes, got.Joining, got.Opened, got.All, got.Bound)
	}
}

// What somebody saw later was there when somebody else saw what came after it.
func TestWhenARevisionWasThere(t *testing.T) {
	c := newClock([]Moment{{10, 5 * time.Second}, {5, 3 * time.Second}, {7, 9 * time.Second}, {12, 8 * time.Second}})
	for revision, want := range map[int64]time.Duration{1: 3 * time.Second, 5: 3 * time.Second, 6: 5 * time.Second, 7: 5 * time.Second,
		10: 5 * time.Second, 11: 8 * time.Second, 12: 8 * time.Second, 13: 8 * time.Second} {
		if got := c.of(revision); got != want {
			t.Errorf("revision %d was there at %v, want %v", revision, got, want)
		}
	}
	if got := newClock(nil).of(3); got != 0 {
		t.Errorf("without a moment it is %v", got)
	}
}

func TestOf100(t *testing.T) {
	var waits []time.Duration
	for i := range 200 {
		waits = append(waits, time.Duration(i+1))
	}
	for p, want := range map[int]time.Duration{50: 100, 99: 198, 100: 200} {
		if got := Of100(waits, p); got != want {
			t.Errorf("of %d in 100 it is %d, want %d", p, got, want)
		}
	}
	if Of100(nil, 99) != 0 || Of100(waits[:1], 50) != 1 {
		t.Error("of none it is not 0, or of one not that")
	}
}

func TestWhatAWriteSays(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	node.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}, {Key: taint, Effect: corev1.TaintEffectPreferNoSchedule}}
	if w, is := Of(7, node, true); !is || *w.Node != (Node{"a", "u", false}) || w.Revision != 7 || !w.Gone {
		t.Errorf("an open node is %+v", w)
	}
	node.Spec.Taints[1].Effect = corev1.TaintEffectNoSchedule
	if w, _ := Of(7, node, false); !w.Node.Closed || w.Gone {
		t.Errorf("a closed node is %+v", w)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "v"}}
	pod.Spec.NodeName = "a"
	pod.Spec.Tolerations = []corev1.Toleration{{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if w, is := Of(8, pod, false); !is || *w.Pod != (Pod{Name: "p", UID: "v", Node: "a"}) {
		t.Errorf("a pod is %+v", w.Pod)
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "cni", Controller: new(true)}}
	pod.Status.Conditions[0].Status = corev1.ConditionTrue
	if w, _ := Of(8, pod, false); *w.Pod != (Pod{"p", "v", "a", "n/cni", true, true}) {
		t.Errorf("a daemon is %+v", w.Pod)
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.DeletionTimestamp = &metav1.Time{}
	if w, _ := Of(8, pod, false); w.Pod.Ready || !w.Pod.Tolerates {
		t.Errorf("a daemon that goes is %+v", w.Pod)
	}
	if _, is := Of(9, &corev1.Secret{}, false); is {
		t.Error("a Secret says something")
	}
}

func TestCheck(t *testing.T) {
	pod := func(node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: node}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node.Spec.Taints = []corev1.Taint{{Key: taint, Effect: corev1.TaintEffectNoSchedule}}
	found, tried := Check(history.Record{Events: []history.Event{{Revision: 3, Object: pod("a")}, {Revision: 1, Object: pod("")},
		{Revision: 2, Object: node}, {Revision: 2, Object: &corev1.ConfigMap{}}}})
	if len(found) != 1 || found[0].Rule != Bound || found[0].Revision != 3 || found[0].Objects[0] != "p" || tried != 1 {
		t.Errorf("found %v of %d", found, tried)
	}
}
