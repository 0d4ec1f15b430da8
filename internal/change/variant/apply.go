package variant

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
)

// Apply makes of a pod as JSON has it what the outcome, which has no error, says: its spec with the patch and what the
// formulas gave, and its annotations with the patch. Fields that these types do not know, and what others have added to
// the pod, stay, but for what was worked out from fields that change. The pod given stays as it is.
func (o *Outcome) Apply(annotations, spec map[string]any) (newAnnotations, newSpec map[string]any, err error) {
	pod, err := copied(map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec})
	if err != nil {
		return nil, nil, err
	}
	if len(o.patch) > 0 {
		patch, err := decode[map[string]any](o.patch)
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
	if !o.isOn(annotations) { // else what follows from others follows from the variant's already
		o.forgetAmounts(newSpec)
		o.forgetFields(newSpec)
	}
	return newAnnotations, newSpec, nil
}

// isOn reports whether a pod with these annotations has been given the outcome, and admission asks once more.
func (o *Outcome) isOn(annotations map[string]any) bool {
	text, _ := annotations[Annotation].(string)
	is := readMark(text)
	return is.Same(&o.Mark)
}

// forgetFields takes off a pod of the template what admission has found by fields that the variant changes: it refuses
// a priority that is not that of the class, and gives a pod with secrets none of its account's.
func (o *Outcome) forgetFields(spec map[string]any) {
	was, is := &o.of.Spec, &o.Template.Spec
	for _, f := range []struct {
		name          string
		same, written bool
	}{
		{"priority", was.PriorityClassName == is.PriorityClassName, is.Priority != nil},
		{"preemptionPolicy", was.PriorityClassName == is.PriorityClassName, is.PreemptionPolicy != nil},
		{"overhead", ptr.Equal(was.RuntimeClassName, is.RuntimeClassName), is.Overhead != nil},
		{"imagePullSecrets", was.ServiceAccountName == is.ServiceAccountName, is.ImagePullSecrets != nil},
	} {
		if !f.same && !f.written {
			delete(spec, f.name)
		}
	}
}

// forgetAmounts takes amounts that nobody wrote from a pod of the template where the variant changes the others of that
// resource: the API makes a limit the request where there is none, and a LimitRange adds both.
func (o *Outcome) forgetAmounts(spec map[string]any) {
	for _, list := range [][]corev1.Container{o.Template.Spec.Containers, o.Template.Spec.InitContainers} {
		for i := range list {
			c, computed := &list[i], o.Resources[list[i].Name]
			was, pod := containerOf(&o.of.Spec, c.Name), containerIn(spec, c.Name)
			if was == nil || pod == nil {
				continue
			}
			requests, limits := with(c.Resources.Requests, computed.Requests), with(c.Resources.Limits, computed.Limits)
			in, _ := pod["resources"].(map[string]any)
			names := append(changed(was.Resources.Requests, requests), changed(was.Resources.Limits, limits)...)
			forget(in["requests"], requests, names)
			forget(in["limits"], limits, names)
		}
	}
}

// changed are the resources of which both lists have other amounts.
func changed(was, is corev1.ResourceList) (names []corev1.ResourceName) {
	for name := range with(was, is) {
		had, have := was[name], is[name]
		if had.Cmp(have) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// forget takes the resources off the amounts of a container that are not written.
func forget(amounts any, written corev1.ResourceList, names []corev1.ResourceName) {
	in, _ := amounts.(map[string]any)
	for _, name := range names {
		if _, is := written[name]; !is {
			delete(in, string(name))
		}
	}
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
	return decode[map[string]any](text)
}

// decode reads JSON, and keeps its numbers as they are written.
func decode[T any](text []byte) (out T, err error) {
	read := json.NewDecoder(bytes.NewReader(text))
	read.UseNumber()
	err = read.Decode(&out)
	return out, err
}
