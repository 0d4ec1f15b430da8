package options

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRuntimeConfig(t *testing.T) {
	served := []schema.GroupVersion{
		{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "admissionregistration.k8s.io", Version: "v1"},
		{Group: "everynode.io", Version: "v1alpha1"}, {Group: "example.com", Version: "v1beta1"},
	}
	for asked, want := range map[string]string{
		"apps/v1=true": "", "v1=": "", "api/all=true": "", "api/beta=true": "", "apps/v1beta1=false": "", "api/legacy=false": "",
		"apps/v1=false": "no version of the API can be switched off", "api/all=false": "no version of the API can be switched off",
		"apps/v9=true": "this server does not have it; the versions are admissionregistration.k8s.io/v1, ", "apps/v1=perhaps": "give true or false",
	} {
		name, value, _ := strings.Cut(asked, "=")
		err := CheckRuntimeConfig(map[string]string{name: value}, served)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", asked, err, want)
		}
	}
}
