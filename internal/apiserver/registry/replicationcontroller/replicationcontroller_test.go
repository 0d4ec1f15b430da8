package replicationcontroller

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func aController(change func(*corev1.ReplicationController)) *corev1.ReplicationController {
	c := &corev1.ReplicationController{}
	c.Name = "web"
	c.Spec.Template = &corev1.PodTemplateSpec{}
	c.Spec.Template.Labels = map[string]string{"app": "web"}
	c.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", TerminationMessagePolicy: "File"}}
	SetDefaults(c)
	if change != nil {
		change(c)
	}
	return c
}

func TestDefaultsComeFromTheTemplate(t *testing.T) {
	c := aController(nil)
	if *c.Spec.Replicas != 1 || c.Spec.Selector["app"] != "web" || c.Labels["app"] != "web" || c.Spec.Template.Spec.RestartPolicy != "Always" {
		t.Errorf("%+v", c)
	}
	c.Spec.Selector["app"] = "other"
	if c.Spec.Template.Labels["app"] != "web" || c.Labels["app"] != "web" {
		t.Error("the selector shares its map with the labels")
	}
	out, err := printer.ConvertToTable(t.Context(), aController(nil), nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells) != "[web 1 0 0 <unknown> c i app=web]" {
		t.Errorf("%v, %v", out, err)
	}
	SetDefaults(&corev1.ReplicationController{})
	if fmt.Sprint(Validate(&corev1.ReplicationController{}).ToAggregate()) !=
		"[spec.selector: Required value, spec.replicas: Required value, spec.template: Required value]" {
		t.Errorf("%v", Validate(&corev1.ReplicationController{}))
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.ReplicationController)
		want   string
	}{
		"good":           {nil, ""},
		"negative":       {func(c *corev1.ReplicationController) { c.Spec.Replicas = ptr.To[int32](-1) }, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
		"negative time":  {func(c *corev1.ReplicationController) { c.Spec.MinReadySeconds = -1 }, "spec.minReadySeconds: Invalid value: -1"},
		"other selector": {func(c *corev1.ReplicationController) { c.Spec.Selector = map[string]string{"a": "b"} }, "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"},
		"other policy":   {func(c *corev1.ReplicationController) { c.Spec.Template.Spec.RestartPolicy = "Never" }, `spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
		"a deadline": {func(c *corev1.ReplicationController) { c.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(5)) },
			"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported"},
	} {
		errs := Validate(aController(c.change))
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, errs, c.want)
		}
	}
	errs := ValidateStatus(&corev1.ReplicationControllerStatus{Replicas: 1, ReadyReplicas: 2}, field.NewPath("status"))
	if len(errs) != 1 || errs[0].Error() != "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas" {
		t.Errorf("%v", errs)
	}
}
