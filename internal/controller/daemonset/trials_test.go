package daemonset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/api/v1alpha1"
)

// picky is an API that does not take all pods, and can be asked to try one.
type picky struct {
	policyAPI
	tried atomic.Int32
	why   func(*corev1.Pod) error
}

func (a *picky) TryPod(_ context.Context, p *corev1.Pod) error {
	a.tried.Add(1)
	return a.why(p)
}

func newPicky(t *testing.T, why func(*corev1.Pod) error) (a *picky, want map[string]string) {
	t.Helper()
	a = &picky{policyAPI: policyAPI{newFakeAPI(t), func() bool { return false }}, why: why}
	a.refuseCreate = why
	want = map[string]string{}
	for i := range 4 {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, []string{"s", "xl"}[i%2], 4))
		want[name] = []string{"plain", "threads 8"}[i%2]
	}
	a.add(testVariant("large", "xl", threads(8), ""))
	a.add(testDaemonSet("logs"))
	return a, want
}

func (a *picky) start(t *testing.T) (stop func()) {
	t.Helper()
	c, err := New(Config{
		Informers: a, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Variants: a, Trials: a,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// applies waits until the variant's condition says so, and its message has the words.
func (a *picky) applies(t *testing.T, status metav1.ConditionStatus, words ...string) {
	t.Helper()
	eventually(t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		v, err := get[*v1alpha1.DaemonSetVariant](a.fakeAPI, kindVariant, "default", "large")
		if err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VariantApplies)
		if c == nil || c.Status != status || c.ObservedGeneration != v.Generation {
			return fmt.Sprintf("the condition is %+v", c)
		}
		for _, w := range words {
			if !strings.Contains(c.Message, w) {
				return fmt.Sprintf("it says %q, want %q", c.Message, w)
			}
		}
		return ""
	})
}

func invalidPod(p *corev1.Pod, why string) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), p.Name,
		field.ErrorList{field.Invalid(field.NewPath("spec"), "x", why)})
}

func threadsOf(p *corev1.Pod) string {
	if env := p.Spec.Containers[0].Env; len(env) > 0 {
		return env[0].Value
	}
	return ""
}

// A variant whose pod the API refuses is found before any daemon is taken down for it, also when a start comes between,
// and says what the API says. Mended, it goes out.
func TestAPodThatTheAPIRefusesIsTriedFirst(t *testing.T) {
	a, want := newPicky(t, func(p *corev1.Pod) error {
		if threadsOf(p) == "13" {
			return invalidPod(p, "13 brings bad luck")
		}
		return nil
	})
	stop := a.start(t)
	settled(t, a.fakeAPI, "logs", 4)
	before := wantDaemons(t, a.fakeAPI, want)
	patch := func(n int) {
		edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
			v.Spec.Patch, v.Generation = &runtime.RawExtension{Raw: []byte(threads(n))}, v.Generation+1
		})
	}
	patch(13)
	a.applies(t, metav1.ConditionFalse,
		"DaemonSet logs: nothing changes: DaemonSetVariant large makes a pod that the API refuses",
		"as tried for node n1", "13 brings bad luck")
	if got := changed(before, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("%v lost their daemon to what the API refuses", got)
	}
	stop()
	defer a.start(t)()
	a.applies(t, metav1.ConditionFalse, "13 brings bad luck")
	if got := changed(before, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("%v lost their daemon to what the API refuses, after a start", got)
	}
	if tried := a.tried.Load(); tried > 6 {
		t.Errorf("the API was asked %d times", tried)
	}
	patch(12)
	want["n1"], want["n3"] = "threads 12", "threads 12"
	wantDaemons(t, a.fakeAPI, want)
	a.applies(t, metav1.ConditionTrue)
}

// So is a template with which a variant of before makes such a pod: nobody loses a daemon, and no other class is begun.
func TestATemplateThatAVariantDoesNotFitIsTriedFirst(t *testing.T) {
	a, want := newPicky(t, func(p *corev1.Pod) error {
		if threadsOf(p) == "8" && p.Spec.Containers[0].Image == "demo:v2" {
			return invalidPod(p, "v2 has no threads")
		}
		return nil
	})
	defer a.start(t)()
	settled(t, a.fakeAPI, "logs", 4)
	before := wantDaemons(t, a.fakeAPI, want)
	edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Containers[0].Image, ds.Generation = "demo:v2", ds.Generation+1
	})
	a.applies(t, metav1.ConditionFalse, "v2 has no threads")
	if got := changed(before, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Errorf("%v lost their daemon to what the API refuses", got)
	}
	edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Patch, v.Generation = &runtime.RawExtension{Raw: []byte(threads(9))}, v.Generation+1
	})
	want["n1"], want["n3"] = "threads 9", "threads 9"
	wantDaemons(t, a.fakeAPI, want)
	a.applies(t, metav1.ConditionTrue)
	a.shows(t, "map[demo:v2:4]")
}

// What says nothing against the template hinders nothing: a quota that is used up, a webhook that cannot be asked.
func TestTrialsThatSayNothing(t *testing.T) {
	for name, err := range map[string]error{
		"a quota":   apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("exceeded quota: few")),
		"a webhook": apierrors.NewBadRequest("admission webhook \"w\" does not support dry run"),
	} {
		t.Run(name, func(t *testing.T) {
			a, want := newPicky(t, func(*corev1.Pod) error { return err })
			a.refuseCreate = nil
			defer a.start(t)()
			settled(t, a.fakeAPI, "logs", 4)
			wantDaemons(t, a.fakeAPI, want)
			edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
				v.Spec.Patch, v.Generation = &runtime.RawExtension{Raw: []byte(threads(9))}, v.Generation+1
			})
			want["n1"], want["n3"] = "threads 9", "threads 9"
			wantDaemons(t, a.fakeAPI, want)
			a.applies(t, metav1.ConditionTrue)
			if a.tried.Load() == 0 {
				t.Error("nothing was tried")
			}
		})
	}
}
