package matrix

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// The stable ControllerRevision is gone when somebody aborts: no node loses its daemon.
func TestAbortWhenTheStableRevisionIsGone(t *testing.T) {
	w := newWorld(row.Config{})
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 10
	for i := range nodes {
		node := fmt.Sprintf("n%02d", i)
		w.setNode(fact.Node{Name: node})
		w.setPod(fact.Pod{UID: types.UID("p" + node), Name: "p" + node, Owner: "logs", Node: node, Bound: true, Revision: "a", Ready: true, ReadySince: noon, Created: noon})
	}
	spec := func(revision string, generation int64) {
		w.setDaemonSet(fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: generation,
			Revision: revision, Strategy: rollingUpdate("1", "0"), Reported: w.sets["logs"].Reported}, corev1.PodSpec{})
	}
	info := w.rolloutOf("logs")
	info.Policy, info.PolicyUID = policy, "p"
	w.setRollout(info)
	spec("a", 1)
	until := func(d time.Duration, stop func() bool) {
		for end := w.now.Add(d); w.now.Before(end) && !stop(); w.tick(time.Second) {
			for range w.ready() {
			}
			w.deliver()
			for len(w.inFlight) > 0 {
				w.finish(0, action.OK, true)
			}
			for _, p := range maps.Clone(w.pods) {
				w.obey(p)
			}
		}
	}
	on := func(rev string) (n int) {
		for _, p := range w.pods {
			if p.Revision == rev && !p.Terminating {
				n++
			}
		}
		return n
	}
	until(10*time.Second, func() bool { return false })
	spec("b", 2)
	until(5*time.Minute, func() bool { return on("b") == 8 })
	t.Logf("a on %d, b on %d", on("a"), on("b"))
	// somebody deletes the ControllerRevision of a
	ds := w.sets["logs"]
	ds.Earlier = &placement.Revisions{ByRevision: map[string]*placement.Rules{"b": ds.Placement}}
	w.sets["logs"] = ds
	w.m.Step(ds)
	info = w.rolloutOf("logs")
	info.Generation++
	info.Spec.Abort = &v1alpha1.Abort{Revision: "b", Digest: w.sets["logs"].Digest}
	w.rollouts["logs"] = info
	w.m.Step(info)
	for i := range 120 {
		until(time.Second, func() bool { return false })
		if i%10 == 0 {
			st, _ := w.m.Rollout("logs")
			t.Logf("%ds: a on %d, b on %d; %s %s %v", i, on("a"), on("b"), st.Phase, st.Message, st.Counts)
		}
	}
	if on("a")+on("b") < nodes-1 {
		t.Fatalf("only %d of %d nodes have a daemon", on("a")+on("b"), nodes)
	}
}

// A template with the hash of an approved one waits for its own approval.
func TestForgedRevisionIsNotApproved(t *testing.T) {
	w := newWorld(row.Config{})
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
		{Name: "canary", Count: ptr.To[int32](1), Approval: v1alpha1.ApprovalManual},
	}}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 4
	for i := range nodes {
		node := fmt.Sprintf("n%d", i)
		w.setNode(fact.Node{Name: node})
		w.setPod(fact.Pod{UID: types.UID("p" + node), Name: "p" + node, Owner: "logs", Node: node, Bound: true, Revision: "a", Ready: true, ReadySince: noon, Created: noon})
	}
	spec := func(revision, digest string, generation int64) {
		w.setDaemonSet(fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: generation, Digest: digest,
			Revision: revision, Strategy: rollingUpdate("100%", "0"), Reported: w.sets["logs"].Reported}, corev1.PodSpec{})
	}
	info := w.rolloutOf("logs")
	info.Policy, info.PolicyUID = policy, "p"
	w.setRollout(info)
	spec("a", "sha256:a", 1)
	w.ready() // the rollout begins
	on := func(digest string) (n int) {
		spec("b", digest, 2)
		info.Spec.Approved = &v1alpha1.StepApproval{Revision: "b", Digest: "sha256:b", Step: v1alpha1.AllSteps}
		w.setRollout(info)
		for range 60 {
			for range w.ready() {
			}
			w.deliver()
			for len(w.inFlight) > 0 {
				w.finish(0, action.OK, true)
			}
			for _, p := range maps.Clone(w.pods) {
				w.obey(p)
			}
			w.tick(time.Second)
		}
		for _, p := range w.pods {
			if p.Revision == "b" && !p.Terminating {
				n++
			}
		}
		return n
	}
	if n := on("sha256:forged"); n != 1 {
		t.Errorf("%d nodes have a template that nobody approved, the canary is 1", n)
	}
	if n := on("sha256:b"); n != nodes {
		t.Errorf("%d of %d nodes have the approved one", n, nodes)
	}
}
