package lookup_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/lookup"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

func TestMirrorOpensNoOtherPod(t *testing.T) {
	victim := podstest.Pod("victim")
	forged := podstest.Pod("forged")
	forged.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(victim.UID)}
	l := lookup.Lookup{Static: func(string, string) *corev1.Pod { return nil }}
	if got := l.UIDOf(forged); got != forged.UID {
		t.Errorf("a pod with the annotation of a mirror stands for %s", got)
	}
	static := podstest.StaticPod("forged", "1")
	l.Static = func(string, string) *corev1.Pod { return static }
	if got := l.UIDOf(forged); got != static.UID {
		t.Errorf("the mirror stands for %s, want the static pod of its name", got)
	}
}
