package configmap

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestValidate(t *testing.T) {
	c := &corev1.ConfigMap{Data: map[string]string{"a": "1", "b/c": ""}, BinaryData: map[string][]byte{"a": nil}}
	errs := Validate(c)
	if len(errs) != 2 || errs[0].Error() != `data[a]: Invalid value: "a": duplicate of key present in binaryData` || errs[1].Field != "data[b/c]" {
		t.Errorf("got %v", errs)
	}
	big := &corev1.ConfigMap{Data: map[string]string{"a": string(make([]byte, corev1.MaxSecretSize))}, BinaryData: map[string][]byte{"b": {0}}}
	if errs := Validate(big); len(errs) != 1 || errs[0].Detail != "may not be more than 1048576 bytes" {
		t.Errorf("too big: got %v", errs)
	}
}

func TestImmutable(t *testing.T) {
	old := &corev1.ConfigMap{Immutable: ptr.To(true), Data: map[string]string{"a": "1"}}
	same := old.DeepCopy()
	same.Labels = map[string]string{"x": "y"}
	if errs := ValidateUpdate(same, old); len(errs) > 0 {
		t.Errorf("changed label: %v", errs)
	}
	changed := old.DeepCopy()
	changed.Data["a"], changed.Immutable = "2", ptr.To(false)
	changed.BinaryData = map[string][]byte{"b": {1}}
	errs := ValidateUpdate(changed, old)
	if len(errs) != 3 || errs[0].Field != "immutable" || errs[1].Field != "data" || errs[2].Field != "binaryData" {
		t.Errorf("got %v, want immutable, data and binaryData refused", errs)
	}
}
