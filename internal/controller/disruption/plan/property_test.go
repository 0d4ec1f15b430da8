package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// world is a DaemonSet whose pods come, go, are evicted and fail in any order.
type world struct {
	rand   *rand.Rand
	now    time.Time
	nodes  int
	names  int
	pods   []corev1.Pod
	budget *policyv1.PodDisruptionBudget
}

func newWorld(seed uint64) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 1)), now: now, nodes: 1 + int(seed%7)}
	sort, unit := []string{"min", "max"}[w.rand.IntN(2)], []string{"", "%"}[w.rand.IntN(2)]
	limit := w.nodes + 2
	if unit != "" {
		limit = 101
	}
	w.budget = budget(fmt.Sprintf("%s %d%s", sort, w.rand.IntN(limit), unit))
	for range w.nodes {
		w.addPod()
	}
	return w
}

func (w *world) addPod() {
	w.names++
	w.pods = append(w.pods, makePods("r:agents")[0])
	w.pods[len(w.pods)-1].Name = fmt.Sprint("pod-", w.names)
}

func (w *world) decide() Result {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agents", UID: "uid-agents"}}
	set.Status.DesiredNumberScheduled = int32(w.nodes)
	r := Decide(Input{Budget: w.budget, Pods: w.pods, Now: w.now, Owners: Owners{DaemonSets: map[string]*appsv1.DaemonSet{"agents": set}}})
	w.budget.Status = r.Status
	return r
}

// evict does what pods/eviction does: it spends from the status as it stands.
func (w *world) evict(p *corev1.Pod) {
	s := &w.budget.Status
	if s.DisruptionsAllowed == 0 || p.DeletionTimestamp != nil {
		return
	}
	s.DisruptionsAllowed--
	disrupted := map[string]metav1.Time{p.Name: metav1.NewTime(w.now)}
	for name, since := range s.DisruptedPods {
		if name != p.Name {
			disrupted[name] = since
		}
	}
	s.DisruptedPods = disrupted
}

// available counts the pods that serve and that no eviction has been promised for.
func (w *world) available() (n int32) {
	for i := range w.pods {
		_, promised := w.budget.Status.DisruptedPods[w.pods[i].Name]
		if !promised && w.pods[i].DeletionTimestamp == nil && len(w.pods[i].Status.Conditions) > 0 {
			n++
		}
	}
	return n
}

// TestSpendingNeverExceedsTheBudget plays random histories. Pods only leave by
// eviction, so what the budget wants to be healthy must stay so at every moment,
// however often and whenever the status is computed again in between.
func TestSpendingNeverExceedsTheBudget(t *testing.T) {
	spent := 0
	for seed := range uint64(2000) {
		w := newWorld(seed)
		first := w.decide()
		floor := min(first.Status.DesiredHealthy, int32(w.nodes))
		for step := range 60 {
			i := w.rand.IntN(len(w.pods))
			p := &w.pods[i]
			_, promised := w.budget.Status.DisruptedPods[p.Name]
			switch w.rand.IntN(5) {
			case 0:
				before := w.budget.Status.DisruptionsAllowed
				w.evict(p)
				spent += int(before - w.budget.Status.DisruptionsAllowed)
			case 1: // the eviction goes on, or never does
				if promised && p.DeletionTimestamp == nil {
					p.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
				}
			case 2: // the pod is gone; another one comes in its place
				if p.DeletionTimestamp != nil {
					w.pods = slices.Delete(w.pods, i, i+1)
					w.addPod()
				}
			case 3:
				w.now = w.now.Add(time.Duration(w.rand.IntN(100)) * time.Second)
			case 4:
				r := w.decide()
				if r.Err != nil || r.Status.DisruptionsAllowed < 0 {
					t.Fatalf("seed %d, step %d: %+v", seed, step, r)
				}
				if r.Status.DisruptionsAllowed > 0 && r.Status.CurrentHealthy-r.Status.DisruptionsAllowed < r.Status.DesiredHealthy {
					t.Fatalf("seed %d, step %d: allows more than there are to spare: %+v", seed, step, r.Status)
				}
			}
			if got := w.available(); got < floor {
				t.Fatalf("seed %d, step %d: %d pods are available, want %d; status %+v", seed, step, got, floor, w.budget.Status)
			}
		}
	}
	if spent < 1000 {
		t.Errorf("the histories hold %d evictions: too few to show anything", spent)
	}
}

// TestNothingIsAllowedWhileTooFewAreHealthy takes any state of pods, also after failures.
func TestNothingIsAllowedWhileTooFewAreHealthy(t *testing.T) {
	for seed := range uint64(2000) {
		w := newWorld(seed)
		for i := range w.pods {
			if w.rand.IntN(2) == 0 {
				w.pods[i].Status.Conditions = nil
			}
			if w.rand.IntN(4) == 0 {
				w.pods[i].OwnerReferences = nil
			}
		}
		s := w.decide().Status
		if s.DisruptionsAllowed < 0 || s.CurrentHealthy <= s.DesiredHealthy && s.DisruptionsAllowed != 0 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
	}
}
