package waves

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestAtOnce(t *testing.T) {
	p := &v1alpha1.RolloutPolicy{}
	p.Spec.Waves = []v1alpha1.Wave{{Name: "more", Ramp: &v1alpha1.Ramp{}}, {Name: "each", Each: "zone"}}
	first, later := &v1alpha1.DaemonSetRollout{}, &v1alpha1.DaemonSetRollout{}
	later.Status.StableRevision = "t1"
	for _, c := range []struct {
		wave, nodes, want int
		rollouts          []*v1alpha1.DaemonSetRollout
	}{
		{0, 9, 4, []*v1alpha1.DaemonSetRollout{later, first}},
		{0, 7, 3, []*v1alpha1.DaemonSetRollout{first}},
		{0, 9, 1, []*v1alpha1.DaemonSetRollout{later}},
		{1, 9, 1, []*v1alpha1.DaemonSetRollout{first}},
	} {
		if n := (Stage{Wave: c.wave}).AtOnce(p, c.rollouts, c.nodes); n != c.want {
			t.Errorf("of %d nodes %d steps of wave %d can be under way, want %d", c.nodes, n, c.wave, c.want)
		}
	}
}
