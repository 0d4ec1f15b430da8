package pins

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

const rules = "example.com/rules:live"

// withVolume has the template mount an image, in its second container.
func (w *world) withVolume(image string) *world {
	spec := &w.set.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "rules", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: corev1.PullIfNotPresent}}})
	spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "rules", MountPath: "/rules"}}
	return w
}

// mounted is what the node says of a container's mounts; kubelets of older releases say nothing of images.
func (w *world) mounted(p *corev1.Pod, c *corev1.Container, had []corev1.VolumeMountStatus) []corev1.VolumeMountStatus {
	if had != nil || w.slow[p.Spec.NodeName] || w.silent {
		return had
	}
	var out []corev1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		image := p.Spec.Volumes[at].Image.Reference
		name, digest, byDigest := strings.Cut(image, "@")
		if !byDigest {
			name, digest = repository(image), w.registry[image]
		}
		out = append(out, corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, VolumeStatus: &corev1.VolumeStatus{
			Image: &corev1.ImageVolumeStatus{ImageRef: full(name) + "@" + digest}}})
	}
	return out
}

// volumes counts the pods by what their volume names.
func (w *world) volumes() string {
	out := map[string]int{}
	for _, p := range w.pods {
		out[p.Spec.Volumes[0].Image.Reference]++
	}
	return fmt.Sprint(out)
}

// TestAllMountWhatTheFirstNodeGot: the tag moves as soon as the first node has it.
func TestAllMountWhatTheFirstNodeGot(t *testing.T) {
	w := newWorld(t, pinned).withVolume(rules)
	w.registry[rules] = sha(5)
	w.slowAll()
	w.start()
	w.pass(time.Minute)
	if len(w.pods) != 1 {
		t.Fatalf("%d pods pull, want one", len(w.pods))
	}
	for _, p := range w.pods {
		if v := p.Spec.Volumes[0].Image; v.Reference != rules || v.PullPolicy != corev1.PullAlways {
			t.Errorf("the first pod mounts %+v", v)
		}
		delete(w.slow, p.Spec.NodeName)
	}
	w.again()
	w.registry[rules] = sha(6)
	clear(w.slow)
	w.pass(time.Minute)
	want := fmt.Sprint(map[string]int{rules: 1, "example.com/rules@" + sha(5): 5})
	if got := w.volumes(); got != want || w.stored.Images.Message != "" {
		t.Errorf("pods mount %s, want %s; the rollout says %+v", got, want, w.stored.Images)
	}
	// Pods that are made later mount the same, also when the controller has started again.
	clear(w.pods)
	w.start()
	w.pass(time.Minute)
	want = fmt.Sprint(map[string]int{"example.com/rules@" + sha(5): 6})
	if got := w.volumes(); got != want {
		t.Errorf("later pods mount %s, want %s", got, want)
	}
	// Another template asks again, and the rollout says that the tag has moved.
	w.edit()
	w.pass(10 * time.Minute)
	want = fmt.Sprint(map[string]int{rules: 1, "example.com/rules@" + sha(6): 5})
	if got := w.volumes(); got != want {
		t.Errorf("pods of the next template mount %s, want %s", got, want)
	}
}

// TestNodesThatDoNotSayWhatTheyMount: nobody waits for that, and all else is pinned.
func TestNodesThatDoNotSayWhatTheyMount(t *testing.T) {
	w := newWorld(t, pinned).withVolume(rules)
	w.registry[rules], w.silent = sha(5), true
	w.start()
	w.pass(time.Minute)
	want := fmt.Sprint(map[string]int{rules: 6})
	if got := w.volumes(); got != want {
		t.Errorf("pods mount %s, want %s", got, want)
	}
	w.wantRuns(map[string]int{byTag(1): 1, byDigest(1): 5})
	says := rules + ", of a volume, is taken as written: " + w.stored.Images.Templates[0].Node + " does not say the digest that it got"
	if w.stored.Images == nil || w.stored.Images.Message != says {
		t.Errorf("the rollout says %+v, want %s", w.stored.Images, says)
	}
}

// TestVolumesThatNobodyWasAskedFor: what an earlier release has found out says nothing of volumes.
func TestVolumesThatNobodyWasAskedFor(t *testing.T) {
	w := newWorld(t, pinned).withVolume(rules)
	w.registry[rules] = sha(5)
	w.start()
	w.pass(time.Minute)
	known := w.stored.Images.Templates[0].Images
	w.stored.Images.Templates[0].Images = slices.DeleteFunc(known, func(i v1alpha1.PinnedImage) bool { return i.Image == rules })
	clear(w.pods)
	w.start()
	w.pass(time.Minute)
	says := rules + " is taken as written: nobody asked " + w.stored.Images.Templates[0].Node + " for its digest. kubectl rollout restart does"
	if got, want := w.volumes(), fmt.Sprint(map[string]int{rules: 6}); got != want || w.stored.Images.Message != says {
		t.Errorf("pods mount %s, want %s; the rollout says %+v, want %s", got, want, w.stored.Images, says)
	}
}

// TestANodeWithAnotherVolumeTellsNothing: a variant gives some nodes another image to mount.
func TestANodeWithAnotherVolumeTellsNothing(t *testing.T) {
	const other = "example.com/rules:small"
	w := newWorld(t, pinned).withVolume(rules)
	w.registry[rules], w.registry[other] = sha(5), sha(6)
	w.patchedVolume = map[string]string{"n0": other, "n1": other}
	w.start()
	w.pass(3 * time.Minute)
	want := fmt.Sprint(map[string]int{other: 2, rules: 1, "example.com/rules@" + sha(5): 3})
	if got := w.volumes(); got != want || len(w.stored.Images.Templates) != 1 {
		t.Errorf("pods mount %s, want %s; the rollout says %+v", got, want, w.stored.Images)
	}
}
