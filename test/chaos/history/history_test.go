package history

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// surgesOn has a user take one of the two pods, old or new, of the first node out of
// the DaemonSet by its label, and the controller go on with the next node.
func surgesOn(out int) *story {
	s := began(surge(1))
	old := s.fleet()
	s.edit(template("t2"))
	b := s.pod("b1", "n1")
	s.put(b)
	taken := []*corev1.Pod{old[0], b}[out]
	delete(taken.Labels, wish.UserKey+"app")
	s.put(taken)
	s.wrote(taken)
	s.put(s.pod("b2", "n2"))
	return s
}

// TestHistories tells short histories, good and bad. Each bad one breaks one rule.
func TestHistories(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func() *story
		want string // the rule and a part of the message; "" for a good history
	}{
		{"a fleet comes up", func() *story { s := began(); s.fleet(); return s }, ""},
		{"a pod while there is one", func() *story {
			s := began()
			s.runs("a", "n1")
			s.put(s.pod("b", "n1"))
			return s
		}, Singles + ": pod b was created on node n1, where a "},
		{"a pod while the old one still terminates", func() *story {
			s := began()
			a := s.runs("a", "n1")
			s.edit(template("t2"))
			s.deleted(a)
			s.put(s.pod("b", "n1"))
			return s
		}, Singles + ": pod b was created on node n1, where a (template \"t1\", Running, terminating) still is"},
		{"a pod when the old one is gone", func() *story {
			s := began()
			a := s.runs("a", "n1")
			s.edit(template("t2"))
			s.deleted(a)
			s.gone(a)
			s.put(s.pod("b", "n1"))
			return s
		}, ""},
		{"a pod when the old one has ended and terminates", func() *story {
			s := began()
			a := s.runs("a", "n1")
			a.Status.Phase = corev1.PodFailed
			s.put(a)
			s.deleted(a)
			s.put(s.pod("b", "n1"))
			return s
		}, ""},
		{"a pod while a failed one is there", func() *story {
			s := began()
			a := s.runs("a", "n1")
			a.Status.Phase = corev1.PodFailed
			s.put(a)
			s.put(s.pod("b", "n1"))
			return s
		}, Singles},
		{"a pod of another DaemonSet is no twin", func() *story {
			s := began()
			s.runs("a", "n1")
			other := s.pod("b", "n1")
			other.OwnerReferences[0].UID = "other"
			s.put(other)
			return s
		}, ""},
		{"a pod beside one that was made by hand and adopted meanwhile", func() *story {
			s := began()
			a := s.pod("by-hand", "n1")
			refs := a.OwnerReferences
			a.OwnerReferences = nil
			s.put(a)
			s.wrote(a)
			a.OwnerReferences = refs
			s.put(a)
			b := s.pod("b", "n1")
			s.record.Events = append(s.record.Events, Event{Revision: s.next() - lag - 1, Object: b}) // decided before the adoption
			return s
		}, ""},
		{"a pod beside one that was made by hand and adopted long ago", func() *story {
			s := began()
			a := s.pod("by-hand", "n1")
			refs := a.OwnerReferences
			a.OwnerReferences = nil
			s.put(a)
			s.wrote(a)
			a.OwnerReferences = refs
			s.put(a)
			s.put(s.pod("b", "n1"))
			return s
		}, Singles},
		{"surge: a new pod beside the old one", func() *story {
			s := began(surge(1))
			a := s.runs("a", "n1")
			s.edit(template("t2"))
			s.runs("b", "n1")
			s.deleted(a)
			return s
		}, ""},
		{"surge: a second pod of the same template", func() *story {
			s := began(surge(1))
			s.runs("a", "n1")
			s.put(s.pod("b", "n1"))
			return s
		}, Singles + ": pod b was created on node n1, where a (template \"t1\", Running) of the same template is"},
		{"surge: a third pod", func() *story {
			s := began(surge(1))
			s.runs("a", "n1")
			s.edit(template("t2"))
			s.put(s.pod("b", "n1"))
			s.edit(template("t3"))
			s.put(s.pod("c", "n1"))
			return s
		}, Singles + ": pod c was created on node n1 with surge, where a "},
		{"surge: a second pod on another node while both of a node that fits no more are on their way out", func() *story {
			s := began(surge(1))
			s.put(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "n2", Labels: map[string]string{"pool": "a"}},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
			})
			s.runs("a", "n1")
			s.runs("b", "n2")
			s.edit(template("t2"))
			s.put(s.pod("a2", "n1"))
			s.edit(func(d *appsv1.DaemonSet) {
				template("t3")(d)
				d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "a"}
			})
			s.put(s.pod("b2", "n2"))
			return s
		}, ""},
		{"surge just switched off, not observed yet", func() *story {
			s := began(surge(1))
			s.set.Status.ObservedGeneration = 1
			s.put(s.set)
			s.runs("a", "n1")
			s.edit(template("t2"))
			s.set.Generation++
			unavailable(1)(s.set)
			s.put(s.set)
			s.wrote(s.set)
			s.put(s.pod("b", "n1"))
			return s
		}, ""},
		{"surge switched off and observed", func() *story {
			s := began(surge(1))
			s.runs("a", "n1")
			s.edit(template("t2"))
			s.edit(unavailable(1))
			s.put(s.pod("b", "n1"))
			return s
		}, Singles},
		{"surge: the old pod goes before the new one was available", func() *story {
			s := began(surge(1))
			a := s.runs("a", "n1")
			s.edit(template("t2"))
			s.put(s.pod("b", "n1"))
			s.deleted(a)
			return s
		}, Surge + ": pod a on node n1 was available and was deleted before a new one had been"},
		{"surge: the old pod goes from a node where it only may stay", func() *story {
			s := began(surge(1))
			a := s.runs("a", "n1")
			s.edit(template("t2"))
			s.put(&corev1.Node{ObjectMeta: metaNamed("n1"), Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}}})
			s.deleted(a)
			return s
		}, ""},
		{"surge: on two nodes, and one is allowed", func() *story {
			s := began(surge(1))
			s.fleet()
			s.edit(template("t2"))
			s.put(s.pod("b1", "n1"))
			s.put(s.pod("b2", "n2"))
			return s
		}, Budget + ": pod b2 is the second on node n2; that makes 2 nodes, and maxSurge allows 1"},
		{"surge: on the next node when a user took the first one's old pod out", func() *story { return surgesOn(0) }, ""},
		{"surge: on the next node when a user took the first one's new pod out", func() *story { return surgesOn(1) }, ""},
		{"surge: on the next node when the first is done", func() *story {
			s := began(surge(1))
			old := s.fleet()
			s.edit(template("t2"))
			s.runs("b1", "n1")
			s.deleted(old[0])
			s.put(s.pod("b2", "n2"))
			return s
		}, ""},
		{"an update within the budget", func() *story {
			s := began(unavailable(2))
			old := s.fleet()
			s.edit(template("t2"))
			s.deleted(old[0])
			s.deleted(old[1])
			s.gone(old[0])
			s.runs("b1", "n1")
			s.deleted(old[2])
			return s
		}, ""},
		{"pods that never were available go at once, and the answer to a status told the change before its watch", func() *story {
			s := began()
			a, b := s.pod("a", "n1"), s.pod("b", "n2")
			s.put(a)
			s.put(b)
			s.edit(template("t2"))
			for _, p := range []*corev1.Pod{a, b} {
				s.record.Calls = append(s.record.Calls, Call{Delete: true, Pod: p.Name, Since: s.next() - 1})
				s.deleted(p)
			}
			edited := s.record.Writes[len(s.record.Writes)-1].Revision
			s.record.Sights, s.record.Told = []Sight{{UID: s.set.UID, At: s.next(), Version: edited}}, true
			return s
		}, ""},
		{"an update beyond the budget", func() *story {
			s := began(unavailable(2))
			old := s.fleet()
			s.edit(template("t2"))
			s.deleted(old[0])
			s.deleted(old[1])
			s.deleted(old[2])
			return s
		}, Budget + ": pod old-3 on node n3 was available and was deleted; that makes 3 nodes without one by our own doing, and maxUnavailable allows 2"},
		{"users delete what they like", func() *story {
			s := began()
			for _, p := range s.fleet() {
				s.deleted(p)
				s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: p.Name, UID: p.UID, Delete: true, Acknowledged: true})
			}
			return s
		}, ""},
		{"old pods that are not ready go at once", func() *story {
			s := began()
			old := s.fleet()
			for _, p := range old {
				p.Status.Conditions[0].Status = corev1.ConditionFalse
				s.put(p)
			}
			s.edit(template("t2"))
			for _, p := range old {
				s.deleted(p)
			}
			return s
		}, ""},
		{"the node does not fit any more", func() *story {
			s := began()
			a := s.runs("a", "n1")
			s.put(&corev1.Node{ObjectMeta: metaNamed("n1"), Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}}})
			s.deleted(a)
			return s
		}, ""},
		{"deleted for nothing", func() *story {
			s := began()
			s.deleted(s.runs("a", "n1"))
			return s
		}, Reason + ": pod a on node n1 was deleted, though its template was the newest"},
		{"deleted for an update, with OnDelete", func() *story {
			s := began(onDelete)
			s.set.Status.ObservedGeneration = 1
			s.put(s.set)
			a := s.runs("a", "n1")
			s.edit(template("t2"))
			s.deleted(a)
			return s
		}, Reason + ": pod a on node n1 was deleted, though the strategy is OnDelete"},
		{"an acknowledged write that is lost", func() *story {
			s := began()
			lost := s.set.DeepCopy()
			template("t2")(lost)
			s.record.Writes = append(s.record.Writes, Write{Kind: "DaemonSet", Name: "agent", UID: "agent", Acknowledged: true, Revision: s.next(), Wish: wish.Of(lost)})
			return s
		}, Writes + ": a change of DaemonSet agent was acknowledged as"},
		{"an acknowledged creation that is lost", func() *story {
			s := began()
			s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: "a", UID: "a", Acknowledged: true, Revision: s.next()})
			return s
		}, Writes + ": Pod a was acknowledged and is not in the history"},
		{"an acknowledged deletion that is lost", func() *story {
			s := began()
			a := s.runs("a", "n1")
			s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: "a", UID: a.UID, Delete: true, Acknowledged: true})
			return s
		}, Writes + ": the deletion of Pod a was acknowledged, and it was never deleted"},
		{"a change without an answer may have been made", func() *story {
			s := began()
			s.edit(template("t2"))
			w := &s.record.Writes[len(s.record.Writes)-1]
			w.Acknowledged, w.Revision = false, 0
			return s
		}, ""},
		{"a user's taint is overwritten", func() *story {
			s := began()
			s.put(&corev1.Node{ObjectMeta: metaNamed("n1"), Spec: corev1.NodeSpec{Unschedulable: true}})
			return s
		}, Writes + ": n1 was changed by nobody's wish"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.tell().record
			slices.SortFunc(r.Events, func(a, b Event) int { return int(a.Revision - b.Revision) })
			found := violations(r)
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("a good history is blamed: %v", found)
				}
				return
			}
			rule, message, _ := strings.Cut(c.want, ": ")
			if len(found) != 1 || found[0].Rule != rule || !strings.HasPrefix(found[0].Message, message) {
				t.Errorf("found %v, want just %q", found, c.want)
			}
		})
	}
}

// TestWhatTheControllerWasTold has a pod that became ready shortly before the
// template changed. Whether its deletion counts depends on what the controller
// had been told of it.
func TestWhatTheControllerWasTold(t *testing.T) {
	for _, c := range []struct {
		name string
		told bool
		want int
	}{{"that it is ready", true, 1}, {"not yet that it is ready", false, 0}} {
		t.Run(c.name, func(t *testing.T) {
			s := began()
			var old []*corev1.Pod
			var sights []Sight
			see := func(uid types.UID) {
				e := s.record.Events[len(s.record.Events)-1]
				sights = append(sights, Sight{UID: uid, At: e.Revision, Version: e.Revision})
			}
			see("agent")
			for _, name := range []string{"a", "b"} {
				p := s.pod(name, map[string]string{"a": "n1", "b": "n2"}[name])
				s.put(p)
				see(p.UID)
				s.record.Calls = append(s.record.Calls, Call{Pod: name, Since: s.next() - 1})
				s.ready(p)
				if c.told {
					see(p.UID)
				}
				old = append(old, p)
			}
			s.edit(template("t2"))
			see("agent")
			for _, p := range old {
				s.record.Calls = append(s.record.Calls, Call{Pod: p.Name, Delete: true, Since: s.next() - 1})
				s.deleted(p)
			}
			s.record.Sights, s.record.Told = sights, true
			if found := violations(s.record); len(found) != c.want {
				t.Errorf("found %v, want %d violations", found, c.want)
			}
		})
	}
}

func TestPercentagesAreRoundedUp(t *testing.T) {
	d := &appsv1.DaemonSet{}
	for _, c := range []struct {
		change      func(*appsv1.DaemonSet)
		desired     int
		unavailable int
		surge       int
	}{
		{rolling(1, 0), 10, 1, 0},
		{rolling(0, 2), 10, 0, 2},
		{rolling(0, 0), 10, 1, 0},
		{onDelete, 10, 0, 0},
		{percent("25%", "0%"), 5, 2, 0},
		{percent("0%", "25%"), 5, 0, 2},
	} {
		c.change(d)
		if b := wants.BudgetOf(d, c.desired); b.Unavailable != c.unavailable || b.Surge != c.surge {
			t.Errorf("of %d nodes with %v: %+v, want %d and %d", c.desired, d.Spec.UpdateStrategy, b, c.unavailable, c.surge)
		}
	}
}
