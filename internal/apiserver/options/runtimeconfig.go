package options

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names that stand for several versions of the API.
var groupsOfVersions = map[string]*regexp.Regexp{
	"api/all": regexp.MustCompile(``), "api/ga": regexp.MustCompile(`^v[0-9]+$`),
	"api/beta": regexp.MustCompile(`^v[0-9]+beta[0-9]+$`), "api/alpha": regexp.MustCompile(`^v[0-9]+alpha[0-9]+$`),
}

// CheckRuntimeConfig refuses what is asked of versions of the API and is not so. Every
// version that there is is served, and none can be switched off: the control loops of
// this process work by them.
func CheckRuntimeConfig(asked map[string]string, served []schema.GroupVersion) error {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		wanted := asked[name]
		if wanted != "" && wanted != "true" && wanted != "false" {
			return fmt.Errorf("--runtime-config %s=%s: give true or false", name, wanted)
		}
		var there []string
		for _, v := range served {
			several := groupsOfVersions[name]
			if name == v.String() || several != nil && several.MatchString(v.Version) {
				there = append(there, v.String())
			}
		}
		slices.Sort(there)
		switch {
		case wanted == "false" && len(there) > 0:
			return fmt.Errorf(
				"--runtime-config %s=false: no version of the API can be switched off, since parts of the control plane work by "+
					"it; take the right to use it away with roles, or refuse it by a ValidatingAdmissionPolicy",
				name,
			)
		case wanted != "false" && len(there) == 0 && groupsOfVersions[name] == nil:
			return fmt.Errorf("--runtime-config %s=true: this server does not have it; the versions are %s", name,
				strings.Join(versionNames(served), ", "))
		}
	}
	return nil
}

func versionNames(versions []schema.GroupVersion) (names []string) {
	for _, v := range versions {
		names = append(names, v.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}
