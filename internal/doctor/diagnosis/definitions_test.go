package diagnosis

import (
	"slices"
	"strings"
	"testing"
)

// Fields that the API drops are named, with what brings its definitions up to date.
func TestDefinitionsThatAreOlder(t *testing.T) {
	for _, c := range []struct {
		lacking []string
		want    string
	}{{nil, ""}, {[]string{"RolloutPolicy spec.content"}, "drop what is written into RolloutPolicy spec.content"}} {
		all := OfCluster(Cluster{Lacking: c.lacking, Program: "everynode", Kubectl: "kubectl"})
		all = slices.DeleteFunc(all, func(f Finding) bool { return f.Check != "definitions" })
		if (len(all) > 0) != (c.want != "") {
			t.Fatalf("of %v it finds %v", c.lacking, all)
		}
		if len(all) == 0 {
			continue
		}
		is := all[0]
		if !strings.Contains(is.Message, c.want) || is.Severity != Problem ||
			is.Remedy != "everynode controller --print-crds | kubectl apply -f -" {
			t.Errorf("of %v it finds %+v", c.lacking, is)
		}
	}
}
