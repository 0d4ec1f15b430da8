package registry

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// row is a row of the table of absent kinds: a group, and its kinds.
var row = regexp.MustCompile(`(?m)^\| ([a-z0-9.-]+) \| ([A-Za-z, ]+) \|$`)

// TestEveryKindIsServedOrNamedAsAbsent compares with all that clients know. A kind of Kubernetes that is not served is in the table of
// docs/differences.md, and nothing else is.
func TestEveryKindIsServedOrNamedAsAbsent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	_, absent, there := strings.Cut(string(page), "\n## Not there\n")
	if !there {
		t.Fatal("the page has no section about what is not there")
	}
	absent, _, _ = strings.Cut(absent, "What these fields of a pod ask for")
	named := map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(absent, -1) {
		if r[1] == "group" {
			continue // the heading
		}
		for _, kind := range strings.Split(r[2], ", ") {
			named[strings.TrimSuffix(strings.Replace(r[1], "core", "", 1)+"/"+kind, "/")] = true
		}
	}
	served := map[string]bool{"/Binding": true, "events.k8s.io/Event": true} // a subresource; the same objects as those of the core group
	for _, kind := range Kinds() {
		served[kind.GroupVersion.Group+"/"+kind.Kind.Kind] = true
	}
	known := map[string]bool{}
	for gvk, of := range scheme.Scheme.AllKnownTypes() {
		if gvk.Group != "extensions" && stored(of) { // the old group of kinds that have their own ones now
			known[gvk.Group+"/"+gvk.Kind] = true
		}
	}
	if len(known) < 60 {
		t.Fatalf("clients know only %d kinds; are they still found?", len(known))
	}
	for _, kind := range slices.Sorted(func(yield func(string) bool) {
		for kind := range known {
			if !yield(kind) {
				return
			}
		}
	}) {
		switch {
		case served[kind] && named[kind]:
			t.Errorf("%s is served, and docs/differences.md says that it is not", kind)
		case !served[kind] && !named[kind]:
			t.Errorf("%s is not served, and docs/differences.md does not say so", kind)
		}
		delete(named, kind)
	}
	for kind := range named {
		t.Errorf("docs/differences.md says that %s is not served; there is no such kind", kind)
	}
}

// stored says whether objects of a type can be kept: they have metadata, and are no part of another kind.
func stored(of reflect.Type) bool {
	meta, has := of.FieldByName("ObjectMeta")
	if !has || meta.Type != reflect.TypeFor[metav1.ObjectMeta]() {
		return false
	}
	// What is answered and not stored: reviews, evictions, scales.
	return !slices.Contains([]string{"Eviction", "Scale", "TokenRequest", "TokenReview", "SelfSubjectReview", "PodStatusResult", "RangeAllocation"}, of.Name()) &&
		!strings.HasSuffix(of.Name(), "AccessReview") && !strings.HasSuffix(of.Name(), "RulesReview")
}
