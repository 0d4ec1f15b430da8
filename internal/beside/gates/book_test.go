package gates

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

// world is the core as a guest, the gates, a controller that makes pods, admission, and a registry.
type world struct {
	*testing.T
	now    time.Time
	book   *pins.Book
	matrix *matrix.Matrix
	set    *appsv1.DaemonSet
	status *v1alpha1.DaemonSetRolloutStatus
	nodes  []string
	pods   map[string]*corev1.Pod
	// next is what the next pod of a node was announced to be when the last one was deleted.
	next map[string]string
	// tag is what the registry has for the image; without it there is no answer. away are nodes that do not reach it.
	tag string
	// rules is what the registry has for the image of the volume; "" where the template has none.
	rules string
	away  map[string]bool
	made  int
	// unheard tells that the API server asks no webhook.
	unheard bool
	// host tells that Everynode makes the pods by itself.
	host bool
	// most is how many pods asked at one time, and had neither an answer nor a known trouble.
	most int
}

const careful = `{waves: [{name: canary, count: 2, soak: 1m}], failure: {max: 1, min: 1, then: Rollback}, images: Pinned}`

func newWorld(t *testing.T, nodes int) *world {
	w := &world{T: t, now: noon, pods: map[string]*corev1.Pod{}, next: map[string]string{}, tag: sum(1), away: map[string]bool{},
		set: &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", UID: "ds", Generation: 1}}}
	w.set.Spec.Template.Spec = *template()
	for i := range nodes {
		w.nodes = append(w.nodes, fmt.Sprint("n", i))
	}
	return w
}

func sum(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// Template is the same for all revisions.
func (w *world) Template(types.UID, string) *corev1.PodTemplateSpec { return &w.set.Spec.Template }

func (w *world) Pod(uid types.UID) *corev1.Pod {
	for _, p := range w.pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

// start has a controller begin that knows nothing.
func (w *world) start(policy string) {
	w.matrix = matrix.New(row.Config{Guest: true})
	w.book = pins.New(w.matrix)
	w.book.Objects, w.book.Guest = w, !w.host
	w.tick(0)
	for _, name := range w.nodes {
		w.book.Step(fact.Node{Name: name})
	}
	for _, p := range w.pods {
		w.book.Step(fact.OfPod(p, "ds"))
	}
	w.follow(policy)
	w.tellSet()
	w.settle()
}

// follow has a policy be followed.
func (w *world) follow(policy string) {
	w.Helper()
	spec := &v1alpha1.RolloutPolicySpec{}
	err := yaml.UnmarshalStrict([]byte(policy), spec)
	if err != nil {
		w.Fatal(err)
	}
	p, err := rolloutpolicy.Compile(spec, time.LoadLocation)
	if err != nil {
		w.Fatal(err)
	}
	w.book.Step(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: p, Status: w.status})
}

func (w *world) newest() string { return fmt.Sprint("t", w.set.Generation) }

func (w *world) tellSet() {
	rules, earlier := placement.Compile(&w.set.Spec.Template.Spec), map[string]*placement.Rules{}
	for g := range w.set.Generation {
		earlier[fmt.Sprint("t", g+1)] = rules
	}
	w.book.Step(fact.DaemonSet{UID: "ds", Namespace: "ns", Name: "agent", Generation: w.set.Generation, Revision: w.newest(),
		Strategy: fact.Strategy{MaxUnavailable: intstr.FromInt32(3)}, Placement: rules, Earlier: &placement.Revisions{ByRevision: earlier}})
}

func (w *world) edit() {
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.tellSet()
	w.settle()
}

func (w *world) tick(by time.Duration) {
	w.now = w.now.Add(by)
	w.matrix.Step(fact.Now{Time: w.now})
	w.book.Tick(w.now)
}

// pass has time pass, in which everybody does what is due.
func (w *world) pass(d time.Duration) {
	for range 30 {
		w.tick(d / 30)
		w.settle()
		w.makes()
		w.gates()
		w.pull()
		w.settle()
	}
}

func (w *world) settle() {
	for range 1000 {
		actions := w.matrix.Ready()
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			switch a := a.(type) {
			case *action.DeletePod:
				w.next[a.Node] = a.Next
				w.drop(a.Node)
			case *action.UpdateRollout:
				w.status = a.Status.DeepCopy()
			case *action.CreatePod:
				w.Fatalf("a guest makes pod %s", a.PodName)
			}
			w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
		}
	}
	w.Fatal("it never ends")
}

func (w *world) drop(node string) {
	uid := w.pods[node].UID
	delete(w.pods, node)
	w.book.Step(fact.PodGone(uid))
}

// makes has the other controller make what is missing, as admission has it.
func (w *world) makes() {
	for _, node := range w.nodes {
		if w.pods[node] != nil {
			continue
		}
		status := w.status
		if status == nil {
			status = &v1alpha1.DaemonSetRolloutStatus{TargetRevision: w.newest(), Images: &v1alpha1.ImagesStatus{}}
		}
		revision := status.StableRevision
		if to, is := w.next[node]; is {
			revision = to
		}
		if revision == "" {
			revision = w.newest()
		}
		w.made++
		p := podOf(w.made, of(revision), func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(w.now) })
		p.Spec = *w.spec()
		p.Spec.NodeName = node
		images, first := admit.Pins(status, revision)
		pinning.Fill(&p.Spec, images, first)
		if w.unheard {
			p.Spec, first = *w.spec(), false
			p.Spec.NodeName, p.Labels[appsv1.ControllerRevisionHashLabelKey] = node, w.newest()
		}
		if first {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pinning.Gate}}
			p.Spec.NodeName, p.Spec.Affinity = "", placement.PinToNode(nil, node)
		}
		w.pods[node] = p
		w.book.Step(fact.OfPod(p, "ds"))
	}
}

func (w *world) gates() {
	s := stands(w.status, slices.Collect(maps.Values(w.pods))...)
	s.Now, s.Template = w.now, func(string) *corev1.PodSpec { return w.spec() }
	for _, m := range Decide(s) {
		node := m.Pod.Spec.NodeName
		for name, p := range w.pods {
			if p == m.Pod {
				node = name
			}
		}
		if m.Deed == Remake {
			w.next[node] = hashOf(m.Pod)
			w.drop(node)
			continue
		}
		p := m.Pod.DeepCopy()
		p.Spec.SchedulingGates, p.Spec.NodeName = nil, node
		p.Annotations = map[string]string{pinning.Annotation: pinning.Mark(w.now, p.Name)}
		w.pods[node] = p
		w.book.Step(fact.OfPod(p, "ds"))
	}
}

// spec is the template's, with an image volume where the registry has one.
func (w *world) spec() *corev1.PodSpec {
	spec := template()
	if w.rules != "" {
		spec.Volumes = []corev1.Volume{podtest.ImageVolume("rules", "rules:live")}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "rules", MountPath: "/rules"}}
	}
	return spec
}

// mounted is what a node says of its pod's volume.
func (w *world) mounted(p *corev1.Pod) (out []corev1.VolumeMountStatus) {
	for _, v := range p.Spec.Volumes {
		_, digest, byDigest := strings.Cut(v.Image.Reference, "@")
		if !byDigest {
			digest = w.rules
		}
		out = append(out, corev1.VolumeMountStatus{Name: v.Name, VolumeStatus: &corev1.VolumeStatus{
			Image: &corev1.ImageVolumeStatus{ImageRef: "docker.io/library/rules@" + digest}}})
	}
	return out
}

// pull has each node pull what its pod names.
func (w *world) pull() {
	asks := 0
	for _, node := range w.nodes {
		p := w.pods[node]
		if p == nil || pinning.IsGated(&p.Spec) || pinning.HasPulled(p) {
			continue
		}
		p = p.DeepCopy()
		_, digest, byDigest := strings.Cut(p.Spec.Containers[0].Image, "@")
		if !byDigest {
			digest = w.tag
			if p.Status.ContainerStatuses == nil {
				asks++
			}
		}
		switch {
		case digest == "":
		case w.away[node]:
			stuck(p)
		default:
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", ImageID: "docker.io/library/demo@" + digest, VolumeMounts: w.mounted(p)}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
		}
		w.pods[node] = p
		w.book.Step(fact.OfPod(p, "ds"))
	}
	w.most = max(w.most, asks)
}

// runs counts the nodes by what their pods run, and how that was asked for.
func (w *world) runs(want map[string]int) {
	w.Helper()
	got := map[string]int{}
	for _, p := range w.pods {
		how, id := "tag", "nothing"
		if strings.Contains(p.Spec.Containers[0].Image, "@") {
			how = "digest"
		}
		if s := p.Status.ContainerStatuses; len(s) > 0 && s[0].ImageID != "" {
			id = strings.TrimLeft(strings.TrimPrefix(s[0].ImageID, "docker.io/library/demo@sha256:"), "0")
		}
		if pinning.IsGated(&p.Spec) {
			how = "gate"
		}
		got[how+" "+id]++
	}
	if !maps.Equal(got, want) {
		w.Errorf("pods run %v, want %v; the rollout is %s: %s, %+v", got, want, w.status.Phase, w.status.Message, w.status.Images)
	}
}

func (w *world) phase(want v1alpha1.Phase) {
	w.Helper()
	if w.status.Phase != want {
		w.Errorf("the rollout is %s, want %s: %s", w.status.Phase, want, w.status.Message)
	}
}

// TestCoreAndGatesTogether: one node asks, all others get what it got, whoever makes the pods.
func TestCoreAndGatesTogether(t *testing.T) {
	w := newWorld(t, 6)
	w.start(careful)
	w.pass(time.Minute)
	w.runs(map[string]int{"tag 1": 1, "digest 1": 5})
	w.pass(5 * time.Minute)
	w.phase(v1alpha1.PhaseComplete)
	if w.made > 11 {
		t.Errorf("%d pods were made for a new DaemonSet, want one more for each but the first", w.made)
	}
	// The tag moves between the canary and the rest.
	w.tag = sum(2)
	w.edit()
	w.pass(30 * time.Second)
	w.tag = sum(3)
	w.pass(10 * time.Minute)
	w.phase(v1alpha1.PhaseComplete)
	w.runs(map[string]int{"tag 2": 1, "digest 2": 5})
	// A node joins, and a pod is lost, after another restart of the controller.
	w.nodes = append(w.nodes, "joins")
	w.drop("n3")
	w.start(careful)
	w.pass(time.Minute)
	w.runs(map[string]int{"tag 2": 1, "digest 2": 6})
	if w.most != 1 {
		t.Errorf("%d pods asked at one time", w.most)
	}
}

// TestWhoGoesBackGetsTheOldDigests, though the tag names something else by then.
func TestWhoGoesBackGetsTheOldDigests(t *testing.T) {
	w := newWorld(t, 6)
	w.start(careful)
	w.pass(5 * time.Minute)
	for _, node := range w.nodes {
		w.away[node] = true
	}
	w.tag = sum(2)
	w.edit()
	w.pass(5 * time.Minute)
	clear(w.away)
	w.pass(5 * time.Minute)
	w.phase(v1alpha1.PhaseRolledBack)
	for node, p := range w.pods {
		if hashOf(p) != "t1" || !strings.HasSuffix(p.Status.ContainerStatuses[0].ImageID, sum(1)) {
			t.Errorf("node %s has %s, %v", node, hashOf(p), p.Status.ContainerStatuses)
		}
	}
}

// TestFirstThatCannotPullGivesWay, one at a time, and gets the digest that another one found out.
func TestFirstThatCannotPullGivesWay(t *testing.T) {
	w := newWorld(t, 6)
	for _, node := range w.nodes[:4] {
		w.away[node] = true
	}
	w.start("{waves: [{name: all, percent: 100}], failure: {max: 5, min: 5}, images: Pinned}")
	w.pass(10 * time.Minute)
	if w.most != 1 {
		t.Errorf("%d pods asked at one time", w.most)
	}
	w.tag = sum(9)
	clear(w.away)
	w.pass(10 * time.Minute)
	w.runs(map[string]int{"tag 1": 1, "digest 1": 5})
}

// TestAPodThatWaitsIsNoFailure, however long it does: the registry does not answer.
func TestAPodThatWaitsIsNoFailure(t *testing.T) {
	w := newWorld(t, 6)
	w.start(careful)
	w.pass(5 * time.Minute)
	w.tag = ""
	w.edit()
	w.pass(4 * time.Minute) // the first one may take five to start
	w.phase(v1alpha1.PhaseProgressing)
	if !strings.Contains(w.status.Message, "images: ") || len(w.status.FailedRevisions) > 0 {
		t.Errorf("the rollout says %s", w.status.Message)
	}
	old := 0
	for _, p := range w.pods {
		if hashOf(p) == "t1" {
			old++
		}
	}
	if old != 5 {
		t.Errorf("%d nodes have their old pod while the first one pulls, want 5", old)
	}
	// A new DaemonSet's wait much longer than a start may take.
	w = newWorld(t, 6)
	w.tag = ""
	w.start("{waves: [{name: all, percent: 100}], failure: {max: 5, min: 5, startDeadline: 1h}, images: Pinned}")
	w.pass(9 * time.Minute)
	w.runs(map[string]int{"gate nothing": 5, "tag nothing": 1})
	w.phase(v1alpha1.PhaseProgressing)
}

// lose has pods be lost, and made again while nobody hears of it and the tag names something else.
func (w *world) lose(tag int, nodes ...string) {
	w.unheard, w.tag = true, sum(tag)
	for _, node := range nodes {
		w.drop(node)
	}
	w.makes()
	w.pull()
	w.unheard = false // before that nothing is deleted
}

// TestAPodThatWasMadeUnheardIsReplaced once, if it runs other bits.
func TestAPodThatWasMadeUnheardIsReplaced(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newWorld(t, 6)
		w.start(careful)
		w.pass(5 * time.Minute)
		var others []string
		for _, node := range w.nodes {
			if strings.Contains(w.pods[node].Spec.Containers[0].Image, "@") {
				others = append(others, node)
			}
		}
		made := w.made
		w.lose(1, others[0])
		w.lose(2, others[1:]...)
		w.runs(map[string]int{"tag 1": 2, "tag 2": 4})
		if restarts {
			w.start(careful)
		}
		w.pass(10 * time.Minute)
		w.runs(map[string]int{"tag 1": 2, "digest 1": 4})
		w.phase(v1alpha1.PhaseComplete)
		if w.made != made+5+4 {
			t.Errorf("%d pods were made, want 5 that were lost and 4 in their place", w.made-made)
		}
	}
}

// TestWhatIsNotPinnedIsNotReplaced: pinning is turned off, and later on again, with whatever runs then.
func TestWhatIsNotPinnedIsNotReplaced(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newWorld(t, 6)
		w.start(careful)
		w.pass(5 * time.Minute)
		w.lose(2, w.nodes...)
		uid := w.pods["n3"].UID
		if p, _ := w.book.Pod(uid); p.Revision != "t1" {
			t.Errorf("a pod of other bits says that it is of %s", p.Revision)
		}
		if p, _ := w.matrix.Pod(uid); p.Revision == "t1" {
			t.Error("to the matrix a pod of other bits is one of its template")
		}
		made := w.made
		asWritten := strings.Replace(careful, ", images: Pinned", "", 1)
		for _, policy := range []string{asWritten, careful} {
			if restarts {
				w.start(policy)
			} else {
				w.follow(policy)
				w.tellSet()
			}
			w.pass(5 * time.Minute)
		}
		w.runs(map[string]int{"tag 2": 6})
		w.phase(v1alpha1.PhaseComplete)
		if w.made != made {
			t.Errorf("%d pods were made again", w.made-made)
		}
	}
}

// TestWhatComesBeforeItsStepGoesBack first, whatever bits it runs: it has a revision that is not its node's.
func TestWhatComesBeforeItsStepGoesBack(t *testing.T) {
	w := newWorld(t, 6)
	w.start(strings.Replace(careful, "soak: 1m", "soak: 30m", 1))
	w.pass(5 * time.Minute)
	w.tag = sum(2)
	w.edit()
	w.pass(5 * time.Minute)
	w.phase(v1alpha1.PhaseSoaking)
	var later []string
	for _, node := range w.nodes {
		if hashOf(w.pods[node]) == "t1" {
			later = append(later, node)
		}
	}
	w.next = map[string]string{}
	w.lose(3, later[0])
	w.pass(2 * time.Minute)
	if p := w.pods[later[0]]; hashOf(p) != "t1" || !strings.HasSuffix(p.Spec.Containers[0].Image, sum(1)) {
		t.Errorf("a node whose step has not begun has %s, %s", hashOf(p), p.Spec.Containers[0].Image)
	}
	w.pass(time.Hour)
	w.runs(map[string]int{"tag 2": 1, "digest 2": 5})
}

// TestTheRolloutSaysWhoIsWaitedFor: a pod behind the gate finds nothing out.
func TestTheRolloutSaysWhoIsWaitedFor(t *testing.T) {
	w := newWorld(t, 6)
	w.start(careful)
	w.tag = ""
	for _, want := range []string{"the first node is to find out their digests", "all others wait for the digests that the first node gets"} {
		w.makes()
		w.tick(time.Minute)
		w.settle()
		if !strings.HasSuffix(w.status.Message, want) {
			t.Errorf("it says %q, want %q", w.status.Message, want)
		}
		w.gates()
	}
}

// TestAHostTellsNobodyApart: it fills digests in by itself.
func TestAHostTellsNobodyApart(t *testing.T) {
	w := newWorld(t, 6)
	w.host = true
	w.start(careful)
	w.pass(5 * time.Minute)
	w.lose(2, w.nodes...)
	w.pass(5 * time.Minute)
	w.runs(map[string]int{"tag 2": 6})
}

// TestVolumesBesideAnotherController: all mount what the first one got, and who was made unheard and mounts other bits is
// replaced.
func TestVolumesBesideAnotherController(t *testing.T) {
	w := newWorld(t, 6)
	w.rules = sum(1)
	w.set.Spec.Template.Spec = *w.spec()
	want := func(what string, want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for _, p := range w.pods {
			how, ref := "tag", "nothing"
			if strings.Contains(p.Spec.Volumes[0].Image.Reference, "@") {
				how = "digest"
			}
			if s := p.Status.ContainerStatuses; len(s) > 0 {
				ref = strings.TrimLeft(strings.TrimPrefix(s[0].VolumeMounts[0].VolumeStatus.Image.ImageRef, "docker.io/library/rules@sha256:"), "0")
			}
			got[how+" "+ref]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: pods mount %v, want %v; the rollout says %+v", what, got, want, w.status.Images)
		}
	}
	w.start(careful)
	w.pass(5 * time.Minute)
	want("a new DaemonSet", map[string]int{"tag 1": 1, "digest 1": 5})
	w.rules = sum(2)
	w.edit()
	w.pass(30 * time.Second)
	w.rules = sum(3)
	w.pass(10 * time.Minute)
	want("a tag that moves in the middle", map[string]int{"tag 2": 1, "digest 2": 5})
	w.phase(v1alpha1.PhaseComplete)
	if w.most != 1 {
		t.Errorf("%d pods asked at one time", w.most)
	}
	var others []string
	for _, node := range w.nodes {
		if strings.Contains(w.pods[node].Spec.Volumes[0].Image.Reference, "@") {
			others = append(others, node)
		}
	}
	w.lose(1, others...) // the containers' image stays what it was
	want("nobody answered", map[string]int{"tag 2": 1, "tag 3": 5})
	w.pass(10 * time.Minute)
	want("somebody answers again", map[string]int{"tag 2": 1, "digest 2": 5})
	w.phase(v1alpha1.PhaseComplete)
}
