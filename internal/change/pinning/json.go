package pinning

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Change is a field of a pod's spec that was given a value: Path is its JSON pointer (RFC 6901) below the spec.
type Change struct {
	Path  string
	Value any
}

// FillJSON is Fill for a pod's spec as JSON has it, whose fields may be newer than the Go types; with first the pod is
// put behind the gate as well. It goes by the template: a container or volume that somebody else has added, or given
// another image, stays as it is. It changes the spec in place, and returns what it has changed, in order.
func FillJSON(spec map[string]any, template *corev1.PodSpec, images []v1alpha1.PinnedImage, first bool) ([]Change,
	error) {
	filled := template.DeepCopy()
	Fill(filled, images, first)
	var out []Change
	for _, l := range []struct {
		name   string
		is, to []corev1.Container
	}{
		{"initContainers", template.InitContainers, filled.InitContainers},
		{"containers", template.Containers, filled.Containers},
	} {
		for i := range l.is {
			out = append(out, fill(spec, l.name, &l.is[i], &l.to[i])...)
		}
	}
	for i := range template.Volumes {
		out = append(out, fillVolume(spec, &template.Volumes[i], &filled.Volumes[i])...)
	}
	if !first || len(Tags(filled)) == 0 {
		return out, nil
	}
	gates, err := gatesOf(spec)
	if err != nil {
		return nil, err
	}
	if IsGated(&corev1.PodSpec{SchedulingGates: gates}) {
		return out, nil // somebody else has looked at the pod since, and we look again
	}
	written, _ := spec["schedulingGates"].([]any)
	spec["schedulingGates"] = append(written, map[string]any{"name": Gate})
	return append(out, Change{"/schedulingGates", spec["schedulingGates"]}), nil
}

func gatesOf(spec map[string]any) (gates []corev1.PodSchedulingGate, err error) {
	raw, err := json.Marshal(spec["schedulingGates"])
	if err == nil {
		err = json.Unmarshal(raw, &gates)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod's scheduling gates: %w", err)
	}
	return gates, nil
}

// fill gives the container that is one of the template what was filled in there.
func fill(spec map[string]any, list string, is, to *corev1.Container) (out []Change) {
	containers, _ := spec[list].([]any)
	for i, entry := range containers {
		c, _ := entry.(map[string]any)
		if c == nil || c["name"] != is.Name || c["image"] != is.Image {
			continue
		}
		at := "/" + list + "/" + strconv.Itoa(i)
		if to.Image != is.Image {
			c["image"] = to.Image
			out = append(out, Change{at + "/image", to.Image})
		}
		if to.ImagePullPolicy != is.ImagePullPolicy && c["imagePullPolicy"] != string(to.ImagePullPolicy) {
			c["imagePullPolicy"] = string(to.ImagePullPolicy)
			out = append(out, Change{at + "/imagePullPolicy", string(to.ImagePullPolicy)})
		}
	}
	return out
}

// fillVolume is fill for an image volume.
func fillVolume(spec map[string]any, is, to *corev1.Volume) (out []Change) {
	if is.Image == nil {
		return nil
	}
	volumes, _ := spec["volumes"].([]any)
	for i, entry := range volumes {
		v, _ := entry.(map[string]any)
		image, _ := v["image"].(map[string]any)
		if image == nil || v["name"] != is.Name || image["reference"] != is.Image.Reference {
			continue
		}
		at := "/volumes/" + strconv.Itoa(i) + "/image"
		if to.Image.Reference != is.Image.Reference {
			image["reference"] = to.Image.Reference
			out = append(out, Change{at + "/reference", to.Image.Reference})
		}
		if to.Image.PullPolicy != is.Image.PullPolicy && image["pullPolicy"] != string(to.Image.PullPolicy) {
			image["pullPolicy"] = string(to.Image.PullPolicy)
			out = append(out, Change{at + "/pullPolicy", string(to.Image.PullPolicy)})
		}
	}
	return out
}
