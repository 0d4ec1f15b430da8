package plan

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant"
)

// Where more variants choose a DaemonSet than may, the deletion of one can be planned all the same.
func TestPlanOfOneVariantLess(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1.4")
	w.Node("node-a")
	w.Pod(ds, "node-a", hashes[0], surveytest.ReadyAfter(20*time.Second))
	for i := range variant.MaxVariants + 1 {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: fmt.Sprint("v", i)}}
		v.UID, v.Spec.Priority = types.UID(v.Name), int32(i)
		w.Objects.Stored = append(w.Objects.Stored, v)
	}
	w.Objects.Variants, w.Objects.Varied = w.Objects.Stored[1:], true
	f := forecast(t, w, ds, ds)
	if f.From != "1" || f.To != "1" || f.Nodes.Stay != 1 {
		t.Errorf("the plan is %+v", f)
	}
}
