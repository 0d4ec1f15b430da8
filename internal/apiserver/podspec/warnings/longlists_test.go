package warnings

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// These lists too are looked at once.
func TestWarningsLookAtLongListsOnce(t *testing.T) {
	const n = 1_000_000
	at := field.NewPath("list")
	secrets, aliases := make([]corev1.LocalObjectReference, n), make([]corev1.HostAlias, n)
	for i := range n {
		secrets[i].Name, aliases[i].IP = fmt.Sprint("c", i), fmt.Sprint("c", i)
	}
	for what, found := range map[string]int{
		"secrets": len(pullSecretWarnings(secrets, at)), "aliases": len(hostAliasWarnings(aliases, at)),
	} {
		if found > 0 {
			t.Errorf("%s: %d are told of", what, found)
		}
	}
	twice := []corev1.LocalObjectReference{secrets[3], secrets[3]}
	if got := fmt.Sprint(pullSecretWarnings(twice, at)); got != `[list[1].name: duplicate name "c3"]` {
		t.Error(got)
	}
	alias := []corev1.HostAlias{aliases[3], aliases[3]}
	if got := fmt.Sprint(hostAliasWarnings(alias, at)); got != `[list[1].ip: duplicate ip "c3"]` {
		t.Error(got)
	}
}
