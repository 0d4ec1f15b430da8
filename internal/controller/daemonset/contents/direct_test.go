package contents

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// A template is written from a pod, and names a copy. That is an object like others then, also beside the author's, and
// stays for as long as the template names it.
func TestATemplateThatNamesACopy(t *testing.T) {
	for _, beside := range []bool{true, false} {
		w := newWorld(t, careful)
		ref := w.copyOf(w.status().StableRevision)
		w.set = w.set.DeepCopy()
		conf := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}}}
		volumes := &w.set.Spec.Template.Spec.Volumes
		if beside {
			*volumes = append(*volumes, corev1.Volume{Name: "x", VolumeSource: conf})
		} else {
			(*volumes)[0].VolumeSource = conf
		}
		w.edit()
		w.pass(20 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		stable, made := w.status().StableRevision, w.restarts
		w.start(true)
		w.pass(20 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		if is := w.status().StableRevision; is != stable || content.TemplateOf(is) != "t2" || w.restarts != made {
			t.Errorf("beside %t: the stable revision is %s, and later %s", beside, stable, is)
		}
		if w.objects[ref] == nil {
			t.Errorf("beside %t: %s is gone, which the template names", beside, ref)
		}
		w.set = w.set.DeepCopy()
		volumes = &w.set.Spec.Template.Spec.Volumes
		(*volumes)[0].ConfigMap.Name, *volumes = "conf", (*volumes)[:2]
		w.edit()
		w.pass(20 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		if w.copies() != 3 {
			t.Errorf("beside %t: there are %d copies in the end, want 3", beside, w.copies())
		}
	}
}
