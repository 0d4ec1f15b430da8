package variant

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Apply makes of a pod as JSON has it what the outcome, which has no error, says: its spec with the patch and what the
// formulas gave, and its annotations with the patch. Fields that these types do not know, and what others have added to
// the pod, stay. The pod given stays as it is.
func (o *Outcome) Apply(annotations, spec map[string]any) (newAnnotations, newSpec map[string]any, err error) {
	pod, err := copied(map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec})
	if err != nil {
		return nil, nil, err
	}
	if len(o.patch) > 0 {
		patch, err := decode(o.patch)
		if err != nil {
			return nil, nil, fmt.Errorf("read the patch of variant %s: %w", o.Variant, err)
		}
		pod, err = strategicpatch.StrategicMergeMapPatch(pod, patch, corev1.PodTemplateSpec{})
		if err != nil {
			return nil, nil, fmt.Errorf("apply the patch of variant %s: %w", o.Variant, err)
		}
	}
	meta, _ := pod["metadata"].(map[string]any)
	newAnnotations, _ = meta["annotations"].(map[string]any)
	newSpec, _ = pod["spec"].(map[string]any)
	for name, computed := range o.Resources {
		c := containerIn(newSpec, name)
		if c == nil {
			return nil, nil, fmt.Errorf("variant %s: the pod has no container %s", o.Variant, name)
		}
		fill(c, "requests", computed.Requests)
		fill(c, "limits", computed.Limits)
	}
	return newAnnotations, newSpec, nil
}

// containerIn finds a container, or an init container, by its name.
func containerIn(spec map[string]any, name string) map[string]any {
	for _, list := range []string{"containers", "initContainers"} {
		all, _ := spec[list].([]any)
		for _, one := range all {
			if c, _ := one.(map[string]any); c["name"] == name {
				return c
			}
		}
	}
	return nil
}

// fill has a container have amounts in its requests, or its limits.
func fill(container map[string]any, kind string, amounts corev1.ResourceList) {
	if len(amounts) == 0 {
		return
	}
	inside := func(in map[string]any, name string) map[string]any {
		if _, is := in[name].(map[string]any); !is {
			in[name] = map[string]any{}
		}
		return in[name].(map[string]any)
	}
	into := inside(inside(container, "resources"), kind)
	for name, amount := range amounts {
		into[string(name)] = amount.String()
	}
}

func copied(of map[string]any) (map[string]any, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("write the pod: %w", err)
	}
	return decode(text)
}

// decode reads an object, and keeps its numbers as they are written.
func decode(text []byte) (out map[string]any, err error) {
	read := json.NewDecoder(bytes.NewReader(text))
	read.UseNumber()
	err = read.Decode(&out)
	return out, err
}
