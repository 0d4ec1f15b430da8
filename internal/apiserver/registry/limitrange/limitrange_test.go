package limitrange

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestDefaultsFollowFromEachOther(t *testing.T) {
	item := corev1.LimitRangeItem{Type: "Container", Max: amounts("cpu", "2", "memory", "1Gi"), Min: amounts("ephemeral-storage", "1Gi"), Default: amounts("cpu", "1"), DefaultRequest: amounts("cpu", "500m")}
	SetDefaults(&item)
	show := func(l corev1.ResourceList) string {
		return fmt.Sprint(l.Cpu(), " ", l.Memory(), " ", l.StorageEphemeral())
	}
	if got := show(item.Default) + ", " + show(item.DefaultRequest); got != "1 1Gi 0, 500m 1Gi 1Gi" {
		t.Errorf("the defaults are %s", got)
	}
	pod := corev1.LimitRangeItem{Type: "Pod", Max: amounts("cpu", "2")}
	SetDefaults(&pod)
	if len(pod.Default)+len(pod.DefaultRequest) > 0 {
		t.Errorf("a pod has defaults: %v", pod)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		item corev1.LimitRangeItem
		want string
	}{
		"good":             {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "1"), DefaultRequest: amounts("cpu", "2"), Default: amounts("cpu", "3"), Max: amounts("cpu", "4"), MaxLimitRequestRatio: amounts("cpu", "4")}, ""},
		"a pod":            {corev1.LimitRangeItem{Type: "Pod", Max: amounts("cpu", "1", "memory", "1Gi")}, ""},
		"a claim":          {corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: amounts("storage", "1Gi")}, ""},
		"somebody's type":  {corev1.LimitRangeItem{Type: "example.com/Disk"}, ""},
		"unknown type":     {corev1.LimitRangeItem{Type: "Disk"}, `spec.limits[0].type: Invalid value: "Disk": must be a standard limit type or fully qualified`},
		"unknown resource": {corev1.LimitRangeItem{Type: "Container", Max: amounts("storage", "1")}, `spec.limits[0].max[storage]: Invalid value: "storage": must be a standard resource for containers`},
		"pod's default":    {corev1.LimitRangeItem{Type: "Pod", Default: amounts("cpu", "1")}, "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"},
		"pod's request":    {corev1.LimitRangeItem{Type: "Pod", DefaultRequest: amounts("cpu", "1")}, "spec.limits[0].defaultRequest: Forbidden"},
		"empty claim":      {corev1.LimitRangeItem{Type: "PersistentVolumeClaim"}, "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"},
		"min over max":     {corev1.LimitRangeItem{Type: "Pod", Min: amounts("cpu", "2"), Max: amounts("cpu", "1")}, `spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`},
		"min over request": {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "2"), DefaultRequest: amounts("cpu", "1")}, "defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1"},
		"request over max": {corev1.LimitRangeItem{Type: "Container", DefaultRequest: amounts("cpu", "2"), Max: amounts("cpu", "1")}, "default request value 2 is greater than max value 1"},
		"request over default": {corev1.LimitRangeItem{Type: "Container", DefaultRequest: amounts("cpu", "2"), Default: amounts("cpu", "1")},
			"default request value 2 is greater than default limit value 1"},
		"min over default": {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "2"), Default: amounts("cpu", "1")}, `default[cpu]: Invalid value: "2": min value 2 is greater than default value 1`},
		"default over max": {corev1.LimitRangeItem{Type: "Container", Default: amounts("cpu", "2"), Max: amounts("cpu", "1")}, `default[cpu]: Invalid value: "1": default value 2 is greater than max value 1`},
		"ratio below one":  {corev1.LimitRangeItem{Type: "Pod", MaxLimitRequestRatio: amounts("cpu", "500m")}, "ratio 500m is less than 1"},
		"ratio out of reach": {corev1.LimitRangeItem{Type: "Pod", Min: amounts("cpu", "500m"), Max: amounts("cpu", "1"), MaxLimitRequestRatio: amounts("cpu", "3")},
			"ratio 3 is greater than max/min = 2.000000"},
		"huge pages": {corev1.LimitRangeItem{Type: "Container", Default: amounts("hugepages-2Mi", "4Mi"), DefaultRequest: amounts("hugepages-2Mi", "2Mi")},
			"default value 4Mi must equal to defaultRequest value 2Mi in hugepages-2Mi"},
	} {
		errs := Validate(&corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{c.item}}})
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, errs, c.want)
		}
	}
	twice := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: "Pod"}, {Type: "Pod"}}}}
	if errs := Validate(twice); len(errs) != 1 || errs[0].Error() != `spec.limits[1].type: Duplicate value: "Pod"` {
		t.Errorf("twice: %v", errs)
	}
}

// TestManyBadItems: after more errors than anybody is told the rest of a long list is not looked at.
func TestManyBadItems(t *testing.T) {
	l := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: make([]corev1.LimitRangeItem, 5000)}}
	errs := Validate(l)
	if len(errs) < enough.Errors || len(errs) > 2*enough.Errors {
		t.Errorf("there are %d errors", len(errs))
	}
}
