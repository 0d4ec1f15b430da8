package webhook

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

// pinning is an API whose DaemonSet has its images pinned, and no content.
func pinning(t *testing.T) (api, *v1alpha1.DaemonSetRolloutStatus) {
	t.Helper()
	objects, _ := world(t)
	policies := objects[policiesPath].(*v1alpha1.RolloutPolicyList)
	policies.Items[0].Spec.Content, policies.Items[0].Spec.Images = nil, v1alpha1.ImagesPinned
	rollout := objects[rolloutPath].(*v1alpha1.DaemonSetRollout)
	rollout.Status.StableRevision, rollout.Status.TargetRevision, rollout.Status.Images = "hash", "hash", &v1alpha1.ImagesStatus{}
	return objects, &rollout.Status
}

const waits = `[{"op":"add","path":"/spec/containers/0/imagePullPolicy","value":"Always"},` +
	`{"op":"add","path":"/spec/schedulingGates","value":[{"name":"everynode.io/first-node"}]}]`

// TestAPodWaitsUntilItMayAskARegistry, and is never refused: that would back its DaemonSet's controller off.
func TestAPodWaitsUntilItMayAskARegistry(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0c", 32)
	known := []v1alpha1.PinnedTemplate{{Template: "hash", Images: []v1alpha1.PinnedImage{{Image: "agent:1", Digest: digest}}}}
	for name, c := range map[string]struct {
		change func(api, *v1alpha1.DaemonSetRolloutStatus)
		patch  string
	}{
		"nobody knows its digest": {func(api, *v1alpha1.DaemonSetRolloutStatus) {}, waits},
		"it is known": {func(_ api, s *v1alpha1.DaemonSetRolloutStatus) { s.Images.Templates = known },
			`[{"op":"add","path":"/spec/containers/0/image","value":"agent@` + digest + `"}]`},
		"that of the stable template is known": {func(_ api, s *v1alpha1.DaemonSetRolloutStatus) {
			s.StableRevision, s.TargetRevision, s.Images.Templates = "hash", "other", known
			s.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "other"}}
		}, `[{"op":"add","path":"/spec/containers/0/image","value":"agent@` + digest + `"}]`},
		"that of the stable template is not": {func(_ api, s *v1alpha1.DaemonSetRolloutStatus) {
			s.StableRevision, s.TargetRevision = "hash", "other"
			s.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "other"}}
		}, waits},
		"a new DaemonSet's has failed": {func(_ api, s *v1alpha1.DaemonSetRolloutStatus) {
			s.StableRevision, s.FailedRevisions = "", []v1alpha1.FailedRevision{{Revision: "hash"}}
		}, waits},
		"the rollout says nothing of images": {func(_ api, s *v1alpha1.DaemonSetRolloutStatus) { s.Images = nil }, ""},
		"the policy is gone": {func(_ api, s *v1alpha1.DaemonSetRolloutStatus) {
			s.Conditions = []metav1.Condition{{Type: rollouts.PolicyGone, Status: metav1.ConditionTrue}}
		}, ""},
		"there is no rollout yet": {func(a api, _ *v1alpha1.DaemonSetRolloutStatus) { delete(a, rolloutPath) }, waits},
		"... nor a policy": {func(a api, _ *v1alpha1.DaemonSetRolloutStatus) {
			delete(a, rolloutPath)
			delete(a, policiesPath)
		}, ""},
		"... and images are as written": {func(a api, _ *v1alpha1.DaemonSetRolloutStatus) {
			delete(a, rolloutPath)
			a[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0].Spec.Images = v1alpha1.ImagesAsWritten
		}, ""},
	} {
		objects, status := pinning(t)
		c.change(objects, status)
		got := made(t, newServer(t, objects, true), objects)
		if !got.Allowed || string(got.Patch) != c.patch {
			t.Errorf("%s: the answer is %s (%+v)", name, got.Patch, got)
		}
	}
}

// TestAPodWithContentWaitsToo: it refers to its copies, and is made later where they are not there yet.
func TestAPodWithContentWaitsToo(t *testing.T) {
	objects, c := world(t)
	objects[policiesPath].(*v1alpha1.RolloutPolicyList).Items[0].Spec.Images = v1alpha1.ImagesPinned
	rollout := objects[rolloutPath].(*v1alpha1.DaemonSetRollout)
	rollout.Status.Images = &v1alpha1.ImagesStatus{}
	got := made(t, newServer(t, objects, true), objects)
	for _, says := range []string{`configMapRef/name","value":"` + c.Members[0].Copy, `"value":[{"name":"everynode.io/first-node"}]`} {
		if !got.Allowed || !strings.Contains(string(got.Patch), says) {
			t.Errorf("the patch does not say %s: %+v", says, got)
		}
	}
	delete(objects, rolloutPath)
	ds := objects[setPath].(interface{ SetCreationTimestamp(metav1.Time) })
	ds.SetCreationTimestamp(metav1.Now())
	if got = made(t, newServer(t, objects, true), objects); got.Allowed {
		t.Errorf("a new DaemonSet's pod is made before its content: %+v", got)
	}
	ds.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Minute)))
	if got = made(t, newServer(t, objects, true), objects); !got.Allowed || string(got.Patch) != waits {
		t.Errorf("later the answer is %+v", got)
	}
}

// TestNoPodWaitsWhereNobodyCouldLetItThrough: where the rights are those of a release before.
func TestNoPodWaitsWhereNobodyCouldLetItThrough(t *testing.T) {
	objects, status := pinning(t)
	s := newServer(t, objects, true)
	for _, can := range []bool{false, true} {
		s.LetPodsWait(can)
		for _, begun := range []bool{true, false} {
			rollout := objects[rolloutPath]
			if !begun {
				delete(objects, rolloutPath)
			}
			got := made(t, s, objects)
			if waits := strings.Contains(string(got.Patch), "everynode.io/first-node"); !got.Allowed || waits != can {
				t.Errorf("somebody can: %t, the rollout has begun: %t: the answer is %s", can, begun, got.Patch)
			}
			objects[rolloutPath] = rollout
		}
	}
	s.LetPodsWait(false)
	status.Images.Templates = []v1alpha1.PinnedTemplate{{Template: "hash", Images: []v1alpha1.PinnedImage{{Image: "agent:1", Digest: "sha256:1"}}}}
	if got := made(t, s, objects); !strings.Contains(string(got.Patch), "agent@sha256:1") {
		t.Errorf("a digest that is known is not filled in: %s", got.Patch)
	}
}

// TestAPodMountsWhatTheFirstOneGot: a volume is pinned as a container is, and its pod waits as long as nobody knows it.
func TestAPodMountsWhatTheFirstOneGot(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0c", 32)
	const gated = `[{"op":"add","path":"/spec/volumes/0/image/pullPolicy","value":"Always"},` +
		`{"op":"add","path":"/spec/schedulingGates","value":[{"name":"everynode.io/first-node"}]}]`
	for _, c := range []struct{ digest, patch string }{
		{digest, `[{"op":"add","path":"/spec/volumes/0/image/reference","value":"rules@` + digest + `"}]`}, {"", gated},
	} {
		objects, status := pinning(t)
		spec := &objects[setPath].(*appsv1.DaemonSet).Spec.Template.Spec
		spec.Containers[0].Image = "agent@" + digest
		spec.Volumes = []corev1.Volume{podtest.ImageVolume("rules", "rules:live")}
		revision := &objects["/apis/apps/v1/namespaces/default/controllerrevisions"].(*appsv1.ControllerRevisionList).Items[0]
		data, err := history.Patch(&objects[setPath].(*appsv1.DaemonSet).Spec.Template)
		if err != nil {
			t.Fatal(err)
		}
		revision.Data.Raw = data
		if c.digest != "" {
			status.Images.Templates = []v1alpha1.PinnedTemplate{{Template: "hash", Images: []v1alpha1.PinnedImage{{Image: "rules:live", Digest: c.digest}}}}
		}
		got := made(t, newServer(t, objects, true), objects)
		if !got.Allowed || string(got.Patch) != c.patch {
			t.Errorf("the answer is %s (%+v), want %s", got.Patch, got, c.patch)
		}
	}
}
