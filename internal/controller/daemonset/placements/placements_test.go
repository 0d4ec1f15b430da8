package placements

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// decided is what a controller knows of the DaemonSet u on the node n.
type decided struct {
	generation int64
	apart      bool
	rules      *placement.Rules
}

func (d *decided) Apart(uid types.UID) (int64, bool, bool) { return d.generation, d.apart, uid == "u" }

func (d *decided) RulesOn(_ types.UID, node string) *placement.Rules {
	if node != "n" {
		return nil
	}
	return d.rules
}

// Who opens nodes is told nothing of a DaemonSet before the controller knows it as it is now, and waits for no turn of it
// where all revisions run on the same nodes.
func TestWhatIsToldOfPlacements(t *testing.T) {
	own := placement.Compile(&corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}})
	ds := &appsv1.DaemonSet{}
	ds.UID, ds.Generation = "u", 2
	for _, c := range []struct {
		say    string
		listed []types.UID
		by     decided
		node   string
		rules  *placement.Rules
		known  bool
		asks   int
	}{
		{"which nobody lists", nil, decided{2, true, own}, "n", nil, false, 0},
		{"that the controller does not know", []types.UID{"other"}, decided{2, true, own}, "n", nil, false, 0},
		{"of which it knows the template of before", []types.UID{"u"}, decided{1, false, own}, "n", nil, false, 0},
		{"of which all revisions say the same", []types.UID{"u"}, decided{2, false, own}, "n", nil, true, 0},
		{"of which they do not", []types.UID{"u"}, decided{2, true, own}, "n", own, true, 1},
		{"on a node that it does not know", []types.UID{"u"}, decided{2, true, own}, "other", nil, false, 1},
	} {
		b, asked := New(), make(chan struct{}, 9)
		if _, known := b.RulesOn(t.Context(), ds, c.node); known {
			t.Error("it is known before the first turn")
		}
		b.Wakes(func() { asked <- struct{}{} })
		b.Answer(c.listed, &c.by)
		go func() {
			<-asked
			b.Answer(c.listed, &c.by)
			asked <- struct{}{}
		}()
		rules, known := b.RulesOn(t.Context(), ds, c.node)
		if rules != c.rules || known != c.known {
			t.Errorf("of a DaemonSet %s it says %v, known: %v", c.say, rules, known)
		}
		if c.asks == 0 && len(asked) > 0 {
			t.Errorf("of a DaemonSet %s the controller is asked", c.say)
		}
		asked <- struct{}{} // ends who answers
	}
}

// Who asks a controller that does not answer goes on after a while, and knows nothing.
func TestNobodyAnswers(t *testing.T) {
	ds := &appsv1.DaemonSet{}
	ds.UID = "u"
	b := New()
	b.Answer([]types.UID{"u"}, &decided{0, true, nil})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if rules, known := b.RulesOn(ctx, ds, "n"); rules != nil || known {
		t.Errorf("it says %v, known: %v", rules, known)
	}
}
