package varied

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// A DaemonSet has the variants that choose it, each with the nodes that it has alone, and with what the controller has
// against it as it is now.
func TestVariantsOfADaemonSet(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1.4")
	for name, size := range map[string]string{"a": "l", "b": "l", "c": "s", "d": "none", "e": "both", "f": "l"} {
		w.Node(name, surveytest.Label("size", size))
		if name != "f" {
			w.Pod(ds, name, hashes[0], surveytest.ReadyAfter(20*time.Second))
		}
	}
	vary := func(name, namespace string, priority int32, sizes ...string) *v1alpha1.DaemonSetVariant {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
		v.Generation, v.Status.ObservedGeneration, v.Spec.Priority = 2, 2, priority
		v.Spec.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "size", Operator: metav1.LabelSelectorOpIn, Values: sizes}}}
		v.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.VariantApplies, Status: metav1.ConditionTrue}, {Type: v1alpha1.VariantConflict, Status: metav1.ConditionFalse},
		}
		w.Objects.Variants = append(w.Objects.Variants, v)
		return v
	}
	of := func() *Variants {
		t.Helper()
		s := survey.New(w.Objects)
		view, err := s.View(ds)
		if err != nil {
			t.Fatal(err)
		}
		return Of(s, ds, view)
	}
	if got := of(); got != nil {
		t.Errorf("without variants it has %+v", got)
	}
	large, small := vary("l", ds.Namespace, 0, "l", "both"), vary("s", ds.Namespace, 0, "s", "both")
	top := vary("top", ds.Namespace, 5, "nobody")
	vary("other", "elsewhere", 9, "l")
	want := &Variants{Template: 1, Tied: 1, Of: []Variant{
		{Name: "top", Priority: 5, Says: []Remark{}}, {Name: "l", Nodes: 2, Says: []Remark{}}, {Name: "s", Nodes: 1, Says: []Remark{}},
	}}
	if got := of(); !reflect.DeepEqual(got, want) {
		t.Errorf("it has %+v, want %+v", got, want)
	}
	at := surveytest.Ago(time.Minute)
	large.Status.Conditions[0].LastTransitionTime, large.Status.Conditions[1].LastTransitionTime = at, at
	large.Status.Conditions[0].Status, large.Status.Conditions[0].Message = metav1.ConditionFalse, "no such key"
	large.Status.Conditions[1].Status, large.Status.Conditions[1].Message = metav1.ConditionTrue, "l, s"
	small.Generation = 3 // its status is of before
	top.Status.Conditions = nil
	want.Of[1].Says = []Remark{{"bad", "no such key", at.UTC()}, {"warn", "l, s", at.UTC()}}
	want.Of[2].Unread, want.Of[0].Unread = true, true
	if got := of(); !reflect.DeepEqual(got, want) {
		t.Errorf("it has %+v, want %+v", got, want)
	}
	if got := Of(survey.New(w.Objects), ds, nil); got == nil || len(got.Of) != 3 || got.Of[1].Nodes+got.Template+got.Tied > 0 {
		t.Errorf("without a view it has %+v", got)
	}
}
