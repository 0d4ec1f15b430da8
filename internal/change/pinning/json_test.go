package pinning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
)

var digestOfDemo = "sha256:" + strings.Repeat("0b", 32)

func anyContainers(r *rapid.T, name string) (out []corev1.Container) {
	images := []string{"demo:v1", "demo", "host:5000/team/b:2", "demo@" + digestOfDemo, ""}
	policies := []corev1.PullPolicy{corev1.PullAlways, corev1.PullNever, corev1.PullIfNotPresent, ""}
	for i := range rapid.IntRange(0, 3).Draw(r, name) {
		out = append(out, corev1.Container{Name: fmt.Sprint(name, i), Image: rapid.SampledFrom(images).Draw(r, "image"),
			ImagePullPolicy: rapid.SampledFrom(policies).Draw(r, "policy")})
	}
	return out
}

func anyVolumes(r *rapid.T) (out []corev1.Volume) {
	for i, c := range anyContainers(r, "volume") {
		v := corev1.Volume{Name: fmt.Sprint("volume", i)}
		if c.Image != "" {
			v.Image = &corev1.ImageVolumeSource{Reference: c.Image, PullPolicy: c.ImagePullPolicy}
		}
		out = append(out, v)
	}
	return out
}

func plain(t interface{ Fatal(...any) }, value any) (out map[string]any) {
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestJSONIsFilledAsTypesAre: of a pod that is as its template says both ways make the same, also where they look twice.
func TestJSONIsFilledAsTypesAre(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		template := &corev1.PodSpec{InitContainers: anyContainers(r, "init"), Containers: anyContainers(r, "main"),
			Volumes: anyVolumes(r)}
		var images []v1alpha1.PinnedImage
		first := rapid.Bool().Draw(r, "first")
		if !first {
			for _, image := range Tags(template) {
				images = append(images, v1alpha1.PinnedImage{Image: image, Digest: rapid.SampledFrom([]string{"", digestOfDemo}).Draw(r, "digest")})
			}
		}
		want := template.DeepCopy()
		Fill(want, images, first)
		if first && len(Tags(template)) > 0 {
			want.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}}
		}
		spec := plain(r, template)
		for range 2 {
			_, err := FillJSON(spec, template, images, first)
			if err != nil {
				r.Fatal(err)
			}
			raw, err := json.Marshal(spec)
			if err != nil {
				r.Fatal(err)
			}
			var got corev1.PodSpec
			err = json.Unmarshal(raw, &got)
			if err != nil || !apiequality.Semantic.DeepEqual(&got, want) {
				r.Fatalf("it is %s (%v), want %+v", raw, err, want)
			}
		}
	})
}

// TestVolumesThatOthersChangeStay: a volume that has another image by now, or is none, is none of ours.
func TestVolumesThatOthersChangeStay(t *testing.T) {
	image := func(reference string) corev1.VolumeSource {
		return corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: corev1.PullIfNotPresent}}
	}
	template := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a", VolumeSource: image("demo:v1")}, {Name: "b", VolumeSource: image("demo:v1")},
		{Name: "c", VolumeSource: image("demo:v1")}}}
	pod := template.DeepCopy()
	pod.Volumes[0].Image, pod.Volumes[1].Image.Reference = nil, "mirror.example.com/demo:v1"
	pod.Volumes = append([]corev1.Volume{{Name: "mesh", VolumeSource: image("demo:v1")}}, pod.Volumes...)
	for first, want := range map[bool]string{
		true:  "[{/volumes/3/image/pullPolicy Always} {/schedulingGates [map[name:everynode.io/first-node]]}]",
		false: "[{/volumes/3/image/reference demo@" + digestOfDemo + "}]",
	} {
		images := []v1alpha1.PinnedImage{{Image: "demo:v1", Digest: digestOfDemo}}
		if first {
			images = nil
		}
		got, err := FillJSON(plain(t, pod), template, images, first)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("it changes %v (%v), want %s", got, err, want)
		}
	}
	for _, odd := range []any{"text", []any{1}, []any{map[string]any{"name": "a", "image": 7}}, map[string]any{}} {
		got, err := FillJSON(map[string]any{"volumes": odd}, template, nil, false)
		if got != nil || err != nil {
			t.Errorf("of volumes that are %v it changes %v (%v)", odd, got, err)
		}
	}
}

// TestWhatOthersAddStays: a container that is not the template's, or has another image by now, is none of ours.
func TestWhatOthersAddStays(t *testing.T) {
	template := &corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "demo:v1"}, {Name: "b", Image: "demo:v1"}}}
	pod := template.DeepCopy()
	pod.Containers[1].Image = "mirror.example.com/demo:v1"
	pod.Containers = append([]corev1.Container{{Name: "mesh", Image: "demo:v1"}}, pod.Containers...)
	pod.SchedulingGates = []corev1.PodSchedulingGate{{Name: "others.example.com/gate"}}
	spec := plain(t, pod)
	spec["newer"] = map[string]any{"than": "the types"}
	got, err := FillJSON(spec, template, nil, true)
	const want = "[{/containers/1/imagePullPolicy Always} {/schedulingGates [map[name:others.example.com/gate] map[name:everynode.io/first-node]]}]"
	if fmt.Sprint(got) != want || err != nil {
		t.Errorf("it changes %v (%v), want %s", got, err, want)
	}
	spec = plain(t, pod)
	got, err = FillJSON(spec, template, []v1alpha1.PinnedImage{{Image: "demo:v1", Digest: digestOfDemo}}, false)
	if want := "[{/containers/1/image demo@" + digestOfDemo + "}]"; fmt.Sprint(got) != want || err != nil {
		t.Errorf("it changes %v (%v), want %s", got, err, want)
	}
	for _, odd := range []any{"text", []any{1}, map[string]any{}} {
		_, err = FillJSON(map[string]any{"schedulingGates": odd, "containers": odd}, template, nil, true)
		if err == nil {
			t.Errorf("gates that are %v are no error", odd)
		}
	}
	// A template that asks no registry waits for nobody.
	template.Containers[0].ImagePullPolicy, template.Containers[1].Image = corev1.PullNever, "demo@"+digestOfDemo
	got, err = FillJSON(plain(t, pod), template, nil, true)
	if got != nil || err != nil {
		t.Errorf("it changes %v (%v)", got, err)
	}
}
