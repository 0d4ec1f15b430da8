package runtimeclass

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func class(change func(*nodev1.RuntimeClass)) *nodev1.RuntimeClass {
	c := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Handler: "kata"}
	change(c)
	return c
}

func TestValidate(t *testing.T) {
	amounts := func(name corev1.ResourceName, amount string) *nodev1.Overhead {
		return &nodev1.Overhead{PodFixed: corev1.ResourceList{name: resource.MustParse(amount)}}
	}
	twice := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	for name, c := range map[string]struct {
		change func(*nodev1.RuntimeClass)
		want   string
	}{
		"good": {func(c *nodev1.RuntimeClass) {
			c.Overhead, c.Scheduling = amounts("cpu", "10m"), &nodev1.Scheduling{NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{twice}}
		}, ""},
		"no handler":        {func(c *nodev1.RuntimeClass) { c.Handler = "" }, "handler: Required value"},
		"a handler's name":  {func(c *nodev1.RuntimeClass) { c.Handler = "Kata.io" }, `handler: Invalid value: "Kata.io": a lowercase RFC 1123 label`},
		"negative overhead": {func(c *nodev1.RuntimeClass) { c.Overhead = amounts("cpu", "-1") }, "must be greater than or equal to 0"},
		"a label": {func(c *nodev1.RuntimeClass) {
			c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"a": "b c"}}
		},
			`scheduling.nodeSelector: Invalid value: "b c"`},
		"a toleration": {func(c *nodev1.RuntimeClass) {
			c.Scheduling = &nodev1.Scheduling{Tolerations: []corev1.Toleration{{Operator: "Like"}}}
		},
			`scheduling.tolerations[0].operator`},
		"a toleration twice": {func(c *nodev1.RuntimeClass) {
			c.Scheduling = &nodev1.Scheduling{Tolerations: []corev1.Toleration{twice, twice}}
		},
			"scheduling.tolerations[1]: Duplicate value"},
	} {
		errs := Validate(class(c.change))
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, errs, c.want)
		}
	}
}
