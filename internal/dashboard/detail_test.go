package dashboard

import (
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// TestContentIsNamed: the page names what is a part of a revision, and says whether other content is on its way.
func TestContentIsNamed(t *testing.T) {
	const before, after = "t.aaaaaaaaaaaaaaaaaaaaaaaa", "t.bbbbbbbbbbbbbbbbbbbbbbbb"
	volume := func(name string, s corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: s}
	}
	configMap := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
	}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "u"}}
	ds.Spec.Template.Spec.Volumes = []corev1.Volume{
		volume("a", configMap("agent")), volume("b", configMap("company-ca")),
		volume("c", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}}),
	}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful"}}
	changes := &v1alpha1.ContentStatus{Changes: []string{"ConfigMap agent: agent.conf"}}
	rollout := &v1alpha1.DaemonSetRollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", Labels: map[string]string{rollouts.OwnerLabel: "u"}},
		Status:     v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseSoaking, StableRevision: before, TargetRevision: after, Content: changes},
	}
	shown := func() *setContent {
		return setOf(survey.New(survey.Objects{
			DaemonSets: []*appsv1.DaemonSet{ds}, Policies: []*v1alpha1.RolloutPolicy{policy},
			Rollouts: []*v1alpha1.DaemonSetRollout{rollout}, Locate: time.LoadLocation,
		}), ds).Content
	}
	if got := shown(); got != nil {
		t.Errorf("without content in the policy the page has %+v", got)
	}
	policy.Spec.Content = &v1alpha1.Content{Exclude: &v1alpha1.ContentExclusion{Names: []string{"company-ca"}}}
	lines := []string{"content: ConfigMap agent: agent.conf"}
	if got, want := shown(), (&setContent{[]string{"ConfigMap agent"}, true, lines}); !reflect.DeepEqual(got, want) {
		t.Errorf("during a change the page has %+v, want %+v", got, want)
	}
	policy.Spec.Content.Secrets = v1alpha1.ContentReferenced
	rollout.Status.Phase = v1alpha1.PhaseRolledBack
	want := &setContent{[]string{"ConfigMap agent", "Secret token"}, false, lines}
	if got := shown(); !reflect.DeepEqual(got, want) {
		t.Errorf("after it the page has %+v, want %+v", got, want)
	}
}

// TestDigestsAndFetchingAreTold: the page says what images are pinned to, and why nodes fetch none; without a policy that
// asks for that it has nothing of it.
func TestDigestsAndFetchingAreTold(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "u"}}
	rollout := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "agent", Labels: map[string]string{rollouts.OwnerLabel: "u"},
	}}
	shown := func() string {
		return strings.Join(setOf(survey.New(survey.Objects{
			DaemonSets: []*appsv1.DaemonSet{ds}, Rollouts: []*v1alpha1.DaemonSetRollout{rollout}, Locate: time.LoadLocation,
		}), ds).Lines, "\n")
	}
	if got := shown(); got != "" {
		t.Errorf("of a rollout that says nothing of images the page has %q", got)
	}
	rollout.Status.Images = &v1alpha1.ImagesStatus{Templates: []v1alpha1.PinnedTemplate{
		{Template: "t", Node: "n1", Images: []v1alpha1.PinnedImage{
			{Image: "demo:v1", Digest: "sha256:1"}, {Image: "kept:v1"},
		}},
	}}
	rollout.Status.Fetch = &v1alpha1.FetchStatus{Message: v1alpha1.NoFetch}
	const want = "image demo:v1 is sha256:1, which n1 got\nfetch: " + v1alpha1.NoFetch
	if got := shown(); got != want {
		t.Errorf("the page has %q, want %q", got, want)
	}
}

// TestLongLinesOfLogsAreBroken: a page waits for the end of a line, and keeps lines.
func TestLongLinesOfLogsAreBroken(t *testing.T) {
	w := httptest.NewRecorder()
	long := strings.Repeat("x", 3*longestLine+5)
	relay(w, strings.NewReader("one\n\ntwo\n"+long+"\nrest"))
	got := w.Body.String()
	if !strings.HasPrefix(got, "one\n\ntwo\nx") || !strings.HasSuffix(got, "x\nrest") || strings.Count(got, "x") != len(long) {
		t.Errorf("of a log of %d bytes %d came, %.20q... to %q", len(long)+13, len(got), got, got[max(0, len(got)-20):])
	}
	for _, line := range strings.Split(got, "\n") {
		if len(line) > longestLine {
			t.Errorf("a line has %d bytes, more than %d", len(line), longestLine)
		}
	}
}
