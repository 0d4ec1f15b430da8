package diagnosis

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
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

// An object that holds what this program does not know is named.
func TestObjectsOfANewerProgram(t *testing.T) {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "p"}}
	for _, field := range []string{"", "spec.quorum"} {
		if field != "" {
			p.Annotations = map[string]string{newer.Annotation: field}
		}
		all := OfCluster(Cluster{Policies: []*v1alpha1.RolloutPolicy{p}})
		all = slices.DeleteFunc(all, func(f Finding) bool { return f.Check != "fields" })
		if (len(all) > 0) != (field != "") || len(all) > 0 &&
			(all[0].Subject != "rolloutpolicy/agents/p" || !strings.Contains(all[0].Message, field) || all[0].Severity != Problem) {
			t.Errorf("with %q it finds %+v", field, all)
		}
	}
}
