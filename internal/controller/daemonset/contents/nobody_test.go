package contents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/content"
)

// The API takes any name of an object in a volume, also one that no object can have. There can be no copy of that name
// either, and the change goes on without.
func TestWhatNobodyCanMakeNeedsNoCopy(t *testing.T) {
	refuses := func(j *Job) string {
		for _, o := range j.Make {
			if errs := validation.IsDNS1123Subdomain(o.GetName()); len(errs) > 0 {
				return "copy " + o.GetName() + " cannot be made: " + errs[0]
			}
		}
		return ""
	}
	for _, name := range []string{"Extra_Conf", "_extra", strings.Repeat("a", 254)} {
		w := newWorldWith(t, careful, refuses)
		before := w.restarts
		w.set = w.set.DeepCopy()
		w.set.Spec.Template.Spec.Volumes = append(w.set.Spec.Template.Spec.Volumes, corev1.Volume{
			Name: "x", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: ptr.To(true)}}})
		w.edit()
		w.pass(10 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		if w.restarts != before+5 || content.TemplateOf(w.status().StableRevision) != "t2" {
			t.Errorf("%q: %d pods were made, want 5", name, w.restarts-before)
		}
		w.pass(10 * time.Minute)
		if w.copies() != 3 {
			t.Errorf("%q: there are %d copies, want 3", name, w.copies())
		}
	}
}

// After an upgrade there is no empty copy yet, and a quota has no room for one. A pod that is lost is made all the same:
// it reads nothing in its place.
func TestEmptyCopyThatCannotBeMadeHoldsUpNoPod(t *testing.T) {
	w := newWorld(t, careful)
	w.drop(confRef)
	w.pass(time.Minute)
	stable := w.status().StableRevision
	w.refuse = func(j *Job) string {
		if len(j.Make) > 0 {
			return "copy conf-x cannot be made: exceeded quota: few"
		}
		return ""
	}
	empty := w.copyOf(stable)
	w.drop(empty)
	w.start(true)
	w.matrix.Step(podGone(w, "n2"))
	w.pass(time.Minute)
	if _, is := w.pods["n2"]; !is || w.objects[empty] != nil {
		t.Errorf("the pod that was lost is not made again, or there is %v", w.objects[empty])
	}
	w.refuse = nil
	w.pass(2 * time.Minute)
	if w.objects[empty] == nil || w.status().StableRevision != stable {
		t.Errorf("there is no empty copy when there is room, and the stable revision is %s", w.status().StableRevision)
	}
}
