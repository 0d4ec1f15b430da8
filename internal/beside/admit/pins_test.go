package admit

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/pinning"
)

// TestWhichDigestsAreARevisions: a content has those of its template; of what is neither known nor the target nothing
// is asked.
func TestWhichDigestsAreARevisions(t *testing.T) {
	known := &v1alpha1.ImagesStatus{Templates: []v1alpha1.PinnedTemplate{
		{Template: "old", Images: []v1alpha1.PinnedImage{{Image: "a:1", Digest: "sha256:1"}}}}}
	status := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "old." + someID, TargetRevision: "new." + someID, Images: known}
	for _, c := range []struct {
		of            string
		images, first bool
	}{{"old." + someID, true, false}, {"old", true, false}, {"new." + someID, false, true}, {"other", false, false}, {"", false, false}} {
		images, first := Pins(status, c.of)
		if len(images) > 0 != c.images || first != c.first {
			t.Errorf("%s has %v, and its pod is to find out: %t", c.of, images, first)
		}
	}
	status.Images = &v1alpha1.ImagesStatus{}
	if images, first := Pins(status, "old."+someID); images != nil || !first {
		t.Errorf("of the stable template is known %v, and its pod is to find out: %t", images, first)
	}
	status.Images = nil
	if images, first := Pins(status, "new."+someID); images != nil || first {
		t.Errorf("where nothing is pinned it has %v, %t", images, first)
	}
}

const someID = "abcdefghijklmnopqrstuvwx"

// TestAPodNamesTheDigestsOfItsRevision, whether it is made of that or of another one; and waits where nobody knows them.
func TestAPodNamesTheDigestsOfItsRevision(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0c", 32)
	from, to := templateOf("agent:2"), templateOf("agent:1")
	revisions := []*appsv1.ControllerRevision{revisionOf(t, "new", from), revisionOf(t, "old", to)}
	for name, c := range map[string]struct {
		in     NewPod
		image  string
		policy corev1.PullPolicy
		gates  int
	}{
		"of its template, known":   {NewPod{Want: "new", Images: []v1alpha1.PinnedImage{{Image: "agent:2", Digest: digest}}}, "agent@" + digest, "", 0},
		"of its template, unknown": {NewPod{Want: "new", First: true}, "agent:2", corev1.PullAlways, 1},
		"of another one, known":    {NewPod{Want: "old", Images: []v1alpha1.PinnedImage{{Image: "agent:1", Digest: digest}}}, "agent@" + digest, "", 0},
		"of another one, unknown":  {NewPod{Want: "old", First: true}, "agent:1", corev1.PullAlways, 1},
		"the node knows no digest": {NewPod{Want: "new", Images: []v1alpha1.PinnedImage{{Image: "agent:2"}}}, "agent:2", "", 0},
		"another image's digest":   {NewPod{Want: "old", Images: []v1alpha1.PinnedImage{{Image: "agent:2", Digest: digest}}}, "agent:1", "", 0},
		"nothing is pinned":        {NewPod{Want: "old"}, "agent:1", "", 0},
	} {
		pod := made(from, "new", "node-1")
		c.in.Pod, c.in.Revisions = encode(t, pod), revisions
		got := Pod(c.in)
		is := *pod
		switch {
		case got.Verb == Rewrite:
			is = corev1.Pod{}
			apply(t, c.in.Pod, got.Patch, &is)
		case got.Verb != AsMade:
			t.Errorf("%s: %v", name, got)
		}
		main := &is.Spec.Containers[0]
		if main.Image != c.image || main.ImagePullPolicy != c.policy || len(is.Spec.SchedulingGates) != c.gates || pinning.IsGated(&is.Spec) != (c.gates > 0) {
			t.Errorf("%s: the pod is %+v", name, is.Spec)
		}
		if is.Labels[appsv1.ControllerRevisionHashLabelKey] != c.in.Want {
			t.Errorf("%s: its labels are %v", name, is.Labels)
		}
	}
	got := Pod(NewPod{Pod: encode(t, made(from, "new", "node-1")), Want: "new", First: true})
	if got.Verb != Unknown || !strings.Contains(got.Why, "whose images are pinned") {
		t.Errorf("without the revision it is %v", got)
	}
}
