package plan

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// fleet is a world with pods. The ReplicaSet controller may look at a set from
// before it was scaled, and its work may be done and not reported.
type fleet struct {
	*world
	// have and serving count the pods of a set, and those of them that are available;
	// seen is the generation that the ReplicaSet controller knows.
	have, serving map[types.UID]int32
	seen          map[types.UID]int64
}

// act lets the ReplicaSet controller work: pods that do not serve go first.
func (f *fleet) act(s *appsv1.ReplicaSet) {
	f.have[s.UID], f.seen[s.UID] = *s.Spec.Replicas, s.Generation
	f.serving[s.UID] = min(f.serving[s.UID], f.have[s.UID])
}

func (f *fleet) tell(i int) {
	next := f.sets[i].DeepCopy()
	have, serving := f.have[next.UID], f.serving[next.UID]
	next.Status = appsv1.ReplicaSetStatus{Replicas: have, ReadyReplicas: serving, AvailableReplicas: serving, ObservedGeneration: f.seen[next.UID], TerminatingReplicas: new(int32)}
	f.sets[i] = next
}

// remaining is how many pods will serve when all that is decided is done.
func (f *fleet) remaining() (n int32) {
	for _, s := range f.sets {
		n += min(f.serving[s.UID], *s.Spec.Replicas)
	}
	return n
}

func draw(t *rapid.T, f *fleet) {
	spec := &f.d.Spec
	pick := func(s []*appsv1.ReplicaSet) int { return rapid.IntRange(0, len(s)-1).Draw(t, "which") }
	switch what := rapid.IntRange(0, 12).Draw(t, "what"); {
	case what == 0:
		spec.Template.Spec.Containers[0].Image = rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(t, "image")
	case what == 1:
		spec.Replicas = ptr.To(rapid.Int32Range(0, 12).Draw(t, "replicas"))
	case what == 2:
		amounts := rapid.SampledFrom([]string{"0", "1", "3", "25%", "100%"})
		spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.Parse(amounts.Draw(t, "surge")))
		spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(amounts.Draw(t, "unavailable")))
	case what == 3:
		spec.Paused = rapid.IntRange(0, 3).Draw(t, "paused") == 0
	case what == 4:
		f.now = f.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
	case len(f.sets) == 0:
	case what < 7:
		f.act(f.sets[pick(f.sets)])
	case what < 10:
		i := pick(f.sets)
		uid := f.sets[i].UID
		f.serving[uid] = rapid.Int32Range(f.serving[uid], f.have[uid]).Draw(t, "serving")
		f.tell(i)
	case what == 10:
		i := pick(f.sets)
		uid := f.sets[i].UID
		f.serving[uid] = rapid.Int32Range(0, f.serving[uid]).Draw(t, "left")
		f.tell(i)
	default:
		f.tell(pick(f.sets))
	}
}

// check decides once and looks at what that does.
func (f *fleet) check(t *rapid.T) {
	var before []*appsv1.ReplicaSet
	for _, s := range f.sets {
		before = append(before, s.DeepCopy())
	}
	in, pods, serving := f.input(), total32(f.sets), f.remaining()
	rolling := !f.d.Spec.Paused && !newRollout(in).scaled()
	p := f.decide()
	if !apiequality.Semantic.DeepEqual(before, in.Sets) {
		t.Fatalf("the plan changed the sets that it was made from")
	}
	l := newLimits(f.d)
	if after := total32(f.sets); after > max(pods, l.most()) {
		t.Fatalf("from %d pods to %d, more than the %d allowed:\n%s", pods, after, l.most(), actions(p))
	}
	if after := f.remaining(); rolling && after < min(serving, l.least()) {
		t.Fatalf("from %d serving pods to %d, fewer than the %d that must stay:\n%s", serving, after, l.least(), actions(p))
	}
	if p.Create != nil && len(p.Delete) > 0 {
		t.Fatalf("a set is created and others are deleted at once:\n%s", actions(p))
	}
}

func TestLimitsHoldAndEveryRolloutEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{newWorld(), map[types.UID]int32{}, map[types.UID]int32{}, map[types.UID]int64{}}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			draw(t, f)
			if rapid.Bool().Draw(t, "decide") {
				f.check(t)
			}
		}
		f.d.Spec.Paused = false
		f.finish(t)
	})
}

// finish lets everything go well until nothing is left to do.
func (f *fleet) finish(t *rapid.T) {
	var trace string
	for range 200 {
		for i, s := range f.sets {
			f.act(s)
			f.serving[s.UID] = f.have[s.UID]
			f.tell(i)
		}
		in := f.input()
		p := Decide(in)
		trace += actions(p)
		if p.Create == nil && len(p.Update)+len(p.Delete) == 0 && !p.Changed {
			want := *f.d.Spec.Replicas
			if total32(f.sets) != want || p.Status.UpdatedReplicas != want || p.Status.AvailableReplicas != want {
				t.Fatalf("it ends with %+v, want %d of the new template:\n%s%s", p.Status, want, f.show(), trace)
			}
			if c := find(f.d.Status.Conditions, appsv1.DeploymentProgressing); c == nil || c.Reason != reasonAvailable {
				t.Fatalf("it ends with the condition %+v:\n%s", c, trace)
			}
			return
		}
		f.check(t)
	}
	t.Fatal(fmt.Sprintf("it never ends:\n%s", trace))
}
