package dashboard

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/change/history"
)

// undone is a DaemonSet with image 2, whose revision "aaa" has image 1.
func undone(t *testing.T) (*appsv1.DaemonSet, *appsv1.ControllerRevision) {
	t.Helper()
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "agent:1"}}}}
	raw, err := history.Patch(&template)
	if err != nil {
		t.Fatal(err)
	}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "u", Generation: 7, ResourceVersion: "70"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Template: *template.DeepCopy(),
	}}
	ds.Spec.Template.Spec.Containers[0].Image = "agent:2"
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-aaa",
		Labels:          map[string]string{"app": "agent", appsv1.ControllerRevisionHashLabelKey: "aaa"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
	}, Revision: 3, Data: runtime.RawExtension{Raw: raw}}
	return ds, r
}

func TestUndoOfWhatWasShown(t *testing.T) {
	shown := order{Revision: "aaa", UID: "u", Generation: 7}
	for name, c := range map[string]struct {
		order  order
		before func(ds *appsv1.DaemonSet, r *appsv1.ControllerRevision)
		says   string
		writes int
	}{
		"as it was shown":        {order: shown, says: "is rolled back to revision 3", writes: 1},
		"somebody changed it":    {order: shown, before: func(ds *appsv1.DaemonSet, _ *appsv1.ControllerRevision) { ds.Generation = 8 }, says: "nothing is undone: somebody has changed daemonset default/agent meanwhile"},
		"somebody made it again": {order: shown, before: func(ds *appsv1.DaemonSet, _ *appsv1.ControllerRevision) { ds.UID = "v" }, says: "nothing is undone: daemonset default/agent was deleted meanwhile"},
		"the revision was cleaned up": {order: shown, before: func(_ *appsv1.DaemonSet, r *appsv1.ControllerRevision) {
			r.Labels[appsv1.ControllerRevisionHashLabelKey] = "bbb"
		}, says: "revision aaa of daemonset default/agent is not kept any more"},
		"the revision is somebody else's": {order: shown, before: func(_ *appsv1.DaemonSet, r *appsv1.ControllerRevision) { r.OwnerReferences[0].UID = "w" }, says: "is not kept any more"},
		"it has that template": {order: shown, before: func(ds *appsv1.DaemonSet, _ *appsv1.ControllerRevision) {
			ds.Spec.Template.Spec.Containers[0].Image = "agent:1"
		}, says: "has the template of revision 3 already"},
		"nobody says what was shown":       {order: order{Revision: "aaa"}, says: "say which revision"},
		"nobody says where it is to go to": {order: order{UID: "u", Generation: 7}, says: "say which revision"},
	} {
		ds, r := undone(t)
		if c.before != nil {
			c.before(ds, r)
		}
		core := fake.NewClientset(ds, r)
		done, err := (&Dashboard{core: core}).undo(t.Context(), "default", "agent", c.order)
		if err != nil {
			done = err.Error()
		}
		if !strings.Contains(done, c.says) {
			t.Errorf("%s: it says %q, want %q", name, done, c.says)
		}
		writes := 0
		for _, a := range core.Actions() {
			if patch, is := a.(clienttesting.PatchAction); is {
				writes++
				checkPatch(t, name, patch)
			}
		}
		if writes != c.writes {
			t.Errorf("%s: %d writes, want %d", name, writes, c.writes)
		}
	}
}

// checkPatch wants the template, and the version that was looked at.
func checkPatch(t *testing.T, name string, a clienttesting.PatchAction) {
	t.Helper()
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct {
			Template struct {
				Spec struct{ Containers []struct{ Image string } }
			}
		}
	}
	if err := json.Unmarshal(a.GetPatch(), &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata.ResourceVersion != "70" || patch.Spec.Template.Spec.Containers[0].Image != "agent:1" || a.GetPatchType() != types.StrategicMergePatchType {
		t.Errorf("%s: the patch is %s", name, a.GetPatch())
	}
}

// TestUndoAgainstSomebodyQuicker loses to a change that comes between the look and the write, and not to a new status.
func TestUndoAgainstSomebodyQuicker(t *testing.T) {
	for _, specToo := range []bool{false, true} {
		ds, r := undone(t)
		core := fake.NewClientset(ds, r)
		tries := 0
		core.PrependReactor("patch", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			if tries > 1 {
				return true, ds, nil
			}
			now := ds.DeepCopy()
			if specToo {
				now.Generation++
			}
			if err := core.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("daemonsets"), now, "default"); err != nil {
				t.Fatal(err)
			}
			return true, nil, apierrors.NewConflict(appsv1.Resource("daemonsets"), "agent", nil)
		})
		_, err := (&Dashboard{core: core}).undo(t.Context(), "default", "agent", order{Revision: "aaa", UID: "u", Generation: 7})
		switch {
		case specToo && (err == nil || !strings.Contains(err.Error(), "somebody has changed") || tries != 1):
			t.Errorf("after a change in between, and %d tries, the error is %v", tries, err)
		case !specToo && (err != nil || tries != 2):
			t.Errorf("after a new status in between, and %d tries, the error is %v", tries, err)
		}
	}
}
