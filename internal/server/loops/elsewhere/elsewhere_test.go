package elsewhere_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/server/loops/elsewhere"
)

// stored reads the objects of a world, and counts looks at all nodes.
type stored struct {
	*surveytest.World
	looks int
}

func (s *stored) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, r := range s.Objects.Rollouts {
		if r.Name == key.Name && r.Namespace == key.Namespace {
			r.DeepCopyInto(into.(*v1alpha1.DaemonSetRollout))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *stored) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	o := &s.Objects
	switch l := into.(type) {
	case *corev1.NodeList:
		s.looks++
		fill(&l.Items, o.Nodes)
	case *corev1.PodList:
		fill(&l.Items, o.Pods)
	case *appsv1.DaemonSetList:
		fill(&l.Items, o.DaemonSets)
	case *appsv1.ControllerRevisionList:
		fill(&l.Items, o.Revisions)
	case *v1alpha1.RolloutPolicyList:
		fill(&l.Items, o.Policies)
	case *v1alpha1.DaemonSetRolloutList:
		fill(&l.Items, o.Rollouts)
	case *v1alpha1.NodeStartupList, *v1alpha1.DaemonSetVariantList:
	default:
		return fmt.Errorf("no %v is stored", reflect.TypeOf(into))
	}
	return nil
}

func fill[T any](items *[]T, from []*T) {
	for _, one := range from {
		*items = append(*items, *one)
	}
}

// A change takes the daemon off some nodes and brings it to others, node by node. What starts goes by the revision that
// it is to have, as the controller elsewhere stores how far it is.
func TestNodesGoByTheRevisionThatTheyAreToHave(t *testing.T) {
	w := &stored{World: surveytest.New(t)}
	for _, name := range []string{"canary-new", "canary-old", "new", "old"} {
		wave, pool, in := strings.Cut(name, "-")
		if !in {
			wave, pool = "rest", name
		}
		w.Node(name, surveytest.Label("pool", pool), surveytest.Label("wave", wave))
	}
	ds, _ := w.DaemonSet("agent", "a:1")
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "old"}
	first := w.Revise(ds)
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "new"}
	second := w.Revise(ds)
	w.Policy("careful", "waves: [{name: canary, nodes: {matchLabels: {wave: canary}}}]")
	now := clocktesting.NewFakePassiveClock(surveytest.Now)
	p := elsewhere.New(w, now)
	check := func(when string, known bool, want string) {
		t.Helper()
		got := ""
		for _, n := range w.Objects.Nodes {
			rules, is := p.RulesOn(t.Context(), ds, n.Name)
			if is != known {
				t.Fatalf("%s: that it is known for node %s is %v", when, n.Name, is)
			}
			if rules == nil {
				rules = placement.Compile(&ds.Spec.Template.Spec)
			}
			if verdict, _ := rules.Judge(n); verdict == placement.ShouldRun {
				got += " " + n.Name
			}
		}
		if got != want {
			t.Errorf("%s: the daemon is to be on%s, want%s", when, got, want)
		}
	}
	check("without a rollout", true, " canary-new new")
	digest, err := history.Digest(w.Objects.Revisions[len(w.Objects.Revisions)-1])
	if err != nil {
		t.Fatal(err)
	}
	status := v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, Step: "canary",
		StableRevision: first, TargetRevision: second, DaemonSetGeneration: ds.Generation, TargetDigest: digest,
		Steps: []v1alpha1.StepStatus{{Name: "canary", Nodes: 2}, {Name: "rest", Nodes: 2}}}
	w.Rollout(ds, status)
	rollout := w.Objects.Rollouts[0]
	check("in the canary", true, " canary-new old")
	if w.looks != 1 {
		t.Errorf("all objects are looked at %d times within a second", w.looks)
	}
	now.SetTime(now.Now().Add(time.Minute))
	rollout.Status.Step = "rest"
	check("in the last step", true, " canary-new new")
	now.SetTime(now.Now().Add(time.Minute))
	rollout.Status = status
	rollout.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: second, Time: metav1.NewTime(now.Now()),
		Action: v1alpha1.FailureRollback}}
	check("on the way back", true, " canary-old old")
	rollout.Status = status
	rollout.Status.DaemonSetGeneration--
	check("before the controller knows the template", false, " canary-new new")
	rollout.Status.Conditions = []metav1.Condition{{Type: rollouts.PolicyGone, Status: metav1.ConditionTrue}}
	check("when the policy is gone", true, " canary-new new")
	rollout.Status = status
	rollout.Status.StableRevision, rollout.Status.DaemonSetGeneration = second, 0
	before := w.looks
	check("where all revisions want the same nodes", true, " canary-new new")
	if w.looks != before {
		t.Error("all objects are looked at though that changes nothing")
	}
}
