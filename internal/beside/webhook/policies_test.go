package webhook

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// TestAPolicyThatCannotBeFollowedLetsNothingGoOn: where nobody can say, in the middle of a change, in which step a node
// is, its pod gets what it had before.
func TestAPolicyThatCannotBeFollowedLetsNothingGoOn(t *testing.T) {
	objects := api{setPath: set("")}
	var revisions appsv1.ControllerRevisionList
	template := set("").Spec.Template
	for _, hash := range []string{"old", "new"} {
		template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "agent:" + hash}}
		text, err := history.Patch(&template)
		if err != nil {
			t.Fatal(err)
		}
		revisions.Items = append(revisions.Items, appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: text},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-" + hash, UID: types.UID("of " + hash),
				OwnerReferences: controlled, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}}})
	}
	objects["/apis/apps/v1/namespaces/default/controllerrevisions"] = &revisions
	objects["/api/v1/nodes/node-1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	rollout := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
		Labels: map[string]string{rollouts.OwnerLabel: "1"}}}
	rollout.Status.StableRevision, rollout.Status.TargetRevision, rollout.Status.Step = "old", "new", "canary"
	objects[rolloutPath] = rollout
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", OwnerReferences: controlled,
		Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "new"}}, Spec: template.Spec}
	pod.Spec.Affinity = placement.PinToNode(nil, "node-1")
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{Namespace: "default",
		Object: raw(t, pod)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec v1alpha1.RolloutPolicySpec
		want string
	}{
		"followed": {v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "canary", Count: ptr.To[int32](1)}}}, ""},
		"of another time zone": {v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "canary", Count: ptr.To[int32](1)}},
			Windows: []v1alpha1.Window{{TimeZone: "Mars/Olympus", From: "00:00", To: "01:00"}}}, "agent:old"},
		"without that step": {v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "other", Count: ptr.To[int32](1)}}},
			"agent:old"},
	} {
		objects[policiesPath] = &v1alpha1.RolloutPolicyList{Items: []v1alpha1.RolloutPolicy{{Spec: c.spec,
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agents"}}}}
		_, got := post(t, newServer(t, objects, false), "pod", string(body))
		if !got.Allowed || !strings.Contains(string(got.Patch), c.want) || c.want == "" && got.Patch != nil {
			t.Errorf("%s: the pod is to be %q, and the answer is %+v with %s", name, c.want, got, got.Patch)
		}
	}
}
