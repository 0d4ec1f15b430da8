package strange

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

type said []string

func (s *said) Event(object runtime.Object, kind, reason, _ string) {
	*s = append(*s, fmt.Sprintf("%s %s %s", object.(metav1.Object).GetName(), kind, reason))
}

// An object is told of once for what it holds, and counted while it is there and holds it.
func TestStrangeObjectsAreToldOfOnce(t *testing.T) {
	var events said
	reg := prometheus.NewRegistry()
	teller, err := New(&events, reg)
	if err != nil {
		t.Fatal(err)
	}
	p := func(field string) *v1alpha1.RolloutPolicy {
		out := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
		if field != "" {
			out.Annotations = map[string]string{newer.Annotation: field}
		}
		return out
	}
	variant := &v1alpha1.DaemonSetVariant{ObjectMeta: p("spec.b").ObjectMeta}
	for i, step := range []struct {
		kind  string
		obj   any
		gone  bool
		told  int
		count float64
	}{
		{"RolloutPolicy", p(""), false, 0, 0},
		{"RolloutPolicy", p("spec.a"), false, 1, 1},
		{"RolloutPolicy", p("spec.a"), false, 1, 1},
		{"RolloutPolicy", p("spec.b"), false, 2, 1},
		{"RolloutPolicy", p(""), false, 2, 0},
		{"RolloutPolicy", p("spec.b"), false, 3, 1},
		{"RolloutPolicy", p("spec.b"), true, 3, 0},
		{"DaemonSetVariant", variant, false, 4, 1},
		{"RolloutPolicy", &corev1.Node{ObjectMeta: variant.ObjectMeta}, false, 4, 0},
	} {
		before := len(events)
		if news := teller.Look(klog.Background(), step.obj, step.gone); news != (step.told > before) {
			t.Errorf("step %d: there is news: %v", i, news)
		}
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		count := -1.0
		for _, m := range all[0].GetMetric() {
			if m.GetLabel()[0].GetValue() == step.kind {
				count = m.GetGauge().GetValue()
			}
		}
		if len(events) != step.told || count != step.count {
			t.Errorf("step %d: %v are told, and %v counted; want %d and %v", i, events, count, step.told, step.count)
		}
	}
	if want := "p Warning NotFollowed"; events[0] != want {
		t.Errorf("told is %q, want %q", events[0], want)
	}
}

// away is an API that is away at first.
type away int

func (a *away) SayNotFollowed(context.Context, runtime.Object) error {
	*a--
	if *a >= 0 {
		return fmt.Errorf("%d tries are left", *a)
	}
	return nil
}

// What its conditions are to say is tried again while the API is away, and given up in the end.
func TestConditionsAreWrittenOnceTheAPIIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for tries, want := range map[away]bool{0: true, 3: true, 1000: false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := Say(ctx, &tries, &v1alpha1.RolloutPolicy{})
			cancel()
			if (err == nil) != want {
				t.Errorf("%d tries are left, and the error is %v", tries, err)
			}
		}
	})
}
