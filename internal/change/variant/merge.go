package variant

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// MaxPatch is how many bytes a patch may have.
const MaxPatch = 32 << 10

// placement are the fields of a pod's spec that say where it runs. They are the template's alone.
var placement = []string{
	"nodeSelector", "affinity", "tolerations", "schedulerName", "nodeName", "schedulingGates", "topologySpreadConstraints",
}

// checkPatch says what is wrong with a patch, without any template.
func checkPatch(patch []byte) error {
	if len(patch) > MaxPatch {
		return fmt.Errorf("has more than %d bytes", MaxPatch)
	}
	var top map[string]any
	if err := json.Unmarshal(patch, &top); err != nil {
		return fmt.Errorf("is not an object: %w", err)
	}
	for key, value := range top {
		switch key {
		case "metadata":
			if err := allow(value, key, func(k string) bool { return k == "annotations" }); err != nil {
				return err
			}
		case "spec":
			ours := func(k string) bool { return !strings.HasPrefix(k, "$") && !isPlacement(k) }
			if err := allow(value, key, ours); err != nil {
				return err
			}
		default:
			return fmt.Errorf("must leave %s alone", key)
		}
	}
	_, err := merge(&corev1.PodTemplateSpec{}, patch)
	return err
}

// isPlacement compares as Go's decoder does, which takes the names of fields in any case.
func isPlacement(key string) bool {
	for _, name := range placement {
		if strings.EqualFold(strings.TrimPrefix(key, "$setElementOrder/"), name) {
			return true
		}
	}
	return false
}

func allow(value any, at string, good func(key string) bool) error {
	fields, is := value.(map[string]any)
	if !is {
		return fmt.Errorf("must have an object as %s", at)
	}
	for key := range fields {
		if !good(key) {
			return fmt.Errorf("must leave %s.%s alone", at, key)
		}
	}
	return nil
}

// merge applies a patch to a template. What it may not change stays as it is, or that is an error.
func merge(t *corev1.PodTemplateSpec, patch []byte) (*corev1.PodTemplateSpec, error) {
	before, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write the template: %w", err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.PodTemplateSpec{})
	if err != nil {
		return nil, fmt.Errorf("cannot be merged: %w", err)
	}
	out := &corev1.PodTemplateSpec{}
	problems, err := kjson.UnmarshalStrict(after, out)
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, fmt.Errorf("makes something that is no pod template: %w", err)
	}
	meta := out.ObjectMeta.DeepCopy()
	meta.Annotations = t.Annotations
	if !apiequality.Semantic.DeepEqual(meta, &t.ObjectMeta) {
		return nil, errors.New("changes more of the metadata than annotations")
	}
	was, is := reflect.ValueOf(t.Spec), reflect.ValueOf(out.Spec)
	for i := range was.NumField() {
		name, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("json"), ",")
		if isPlacement(name) && !apiequality.Semantic.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			return nil, fmt.Errorf("changes spec.%s", name)
		}
	}
	if err := daemon(&out.Spec); err != nil {
		return nil, err
	}
	return out, nil
}

// daemon says what is wrong with a spec that is good for a pod, and not for one of a DaemonSet: nobody else would find
// it out, as the API takes the pods.
func daemon(spec *corev1.PodSpec) error {
	switch {
	case spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyAlways:
		return fmt.Errorf("sets spec.restartPolicy to %s, and daemons are always restarted", spec.RestartPolicy)
	case spec.ActiveDeadlineSeconds != nil:
		return errors.New("sets spec.activeDeadlineSeconds, and daemons do not end")
	}
	return nil
}

// effect names what a merge changes of a template; "" for nothing. It goes by the fields that differ, so that a newer
// program whose types have more fields names it the same way.
func effect(before, after *corev1.PodTemplateSpec) (string, error) {
	was, err := fields(before)
	if err != nil {
		return "", err
	}
	is, err := fields(after)
	if err != nil {
		return "", err
	}
	diff := map[string]any{}
	for key, value := range is {
		if !reflect.DeepEqual(was[key], value) {
			diff[key] = value
		}
	}
	for key := range was {
		if _, stays := is[key]; !stays {
			diff[key] = nil
		}
	}
	if len(diff) == 0 {
		return "", nil
	}
	text, err := json.Marshal(diff)
	if err != nil {
		return "", fmt.Errorf("write what differs: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// fields are the annotations of a template, and the fields of its spec.
func fields(t *corev1.PodTemplateSpec) (map[string]any, error) {
	text, err := json.Marshal(&t.Spec)
	if err != nil {
		return nil, fmt.Errorf("write the template: %w", err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	for key, value := range t.Annotations {
		out["annotations/"+key] = value
	}
	return out, nil
}
