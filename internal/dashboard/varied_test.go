package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant"
)

// TestPageOfADaemonSetWithTooManyVariants: the page shows it, says that nobody knows where it stands, and that variants
// may not be read.
func TestPageOfADaemonSetWithTooManyVariants(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1.4")
	w.Node("node-a")
	w.Pod(ds, "node-a", hashes[0])
	c := newCluster(nil, nil)
	c.setOwnKinds(kinds{unread: "may not be read"})
	tell := func() *message {
		t.Helper()
		w.Objects.Now = time.Now()
		version, _ := c.at()
		c.last, c.lastOf = survey.New(w.Objects), version
		of := &teller{d: &Dashboard{cluster: c}, namespace: ds.Namespace, name: ds.Name}
		lines, err := of.next()
		if err != nil {
			t.Fatal(err)
		}
		all := &message{}
		for _, m := range lines {
			if m.Set != nil {
				all.Set = m.Set
			}
			if m.Map != nil {
				all.Map = m.Map
			}
		}
		return all
	}
	m := tell()
	if m.Set == nil || m.Map == nil || m.Set.Variants != nil ||
		strings.Join(m.Set.Unseen, "|") != "may not be read" {
		t.Errorf("without variants the page is told %+v", m.Set)
	}
	for i := range variant.MaxVariants + 1 {
		meta := metav1.ObjectMeta{Namespace: ds.Namespace, Name: fmt.Sprint("v", i), UID: types.UID(fmt.Sprint(i))}
		w.Objects.Variants = append(w.Objects.Variants, &v1alpha1.DaemonSetVariant{ObjectMeta: meta})
	}
	m = tell()
	if m.Set == nil || m.Set.Variants == nil || len(m.Set.Variants.Of) != variant.MaxVariants+1 ||
		!strings.Contains(strings.Join(m.Set.Unseen, "|"), "is not known: 21 variants choose it, at most 20 may") {
		t.Errorf("with too many variants the page is told %+v", m.Set)
	}
	if m.Map == nil || len(m.Map.Nodes) != 1 || m.Map.States[len(m.Map.States)-1] != "Ready" {
		t.Errorf("with too many variants the map is %+v", m.Map)
	}
}
