package statefulset

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/internal/loop/podwriter"
)

// recorded are events.
type recorded []string

func (r *recorded) Eventf(_ runtime.Object, kind, reason, text string, args ...any) {
	*r = append(*r, kind+" "+reason+" "+fmt.Sprintf(text, args...))
}

// A claim that is on its way out is looked for soon again, however often that was in vain, and the set says what it waits for.
func TestAClaimThatLeavesIsWaitedFor(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web-0", Finalizers: []string{"f"}, DeletionTimestamp: ptr.To(metav1.Now())}}
	api, events := fake.NewClientset(), &recorded{}
	r := newReconciler(crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRuntimeObjects(claim).Build(), clientWriter{podwriter.Writer{Client: api}}, Config{Events: events})
	err := r.createPod(t.Context(), set, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0"}})
	if len(api.Actions()) > 0 {
		t.Errorf("it is not waited for: %v", api.Actions())
	}
	if want := []string{"Warning FailedCreate create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted"}; !slices.Equal(*events, want) {
		t.Errorf("the events are %q", *events)
	}
	if result, err := patient(ctrl.Result{}, errors.Join(nil, err)); err != nil || result.RequeueAfter != leavesPause {
		t.Errorf("it is looked for again by %+v, %v", result, err)
	}
	refused := errors.New("refused")
	if result, err := patient(ctrl.Result{}, refused); !errors.Is(err, refused) || !result.IsZero() {
		t.Errorf("what was refused is tried again by %+v, %v", result, err)
	}
}
