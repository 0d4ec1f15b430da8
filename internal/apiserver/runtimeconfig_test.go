package apiserver

import (
	"strings"
	"testing"
)

func TestRuntimeConfig(t *testing.T) {
	for asked, want := range map[string]string{
		"apps/v1=true": "", "v1=": "", "api/all=true": "", "api/beta=true": "", "apps/v1beta1=false": "", "api/legacy=false": "",
		"apps/v1=false": "no version of the API can be switched off", "api/all=false": "no version of the API can be switched off",
		"apps/v9=true": "this server does not have it; the versions are admissionregistration.k8s.io/v1, ", "apps/v1=perhaps": "give true or false",
	} {
		name, value, _ := strings.Cut(asked, "=")
		err := checkRuntimeConfig(map[string]string{name: value}, ownVersions())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", asked, err, want)
		}
	}
}
