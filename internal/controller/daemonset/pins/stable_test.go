package pins

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

const longCanary = `{waves: [{name: canary, nodes: {matchLabels: {fleet: canary}}, soak: 4h}], failure: {max: 0, min: 1, then: Rollback}, images: Pinned}`

// canaryWorld is a world with a canary, n0.
func canaryWorld(t *testing.T, policy string) *world {
	w := newWorld(t, policy)
	w.labels[0] = map[string]string{"fleet": "canary"}
	return w
}

// byRevision counts the pods of a template by whether they were made by tag.
func (w *world) byRevision(revision string) (tag, digest int) {
	for _, p := range w.pods {
		switch {
		case p.Labels[appsv1.ControllerRevisionHashLabelKey] != revision:
		case strings.Contains(p.Spec.Containers[0].Image, "@"):
			digest++
		default:
			tag++
		}
	}
	return tag, digest
}

// The template is edited while its first node still pulls. One node of each template is first, with restarts of the
// controller or without.
func TestTemplateEditedBeforeItsFirstNodeTold(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := canaryWorld(t, longCanary)
		w.slowAll()
		w.start()
		w.pass(time.Minute)
		if tag, digest := w.byRevision("t1"); tag != 1 || digest != 0 {
			t.Fatalf("%d pods by tag and %d by digest, want one that pulls", tag, digest)
		}
		w.edit()
		w.pass(time.Minute)
		if restarts {
			w.start()
			w.pass(time.Minute)
		}
		for _, revision := range []string{"t1", "t2"} {
			if tag, digest := w.byRevision(revision); tag > 1 || digest != 0 {
				t.Fatalf("%s: %d pods by tag and %d by digest, want one at most that pulls", revision, tag, digest)
			}
		}
		clear(w.slow)
		w.again()
		w.pass(time.Minute)
		if restarts {
			w.start()
		}
		w.pass(time.Minute)
		if tag, digest := w.byRevision("t2"); tag != 1 || digest != 5 {
			t.Errorf("restarts: %t: %d pods were made by tag and %d by digest, want 1 and 5: %+v", restarts,
				tag, digest, w.stored)
		}
	}
}

// Nobody can pull the first template. Another one goes out all the same.
func TestTemplateAfterOneThatNobodyCanPull(t *testing.T) {
	w := canaryWorld(t, labeledCanary)
	delete(w.registry, "demo:v1")
	w.start()
	w.pass(30 * time.Minute)
	if tag, _ := w.byRevision("t1"); tag == 0 {
		t.Fatal("no node was first")
	}
	w.registry["demo:v2"] = sha(2)
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.set.Spec.Template.Spec.InitContainers[0].Image, w.set.Spec.Template.Spec.Containers[0].Image = "demo:v2", "demo:v2"
	w.tellSet()
	w.pass(time.Hour)
	if tag, digest := w.byRevision("t2"); tag+digest != 6 {
		t.Errorf("%d nodes have the new template after an hour, want 6: %+v", tag+digest, w.stored)
	}
}

// Pinning is turned on in the middle of a change: of both templates what runs is taken at its word.
func TestPinningIsTurnedOnInAChange(t *testing.T) {
	w := canaryWorld(t, strings.Replace(longCanary, ", images: Pinned", "", 1))
	w.start()
	w.pass(time.Minute)
	w.registry["demo:v1"] = sha(3)
	w.edit()
	w.pass(time.Minute)
	w.policy = longCanary
	w.tellPolicy()
	w.tellSet()
	w.pass(time.Minute)
	if tag, digest := w.byRevision("t1"); tag != 5 || digest != 0 {
		t.Errorf("turning it on left %d pods of 5 by tag, %d by digest", tag, digest)
	}
	w.registry["demo:v1"] = sha(7)
	w.pods = map[types.UID]*corev1.Pod{}
	w.start()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byDigest(1): 5, byDigest(3): 1})
}

// lose takes the pods of nodes away.
func (w *world) lose(nodes ...string) {
	for uid, p := range w.pods {
		if slices.Contains(nodes, p.Spec.NodeName) {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
		}
	}
}

// editUnfinished edits a DaemonSet half of whose daemons work. More do by and by, and one node pulls the new template.
func (w *world) editUnfinished() {
	w.slow["n3"], w.slow["n4"], w.slow["n5"] = true, true, true
	w.start()
	w.pass(time.Second)
	w.registry["demo:v1"] = sha(7)
	w.slow["n0"], w.slow["n1"], w.slow["n2"] = true, true, true
	w.edit()
	for _, p := range w.pods {
		w.slow[p.Spec.NodeName] = p.Labels[appsv1.ControllerRevisionHashLabelKey] == "t2"
	}
	w.again()
}

// A DaemonSet was edited before it was complete. After a restart the template that most nodes have stands in for the
// stable one: a node that loses its pod gets it again, with its digest, though nothing else happens.
func TestStandInHasItsDigest(t *testing.T) {
	w := canaryWorld(t, longCanary)
	w.editUnfinished()
	w.start()
	w.pass(time.Second)
	if st := w.stored; st.StableRevision != "" || w.matrix.Makes("ds")[0] != "t1" {
		t.Fatalf("nothing stands in for the stable revision: %+v", st)
	}
	w.lose("n2")
	w.settle()
	if at, ok := w.book.NextTick(); len(w.pods) != 6 && (!ok || at.After(w.now)) {
		t.Error("nobody looks at what stands in")
	}
	for range 3 {
		w.tick(0)
		w.settle()
	}
	for _, p := range w.pods {
		if p.Spec.NodeName == "n2" && p.Spec.Containers[0].Image != "demo@"+sha(1) {
			t.Errorf("n2 has %s", p.Spec.Containers[0].Image)
		}
	}
	if len(w.pods) != 6 {
		t.Errorf("%d nodes have a daemon, want all 6: %+v", len(w.pods), w.stored)
	}
}

// What a controller that has just started begins in its first moment may be of what stands in, which it learns only then.
func TestStandInIsLookedAtAsSoonAsItIsKnown(t *testing.T) {
	w := canaryWorld(t, longCanary)
	w.editUnfinished()
	w.lose("n2")
	w.start()
	for range 3 {
		at, ok := w.book.NextTick()
		if !ok || at.After(w.now) {
			break
		}
		w.tick(0)
		w.settle()
	}
	if len(w.pods) != 6 {
		t.Errorf("%d nodes have a daemon, want all 6: %+v", len(w.pods), w.stored)
	}
}

// Where many pods are made at once, those of a template that is not known are not among them.
func TestManyAtOnceAndOneFirst(t *testing.T) {
	w := newWorld(t, strings.Replace(labeledCanary, "soak: 1m", "soak: 4h", 1))
	w.labels[4], w.labels[5] = map[string]string{"fleet": "canary"}, map[string]string{"fleet": "canary"}
	w.start()
	w.pass(5 * time.Hour)
	w.slow["n4"], w.slow["n5"] = true, true
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.tellSet()
	w.lose("n0", "n1", "n2", "n3", "n4", "n5")
	w.settle()
	w.pass(time.Second)
	if tag, digest := w.byRevision("t2"); tag != 1 || digest != 0 {
		t.Errorf("%d pods ask the registry, %d have a digest: want one that asks", tag, digest)
	}
	if tag, digest := w.byRevision("t1"); tag != 0 || digest != 4 {
		t.Errorf("%d of the stable pods are by tag, %d by digest, want 4 by digest", tag, digest)
	}
}

// While the newest template cannot be read, nothing is made of it.
func TestTemplateThatIsReadLate(t *testing.T) {
	w := newWorld(t, pinned)
	w.hidden = true
	w.start()
	w.pass(time.Minute)
	if len(w.pods) != 0 {
		t.Fatalf("%d pods were made of a template that nobody has read", len(w.pods))
	}
	w.hidden = false
	w.tellSet()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byTag(1): 1, byDigest(1): 5})
}

// A controller that starts reads the status after it has begun to look for a first node.
func TestDigestsThatAreReadLate(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	stored := w.stored
	w.pods, w.stored = map[types.UID]*corev1.Pod{}, nil
	w.slowAll()
	w.registry["demo:v1"] = sha(7)
	w.matrix = matrix.New(row.Config{})
	w.book = New(w.matrix)
	w.book.Objects = w
	w.tick(0)
	w.tellPolicy()
	w.tellSet()
	w.stored = stored
	w.tellPolicy()
	w.tellSet()
	for i := range 6 {
		w.book.Step(fact.Node{Name: fmt.Sprint("n", i)})
	}
	w.settle()
	w.pass(time.Minute)
	if tag, digest := w.byRevision("t1"); tag != 0 || digest != 6 {
		t.Errorf("%d pods are by tag and %d by digest, want 6 by digest", tag, digest)
	}
}

// The container of the first pod has restarted, and has pulled what the tag names by now. The others are right.
func TestPodsWithDigestsAreBelieved(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	for _, p := range w.pods {
		if !strings.Contains(p.Spec.Containers[0].Image, "@") {
			p.Status.ContainerStatuses[0].ImageID = full("demo") + "@" + sha(7)
			p.CreationTimestamp.Time = p.CreationTimestamp.Add(-time.Minute)
		}
	}
	w.stored.Images = nil
	w.start()
	w.lose("n5")
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byTag(7): 1, byDigest(1): 5})
}

// drawn plays a fleet whose templates are edited, whose pods get lost and whose tags move, at random. What it finds
// wrong is told: two nodes that ask the registry for a template at one time, or have other bits of it.
func drawn(t *testing.T, seed uint64) (wrong string) {
	dice := rand.New(rand.NewPCG(seed, 1))
	w := canaryWorld(t, []string{pinned, labeledCanary, longCanary}[dice.IntN(3)])
	node := func() string { return fmt.Sprint("n", dice.IntN(6)) }
	spec := v1alpha1.DaemonSetRolloutSpec{}
	start := func() {
		w.start()
		w.tellRollout(spec)
		w.settle()
	}
	for i := range 6 {
		w.slow[fmt.Sprint("n", i)] = dice.IntN(3) == 0
	}
	start()
	got := map[string]map[string]bool{}
	for step := range 80 {
		switch dice.IntN(9) {
		case 0:
			w.edit()
		case 1:
			w.registry["demo:v1"] = sha(step)
		case 2, 3:
			of := node()
			w.slow[of] = !w.slow[of]
			w.again()
		case 4:
			w.lose(node())
			w.settle()
		case 5: // what the status does not say yet, and no pod any more, nobody knows
			clear(got)
			start()
		case 6:
			spec.Paused = dice.IntN(3) == 0
			w.tellRollout(spec)
			w.settle()
		default:
			w.pass(time.Duration(1+dice.IntN(20)) * time.Second) // less than patience in all
		}
		asking := map[string]int{}
		for _, p := range w.pods {
			of, at := p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Status.ContainerStatuses[0].ImageID
			if p.Spec.Containers[0].Image == "demo:v1" && at == "" && w.now.Before(p.CreationTimestamp.Add(Patience)) {
				asking[of]++
			}
			if got[of] == nil {
				got[of] = map[string]bool{}
			}
			if at != "" {
				got[of][at] = true
			}
		}
		for of, n := range asking {
			if n > 1 {
				return fmt.Sprintf("step %d: %d nodes ask the registry for %s", step, n, of)
			}
		}
		for of, all := range got {
			if len(all) > 1 {
				return fmt.Sprintf("step %d: %s is %v", step, of, slices.Collect(maps.Keys(all)))
			}
		}
	}
	clear(w.slow)
	w.tellRollout(v1alpha1.DaemonSetRolloutSpec{})
	w.again()
	w.pass(5 * time.Hour)
	if tag, digest := w.byRevision(fmt.Sprint("t", w.set.Generation)); tag+digest != 6 {
		return fmt.Sprintf("at the end %d nodes of 6 have the newest template: %+v", tag+digest, w.stored)
	}
	return ""
}

func TestDrawnChangesGiveATemplateOneDigest(t *testing.T) {
	for seed := range uint64(150) {
		if wrong := drawn(t, seed); wrong != "" {
			t.Errorf("seed %d: %s", seed, wrong)
		}
	}
}

// The matrix is told again where the rollout stands, by a status of before anything was found out. What the templates'
// digests are stays known, and is said in each write.
func TestARolloutThatIsToldAgainKeepsItsDigests(t *testing.T) {
	w := canaryWorld(t, longCanary)
	w.start()
	w.pass(time.Minute)
	w.edit()
	w.pass(time.Minute)
	w.registry["demo:v1"] = sha(7)
	before, _ := w.byRevision("t1")
	said := w.stored.Images.DeepCopy()
	early := w.stored.DeepCopy()
	early.Images = nil
	w.book.Step(contents.Again("ds"))
	w.tellSet()
	w.stored = early
	w.tellPolicy()
	w.settle()
	if !reflect.DeepEqual(w.stored.Images, said) {
		t.Errorf("the rollout says %+v, and said %+v", w.stored.Images, said)
	}
	for uid, p := range w.pods {
		if p.Spec.NodeName == "n3" {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
		}
	}
	w.pass(time.Minute)
	if tag, _ := w.byRevision("t1"); tag > before || len(w.pods) != 6 {
		t.Errorf("%d of %d pods asked the registry, want %d of 6", tag, len(w.pods), before)
	}
}

// Pinning is turned on while nothing else is told of the DaemonSet, such as while copies of its content cannot be made.
func TestPinningBeginsWithThePolicy(t *testing.T) {
	w := canaryWorld(t, strings.Replace(longCanary, ", images: Pinned", "", 1))
	w.start()
	w.pass(time.Minute)
	w.policy = longCanary
	w.tellPolicy()
	w.settle()
	w.registry["demo:v1"] = sha(7)
	for uid, p := range w.pods {
		if p.Spec.NodeName >= "n3" {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
		}
	}
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byTag(1): 3, byDigest(1): 3})
	if w.stored.Images == nil || len(w.stored.Images.Templates) != 1 {
		t.Errorf("the rollout says %+v of images", w.stored.Images)
	}
}
