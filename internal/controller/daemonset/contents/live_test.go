package contents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestContentIsGivenToRunningPods(t *testing.T) {
	w := newWorld(t, plain)
	w.wantPhase(complete, "5 of 5")
	made := w.restarts
	// Content that comes under the policy is a change, and so is one that fails and one that does not: no pod is
	// replaced but the one that does not work any more.
	w.policy = w.compile(live)
	w.tellPolicy()
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	if w.restarts != made || w.pointed != 5 {
		t.Errorf("content was given to %d pods, and %d were replaced; want 5 and none", w.pointed, w.restarts-made)
	}
	w.write("bad")
	w.pass(10 * time.Minute)
	w.wantPhase(rolledBack, "failed on 1 of 1 node")
	w.wantRuns(map[string]int{"good": 5})
	if w.restarts != made+1 || w.pointed != 6 {
		t.Errorf("%d pods were given the bad content, and %d replaced; want the canary alone", w.pointed-5, w.restarts-made)
	}
	w.start(true) // another process knows as much
	w.write("mended")
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"mended": 5})
	if w.restarts != made+1 || w.pointed != 11 {
		t.Errorf("%d pods were given the mended content, and %d replaced; want all and none", w.pointed-6, w.restarts-made-1)
	}
	w.pass(10 * time.Minute)
	if w.copies() != 3 {
		t.Errorf("there are %d copies, want those of one content", w.copies())
	}
}

// What a running pod cannot follow replaces it, and the status says so.
func TestContentThatPodsCannotFollowReplacesThem(t *testing.T) {
	env := func(w *world) {
		c := corev1.Container{Name: "agent", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}}}
		w.set.Spec.Template.Spec.Containers = []corev1.Container{c}
	}
	part := func(w *world) {
		c := corev1.Container{Name: "agent", VolumeMounts: []corev1.VolumeMount{{Name: "c", MountPath: "/a", SubPath: "agent.conf"}}}
		w.set.Spec.Template.Spec.Containers = []corev1.Container{c}
	}
	for want, change := range map[string]func(*world){
		"container agent has environment variables of ConfigMap conf": env,
		"container agent mounts ConfigMap conf by subPath":            part,
		NoLive: func(w *world) { w.foreign = true },
		"with maxSurge a new pod starts beside the old one": func(w *world) { w.surge = true },
	} {
		w := newWorld(t, live)
		w.set = w.set.DeepCopy()
		w.set.Generation++
		change(w)
		w.start(true)
		w.pass(time.Minute)
		w.wantPhase(complete, "5 of 5")
		made, pointed := w.restarts, w.pointed
		w.said = nil
		w.write("better")
		w.pass(6 * time.Second)
		if c := w.said; c == nil || c.Restarts != want || !strings.Contains(strings.Join(c.Lines(), "\n"), want) {
			t.Errorf("the status says %+v, want %q", c, want)
		}
		w.pass(time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantRuns(map[string]int{"better": 5})
		if w.restarts != made+5 || w.pointed != pointed {
			t.Errorf("%s: %d pods were replaced, and %d given it as they ran", want, w.restarts-made, w.pointed-pointed)
		}
	}
}
