package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// changing is an API in which node-1 is one of four nodes, and in whose canary step, which has begun, there is one. The
// pod is made of the target; agent:0 is the stable image.
func changing(t *testing.T) api {
	t.Helper()
	objects, status := pinning(t)
	rollout := objects[rolloutPath].(*v1alpha1.DaemonSetRollout)
	policy := &objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0]
	policy.UID, policy.Generation, policy.Spec.Images = "p", 3, ""
	status.Images, status.StableRevision, status.TargetRevision, status.Step = nil, "stable", "hash", "canary"
	status.Policy = &v1alpha1.FollowedPolicy{Name: policy.Name, UID: policy.UID}
	rollout.Status = *status
	revisions := objects["/apis/apps/v1/namespaces/default/controllerrevisions"].(*appsv1.ControllerRevisionList)
	before := *revisions.Items[0].DeepCopy()
	before.Name, before.UID = "agent-stable", "s"
	before.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "stable"}
	template := objects[setPath].(*appsv1.DaemonSet).Spec.Template.DeepCopy()
	template.Spec.Containers[0].Image = "agent:0"
	raw, err := history.Patch(template)
	if err != nil {
		t.Fatal(err)
	}
	before.Data.Raw = raw
	revisions.Items = append(revisions.Items, before)
	objects["/api/v1/nodes/node-1"] = nodeNamed("node-1")
	return objects
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// cutoffs are those of the canary step in a fleet.
func cutoffs(t *testing.T, of api, nodes ...string) *v1alpha1.Cutoffs {
	t.Helper()
	policy := of[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0]
	compiled, err := rolloutpolicy.Compile(&policy.Spec, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	fleet := rolloutpolicy.NewFleet(compiled)
	for _, n := range nodes {
		fleet.Set(n, nil)
	}
	return fleet.Cutoffs(rolloutpolicy.Step{}, policy.Generation)
}

// others are names of nodes of which the first is the canary before node-1, and the last behind it.
func others(t *testing.T, of api) (ahead, behind string) {
	t.Helper()
	for i := range 100 {
		other := fmt.Sprint("other-", i)
		if cutoffs(t, of, "node-1", other).Steps[0].Last == other {
			ahead = other
		} else {
			behind = other
		}
	}
	if ahead == "" || behind == "" {
		t.Fatal("all names are on one side of node-1")
	}
	return ahead, behind
}

// TestALateReplicaAnswersByWhatIsWritten: which nodes are in a step by number follows from all nodes, and a replica
// may not have seen some of them come or go. The leader counts. Where its word is of another policy the answer is the
// stable revision.
func TestALateReplicaAnswersByWhatIsWritten(t *testing.T) {
	ahead, behind := others(t, changing(t))
	for name, c := range map[string]struct {
		seen, there []string
		change      func(*v1alpha1.DaemonSetRollout)
		stable      bool
	}{
		"the canary has gone, and node-1 is it":   {seen: []string{"node-1", ahead}, there: []string{"node-1", behind}},
		"a canary has come, and node-1 is none":   {seen: []string{"node-1"}, there: []string{"node-1", ahead}, stable: true},
		"node-1 has come, and is the canary":      {seen: []string{behind}, there: []string{"node-1", behind}},
		"node-1 has come, and is none":            {seen: []string{behind}, there: []string{"node-1", ahead}, stable: true},
		"the leader has not seen it":              {seen: []string{"node-1"}, there: []string{behind}},
		"there is no node in the step":            {seen: []string{"node-1"}, stable: true},
		"what is written is of an earlier policy": {[]string{"node-1"}, []string{"node-1"}, earlier, true},
		"... and of one that was deleted":         {[]string{"node-1"}, []string{"node-1"}, another, true},
		"a leader of an earlier version":          {[]string{"node-1"}, []string{"node-1", ahead}, wroteNone, false},
		"too many to be written":                  {[]string{"node-1"}, []string{"node-1", ahead}, tooMany, false},
	} {
		objects := changing(t)
		rollout := objects[rolloutPath].(*v1alpha1.DaemonSetRollout)
		rollout.Status.Cutoffs = cutoffs(t, objects, c.there...)
		if c.change != nil {
			c.change(rollout)
		}
		s := newServer(t, objects, true)
		for _, n := range c.seen {
			s.SetNode(nodeNamed(n))
		}
		got := made(t, s, objects)
		if is := strings.Contains(string(got.Patch), "agent:0"); !got.Allowed || is != c.stable {
			t.Errorf("%s: the pod is stable: %v, want %v (%+v)", name, is, c.stable, got)
		}
	}
}

func earlier(r *v1alpha1.DaemonSetRollout)   { r.Status.Cutoffs.PolicyGeneration-- }
func another(r *v1alpha1.DaemonSetRollout)   { r.Status.Policy.UID = "before" }
func wroteNone(r *v1alpha1.DaemonSetRollout) { r.Status.Cutoffs = nil }
func tooMany(r *v1alpha1.DaemonSetRollout) {
	r.Status.Cutoffs = &v1alpha1.Cutoffs{PolicyGeneration: 3, Incomplete: true}
}

// TestALateReplicaReadsTheNodesLabels, and does not go by those that it has seen.
func TestALateReplicaReadsTheNodesLabels(t *testing.T) {
	for _, labelled := range []bool{true, false} {
		objects := changing(t)
		policy := &objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0]
		canary := &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "canary"}}
		policy.Spec.Waves = []v1alpha1.Wave{{Name: "canary", Nodes: canary}}
		objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status.Cutoffs = &v1alpha1.Cutoffs{PolicyGeneration: 3}
		is, was := nodeNamed("node-1"), nodeNamed("node-1")
		if labelled {
			is.Labels = map[string]string{"pool": "canary"}
		} else {
			was.Labels = map[string]string{"pool": "canary"}
		}
		objects["/api/v1/nodes/node-1"] = is
		s := newServer(t, objects, true)
		s.SetNode(was)
		got := made(t, s, objects)
		if stable := strings.Contains(string(got.Patch), "agent:0"); !got.Allowed || stable == labelled {
			t.Errorf("the node is a canary: %v, and its pod is stable: %v (%+v)", labelled, stable, got)
		}
	}
}

// TestAPolicyOfANewerVersionIsNotFollowed by who answers either: a node gets the stable revision, for which step it is
// in may depend on what this program does not know.
func TestAPolicyOfANewerVersionIsNotFollowed(t *testing.T) {
	for _, written := range []bool{true, false} {
		objects := changing(t)
		if written {
			objects[rolloutPath].(*v1alpha1.DaemonSetRollout).Status.Cutoffs = cutoffs(t, objects, "node-1")
		}
		policy := &objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0]
		policy.Annotations = map[string]string{newer.Annotation: "spec.quorum"}
		s := newServer(t, objects, true)
		s.SetNode(nodeNamed("node-1"))
		got := made(t, s, objects)
		if !got.Allowed || !strings.Contains(string(got.Patch), "agent:0") {
			t.Errorf("steps by number are written: %v, and the pod is not stable (%+v)", written, got)
		}
	}
}

// TestAWaveThatWasPutInBeforeIsNotBegun: by the name of the step under way a wave before it would have begun, which
// the leader has not seen yet, and nobody has approved. Of others it is known that they have.
func TestAWaveThatWasPutInBeforeIsNotBegun(t *testing.T) {
	region := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"region": name}}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.DaemonSetRollout)
		node   string
		stable bool
	}{
		"the leader has seen it":                          {func(*v1alpha1.DaemonSetRollout) {}, "us", false},
		"it has not":                                      {earlier, "us", true},
		"it knew another policy":                          {another, "us", true},
		"it has not, and the node's wave is before":       {earlier, "canary", false},
		"it has not, and the node's wave is behind":       {earlier, "eu", true},
		"it knew another policy, and the wave was there":  {another, "canary", false},
		"it has not, and the node's wave was not reached": {earlier, "", true},
	} {
		for _, last := range []*metav1.LabelSelector{region("eu"), {}} {
			objects := changing(t)
			objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0].Spec.Waves = []v1alpha1.Wave{
				{Name: "canary", Nodes: region("canary")}, {Name: "us", Nodes: region("us"), Approval: v1alpha1.ApprovalManual},
				{Name: "eu", Nodes: last},
			}
			node := nodeNamed("node-1")
			node.Labels = map[string]string{"region": c.node}
			objects["/api/v1/nodes/node-1"] = node
			rollout := objects[rolloutPath].(*v1alpha1.DaemonSetRollout)
			rollout.Status.Steps = []v1alpha1.StepStatus{{Name: "canary"}, {Name: "eu"}, {Name: "rest"}}
			rollout.Status.Step, rollout.Status.Cutoffs = "eu", &v1alpha1.Cutoffs{PolicyGeneration: 3}
			c.change(rollout)
			got := made(t, newServer(t, objects, true), objects)
			if is := strings.Contains(string(got.Patch), "agent:0"); !got.Allowed || is != c.stable {
				t.Errorf("%s: the pod is stable: %v, want %v (%+v)", name, is, c.stable, got)
			}
		}
	}
}
