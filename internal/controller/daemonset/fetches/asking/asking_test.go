package asking

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches"
)

// taken is an API in which each name is taken.
type taken struct {
	Writer
	by *corev1.Pod // nil for one that is gone by now
}

func (t taken) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return nil, apierrors.NewAlreadyExists(corev1.Resource("pods"), p.Name)
}

func (t taken) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	if t.by == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return t.by, nil
}

func TestWhoHasTheName(t *testing.T) {
	of := func(daemon string) *corev1.Pod {
		p := (&fetchpod.Order{DaemonUID: types.UID(daemon), Revision: "b", Spec: &corev1.PodSpec{}}).Pod()
		p.Name = "fetch"
		return p
	}
	for name, c := range map[string]struct {
		by   *corev1.Pod
		want string
	}{
		"one from before":             {of("d0"), ""},
		"one that fetches for others": {of("d1"), "there is another pod of the name fetch"},
		"one with its label only": {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: of("d0").Labels}},
			"there is another pod of the name fetch"},
		"somebody else's": {&corev1.Pod{}, "there is another pod of the name fetch"},
		"nobody any more": {nil, ""},
	} {
		if r := Do(t.Context(), taken{by: c.by}, fetches.Job{Make: of("d0")}); r.Why != "" || r.Taken != c.want {
			t.Errorf("%s: it is told that %+v, want %q", name, r, c.want)
		}
	}
}

// An agent is told where the account's secrets count: those of the present pod are of when it was made.
func TestWhatAnAgentIsToldOfPullSecrets(t *testing.T) {
	own := []corev1.LocalObjectReference{{Name: "own"}}
	present := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "robot", ImagePullSecrets: own}}
	for name, c := range map[string]struct {
		next      corev1.PodSpec
		present   *corev1.Pod
		lacks     string
		ofAccount bool
	}{
		"its own":         {next: corev1.PodSpec{ServiceAccountName: "robot", ImagePullSecrets: own}, present: present},
		"the account's":   {next: corev1.PodSpec{ServiceAccountName: "robot"}, present: present, ofAccount: true},
		"another account": {present: present, lacks: "the pull secrets of service account default", ofAccount: true},
		"no pod":          {},
	} {
		if r := For("b", &c.next, c.present); r.Lacks != c.lacks || r.OfAccount != c.ofAccount {
			t.Errorf("%s: it is told %+v", name, r)
		}
	}
}
