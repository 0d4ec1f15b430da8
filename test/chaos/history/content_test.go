package history

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// writes has the author write a value, and copies be made of it as content of that ID.
func (s *guidedStory) writes(value, id string) {
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: revision.Map.Name, UID: "conf"}, Data: map[string]string{"value": value}}
	s.put(conf)
	s.record.Writes = append(s.record.Writes, Write{
		Kind: "ConfigMap", Name: "conf", UID: "conf", Acknowledged: true, Revision: s.record.Events[len(s.record.Events)-1].Revision, Wish: wish.Of(conf),
	})
	if id != "" {
		s.copies(value, id)
	}
}

func (s *guidedStory) copies(value, id string) {
	s.put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "conf-" + id, UID: types.UID("conf-" + id), Labels: map[string]string{revision.ContentLabel: revision.Copy}},
		Data:       map[string]string{"value": value},
	})
	s.lists(id, fmt.Sprintf(`{"kind":"ConfigMap","name":"conf","copy":%q}`, "conf-"+id))
}

// lists makes the manifest of a content.
func (s *guidedStory) lists(id, members string) {
	s.put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + id, UID: types.UID("agent-" + id), Labels: map[string]string{revision.ContentLabel: revision.Manifest}},
		Data:       map[string]string{"content.json": fmt.Sprintf(`{"id":%q,"members":[%s]}`, id, members)},
	})
}

// rules has somebody edit the policy.
func (s *guidedStory) rules(change func(*v1alpha1.RolloutPolicySpec)) {
	change(&s.policy.Spec)
	s.put(s.policy)
	s.record.Writes = append(s.record.Writes, Write{
		Kind: "RolloutPolicy", Name: "policy", UID: "policy", Acknowledged: true, Revision: s.record.Events[len(s.record.Events)-1].Revision,
		Wish: wish.Of(s.policy),
	})
}

// wantsSecrets has the ConfigMap, which was content c at last, be no content any more.
func (s *guidedStory) wantsSecrets() {
	s.writes("v2", "c")
	s.rules(func(p *v1alpha1.RolloutPolicySpec) {
		p.Content = &v1alpha1.Content{ConfigMaps: v1alpha1.ContentNone, Secrets: v1alpha1.ContentReferenced}
	})
	s.userTakes(1)
}

// contentFleet has a fleet of t1 with content a, and a rollout to content b whose canary has begun.
func contentFleet() *guidedStory {
	s := guidedFleet(func(p *v1alpha1.RolloutPolicy) { p.Spec.Content, p.Spec.Domains = &v1alpha1.Content{}, nil })
	s.edit(func(d *appsv1.DaemonSet) {
		template("t1")(d)
		of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: revision.Map.Name}}
		d.Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
	})
	s.writes("v0", "a")
	for _, p := range s.pods {
		p.Labels[revision.Label] = "hash-t1.a"
		s.put(p)
	}
	s.status(v1alpha1.PhaseComplete, "t1.a", "t1.a", "")
	s.writes("v1", "b")
	s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.b", "canary")
	return s
}

// with makes a pod of t1 with a content, that is ready.
func (s *guidedStory) with(id, name, node string) {
	p := s.pod(name, node)
	p.Labels[revision.Label] = "hash-t1." + id
	s.put(p)
	s.ready(p)
}

// beyond has the rollout to content b be beyond its canary.
func (s *guidedStory) beyond() {
	s.points(1, "b")
	s.shows(1, "b")
	s.says(func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t1.b", Step: "canary"}
	})
	s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.b", "rest")
}

// points has the pod of a node be given a content as it runs.
func (s *guidedStory) points(node int, id string) {
	p := s.pods[node-1].DeepCopy()
	p.Labels[revision.Label] = "hash-t1." + id
	p.Annotations[revision.LiveAnnotation] = fmt.Sprintf(`{"content":%q,"at":%q}`, id, at.Format(time.RFC3339))
	s.put(p)
}

// hurries gives all running pods content b in a moment, under a policy with a pace.
func (s *guidedStory) hurries(perMinute int32) {
	s.rules(func(p *v1alpha1.RolloutPolicySpec) { p.Pace.NodesPerMinute = &perMinute })
	s.beyond()
	for node := 2; node <= 4; node++ {
		s.points(node, "b")
		s.shows(node, "b")
	}
}

// shows has its node say that the pod shows it.
func (s *guidedStory) shows(node int, id string) {
	p := s.pods[node-1].DeepCopy()
	text := fmt.Sprintf("%s of %s is shown", id, at.Format(time.RFC3339))
	p.Labels[revision.Label] = "hash-t1." + id
	p.Annotations[revision.LiveAnnotation] = fmt.Sprintf(`{"content":%q,"at":%q}`, id, at.Format(time.RFC3339))
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: "everynode.io/ContentMounted", Status: corev1.ConditionTrue, Message: text,
	})
	s.put(p)
}

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (s *guidedStory) userTakes(node int) {
	p := s.pods[node-1]
	s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: p.Name, UID: p.UID, Delete: true})
	s.takes(node)
}

func TestHistoriesWithContent(t *testing.T) {
	fails := func(s *guidedStory) {
		s.rollout.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "hash-t1.b"}}
		s.status(v1alpha1.PhaseRolledBack, "t1.a", "t1.b", "canary")
	}
	for _, c := range []struct {
		name string
		tell func(s *guidedStory)
		want string
	}{
		{"step by step", func(s *guidedStory) {
			s.takes(1)
			s.with("b", "new-1", "n1")
			s.says(func(r *v1alpha1.DaemonSetRollout) {
				r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t1.b", Step: "canary"}
			})
			s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.b", "rest")
			s.takes(2)
			s.with("b", "new-2", "n2")
		}, ""},
		{"the stable content before the node's step", func(s *guidedStory) {
			s.userTakes(2)
			s.with("a", "new-2", "n2")
		}, ""},
		{"the target's content before the node's step", func(s *guidedStory) {
			s.userTakes(2)
			s.with("b", "new-2", "n2")
		}, Assigned + `: pod new-2 on node n2 was made of template "t1.b", which was not the node's`},
		{"a pod taken for its content before the node's step", func(s *guidedStory) { s.takes(2) }, Reason},
		{"a pod taken whose content is the newest", func(s *guidedStory) {
			s.writes("v0", "")
			s.status(v1alpha1.PhaseComplete, "t1.a", "t1.a", "")
			s.takes(2)
		}, Reason},
		{"a content that is neither the stable one nor the newest", func(s *guidedStory) {
			s.writes("v2", "c")
			s.writes("v1", "")
			s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.b", "canary")
			s.userTakes(1)
			s.with("c", "new-1", "n1")
		}, Assigned + `: pod new-1 on node n1 was made of template "t1.c", which was not the node's`},
		{"what a policy wanted before, until there are copies of what it wants", func(s *guidedStory) {
			s.wantsSecrets()
			s.with("c", "new-1", "n1")
		}, ""},
		{"what a policy wanted before, though the rollout is for what it wants", func(s *guidedStory) {
			s.wantsSecrets()
			s.lists("d", "")
			s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.d", "canary")
			s.with("c", "new-1", "n1")
		}, Assigned + `: pod new-1 on node n1 was made of template "t1.c", which was not the node's`},
		{"no content though the policy wants it", func(s *guidedStory) {
			s.userTakes(2)
			s.put(s.pod("new-2", "n2"))
		}, Assigned + `: pod new-2 on node n2 was made of template "t1", which was not the node's`},
		{"no content, since its policy has gone in the middle of a change", func(s *guidedStory) {
			s.rollout.Status.Phase = v1alpha1.PhaseProgressing
			s.put(s.rollout)
			s.userTakes(2)
			s.gone(s.policy)
			s.put(s.pod("new-2", "n2"))
		}, Assigned + `: pod new-2 on node n2 was made of template "t1", which was not the node's`},
		{"no content, since its policy has gone after its author took a change back", func(s *guidedStory) {
			s.writes("v0", "")
			s.userTakes(2)
			s.gone(s.policy)
			s.put(s.pod("new-2", "n2"))
		}, ""},
		{"a failed content again", func(s *guidedStory) {
			s.takes(1)
			fails(s)
			s.with("b", "new-1", "n1")
		}, Failed},
		{"a failed content that somebody wants tried again", func(s *guidedStory) {
			s.takes(1)
			fails(s)
			s.says(func(r *v1alpha1.DaemonSetRollout) { r.Spec.Retry = &v1alpha1.Retry{Revision: "hash-t1.b", Count: 1} })
			s.with("b", "new-1", "n1")
		}, ""},
		{"running pods are given a content, step by step", func(s *guidedStory) {
			s.points(1, "b")
			s.says(func(r *v1alpha1.DaemonSetRollout) {
				r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t1.b", Step: "canary"}
			})
			s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.b", "rest")
			s.points(2, "b")
		}, ""},
		{"a running pod is given the target's content before the node's step", func(s *guidedStory) { s.points(2, "b") },
			Assigned + `: pod old-2 on node n2 was made of template "t1.b", which was not the node's`},
		{"a running pod is given another content than the target's", func(s *guidedStory) {
			s.copies("v2", "c")
			s.points(1, "c")
		}, Assigned + `: pod old-1 on node n1 was made of template "t1.c", which was not the node's`},
		{"a running pod is given a content while the rollout is paused", func(s *guidedStory) {
			s.says(func(r *v1alpha1.DaemonSetRollout) { r.Spec.Paused = true })
			s.points(1, "b")
		}, Still + ": pod old-1 was given other content though the rollout is paused"},
		{"as many running pods are given a content as the step allows", func(s *guidedStory) {
			s.beyond()
			s.points(2, "b")
			s.points(3, "b")
			s.shows(2, "b")
			s.points(4, "b")
		}, ""},
		{"more running pods are given a content at a time than the step allows", func(s *guidedStory) {
			s.beyond()
			s.points(2, "b")
			s.points(3, "b")
			s.points(4, "b")
		}, Limits + ": node n4 was changed (pod old-4); that makes 3 nodes of its step and 3 in all by our own doing (n2, n3, n4)"},
		{"running pods are given a content within the pace", func(s *guidedStory) { s.hurries(60) }, ""},
		{"running pods are given a content faster than the pace", func(s *guidedStory) { s.hurries(1) },
			Pace + ": node n4 was changed (pod old-4), the 4. of policy policy in 0s; 1 in a minute are allowed"},
		{"a pod is taken while others are given a content", func(s *guidedStory) {
			s.beyond()
			s.points(2, "b")
			s.points(3, "b")
			s.takes(4)
		}, Limits + ": node n4 was changed (pod old-4); that makes 3 nodes"},
		{"another content of the same template", func(s *guidedStory) {
			s.takes(1)
			fails(s)
			s.writes("v2", "c")
			s.status(v1alpha1.PhaseProgressing, "t1.a", "t1.c", "canary")
			s.with("c", "new-1", "n1")
		}, ""},
		{"the author's object is written by nobody", func(s *guidedStory) {
			s.writes("v2", "")
			s.record.Writes = s.record.Writes[:len(s.record.Writes)-1]
		}, Writes},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := contentFleet()
			c.tell(s)
			expect(t, s, c.want)
		})
	}
}

// A rollout is complete with the newest template and what its objects hold, where the policy wants that.
func TestNewestWithContent(t *testing.T) {
	for _, c := range []struct {
		of   string
		with bool
		want bool
	}{
		{"hash-t1.b", true, true}, {"hash-t1.a", true, false}, {"hash-t1", true, false}, {"hash-t2.b", true, false},
		{"hash-t1", false, true}, {"hash-t1.b", false, false},
	} {
		s := contentFleet()
		state := s.record.Last()
		if !c.with {
			state.Policies[0].Spec.Content = nil
		}
		if got := state.newest(s.set, "hash-t1", c.of); got != c.want {
			t.Errorf("revision %s, with content %t: newest is %t", c.of, c.with, got)
		}
	}
}
