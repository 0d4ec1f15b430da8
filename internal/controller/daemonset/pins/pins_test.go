package pins

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
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/pod"
)

// world is an API, a registry, and nodes that pull.
type world struct {
	*testing.T
	now    time.Time
	off    time.Duration // by how much the API's clock is ahead
	book   *Book
	matrix *matrix.Matrix
	set    *appsv1.DaemonSet
	// templates are all that the set has had. While they are hidden none can be read.
	templates map[string]*corev1.PodTemplateSpec
	hidden    bool
	// unread: nobody can read policies and rollouts.
	unread bool
	// following is how the policy is followed.
	following course.Following
	stored    *v1alpha1.DaemonSetRolloutStatus
	pods      map[types.UID]*corev1.Pod
	// registry has the digests of tags. Without one there is no answer.
	registry map[string]string
	// unknown are nodes whose runtime knows no digest; slow ones pull until told otherwise.
	unknown, slow map[string]bool
	silent        bool                 // no node says what it mounts
	labels        [6]map[string]string // of the first nodes
	made          int
	// patched are the images of the first container on nodes whose variant says another one than the template.
	patched, patchedVolume map[string]string
	// most is how many pods there were at one time that had asked the registry, and knew no answer.
	most   int
	policy string
	// pinned are the events that tell of digests.
	pinned []string
}

const pinned = `{waves: [{name: canary, count: 2, soak: 1m}], failure: {max: 0, min: 1, then: Rollback}, images: Pinned}`

const template = `
initContainers: [{name: init, image: "demo:v1"}]
containers:
- {name: a, image: "demo:v1"}
- {name: b, image: "registry.example.com:5000/team/b:2"}
- {name: c, image: "demo@sha256:` + digits0 + `"}
- {name: d, image: "local:v1", imagePullPolicy: Never}`

const digits0 = "0000000000000000000000000000000000000000000000000000000000000000"

func sha(n int) string { return fmt.Sprintf("sha256:%064x", n) }

func newWorld(t *testing.T, policy string) *world {
	w := &world{T: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), pods: map[types.UID]*corev1.Pod{}, policy: policy,
		registry: map[string]string{"demo:v1": sha(1), "registry.example.com:5000/team/b:2": sha(2)}, unknown: map[string]bool{}, slow: map[string]bool{},
		templates: map[string]*corev1.PodTemplateSpec{}}
	w.set = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", UID: "ds", Generation: 1}}
	if err := yaml.UnmarshalStrict([]byte(template), &w.set.Spec.Template.Spec); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) Template(_ types.UID, hash string) *corev1.PodTemplateSpec {
	if w.hidden {
		return nil
	}
	return w.templates[hash]
}
func (w *world) Pod(uid types.UID) *corev1.Pod { return w.pods[uid] }

// start has a controller begin that knows nothing.
func (w *world) start() {
	w.Helper()
	w.matrix = matrix.New(row.Config{})
	w.book = New(w.matrix)
	w.book.Objects = w
	w.tick(0)
	for i := range 6 {
		w.book.Step(fact.Node{Name: fmt.Sprintf("n%d", i), Labels: w.labels[i]})
	}
	for _, p := range w.pods {
		w.book.Step(w.project(p))
	}
	w.tellPolicy()
	w.tellSet()
	w.settle()
}

func (w *world) tellPolicy() { w.tellRollout(v1alpha1.DaemonSetRolloutSpec{}) }

func (w *world) tellRollout(asked v1alpha1.DaemonSetRolloutSpec) {
	w.Helper()
	spec := &v1alpha1.RolloutPolicySpec{}
	if err := yaml.UnmarshalStrict([]byte(w.policy), spec); err != nil {
		w.Fatal(err)
	}
	p, err := rolloutpolicy.Compile(spec, time.LoadLocation)
	if err != nil {
		w.Fatal(err)
	}
	if w.unread {
		w.book.Step(fact.Rollout{UID: "ds", Following: course.Lost, Why: "for a test", Unread: true, ToldOf: true})
		return
	}
	if w.following != course.Followed {
		w.book.Step(fact.Rollout{UID: "ds", Following: w.following, Why: "for a test", Status: w.stored, Spec: asked})
		return
	}
	w.book.Step(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: p, Status: w.stored, Spec: asked})
}

func (w *world) tellSet() {
	w.templates[fmt.Sprint("t", w.set.Generation)] = &w.set.Spec.Template
	rules, earlier := placement.Compile(&w.set.Spec.Template.Spec), map[string]*placement.Rules{}
	for g := range w.set.Generation {
		earlier[fmt.Sprint("t", g+1)] = rules
	}
	w.book.Step(fact.DaemonSet{UID: "ds", Namespace: "ns", Name: "agent", Generation: w.set.Generation, Revision: fmt.Sprint("t", w.set.Generation),
		Strategy:  fact.Strategy{MaxUnavailable: intstr.FromInt32(3)},
		Placement: rules, Earlier: &placement.Revisions{ByRevision: earlier}})
}

// edit makes another template of the same images.
func (w *world) edit() {
	w.Helper()
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.tellSet()
	w.settle()
}

func (w *world) project(p *corev1.Pod) fact.Pod {
	info := fact.Pod{UID: p.UID, Name: p.Name, Owner: "ds", Node: p.Spec.NodeName, Bound: true, Revision: p.Labels[appsv1.ControllerRevisionHashLabelKey],
		Created: p.CreationTimestamp.Time, BoundAt: p.CreationTimestamp.Time}
	switch whole := w.pull(p); {
	case whole:
		info.Ready, info.ReadySince = true, p.CreationTimestamp.Time
	case !w.slow[p.Spec.NodeName]:
		info.Trouble, info.Certain, info.Cause = "image cannot be pulled", true, pod.ContainerStart
	}
	return info
}

// pull has the node of a pod find out what its images are; true if all are there. What it has pulled it keeps.
func (w *world) pull(p *corev1.Pod) bool {
	pull := func(containers []corev1.Container, had []corev1.ContainerStatus) (out []corev1.ContainerStatus, all bool) {
		all = true
		for i, c := range containers {
			id, of := "", w.registry[c.Image]
			switch name, digest, byDigest := strings.Cut(c.Image, "@"); {
			case had != nil && had[i].ImageID != "":
				id = had[i].ImageID
			case w.slow[p.Spec.NodeName]:
			case byDigest:
				id = full(name) + "@" + digest
			case c.ImagePullPolicy == corev1.PullNever:
				id = sha(99)
			case of != "" && w.unknown[p.Spec.NodeName]:
				id = of
			case of != "":
				id = full(repository(c.Image)) + "@" + of
			}
			all = all && id != ""
			var mounts []corev1.VolumeMountStatus
			if had != nil {
				mounts = had[i].VolumeMounts
			}
			out = append(out, corev1.ContainerStatus{Name: c.Name, ImageID: id, VolumeMounts: w.mounted(p, &c, mounts)})
		}
		return out, all
	}
	one, two := false, false
	p.Status.InitContainerStatuses, one = pull(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	p.Status.ContainerStatuses, two = pull(p.Spec.Containers, p.Status.ContainerStatuses)
	return one && two
}

func (w *world) tick(by time.Duration) {
	w.now = w.now.Add(by)
	w.matrix.Step(fact.Now{Time: w.now})
	w.book.Tick(w.now)
}

func (w *world) pass(d time.Duration) {
	for range 20 {
		w.tick(d / 20)
		w.settle()
	}
}

func (w *world) settle() {
	w.Helper()
	for range 1000 {
		actions := w.matrix.Ready()
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			w.act(a)
		}
		w.count()
	}
	w.Fatal("it never ends")
}

func (w *world) act(a action.Action) {
	switch a := a.(type) {
	case *action.CreatePod:
		w.book.Begun("ds", a.Revision, a.PodName)
		w.made++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: a.PodName, UID: types.UID(fmt.Sprint("pod", w.made)), CreationTimestamp: metav1.Time{Time: w.now.Add(w.off)},
			Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: a.Revision}}, Spec: *w.templates[a.Revision].Spec.DeepCopy()}
		p.Spec.NodeName = a.Node
		if image := w.patched[a.Node]; image != "" {
			p.Spec.Containers[0].Image = image
			text, err := (&variant.Mark{Variant: "v", Effect: "another image"}).Text(p.Name)
			if err != nil {
				w.Fatal(err)
			}
			p.Annotations = map[string]string{variant.Annotation: text}
		}
		if image := w.patchedVolume[a.Node]; image != "" {
			p.Spec.Volumes[0].Image.Reference = image
			text, err := (&variant.Mark{Variant: "v", Effect: "another volume"}).Text(p.Name)
			if err != nil {
				w.Fatal(err)
			}
			p.Annotations = map[string]string{variant.Annotation: text}
		}
		images, first := w.book.Images("ds", a.Revision)
		pinning.Fill(&p.Spec, images, first)
		w.pods[p.UID] = p
		w.book.Step(w.project(p))
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK, Pod: p.UID})
	case *action.DeletePod:
		delete(w.pods, a.PodUID)
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
		w.book.Step(fact.PodGone(a.PodUID))
	case *action.UpdateRollout:
		if s := w.stored; s != nil && strings.Contains(w.policy, "Pinned") && s.StableRevision == a.Status.StableRevision && digestsOf(s) && !digestsOf(&a.Status) {
			w.Errorf("the digests of %s are forgotten", s.StableRevision)
		}
		w.stored = a.Status.DeepCopy()
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
	case *action.UpdateStatus:
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
	case *action.RolloutNews:
		if a.Event == "RolloutImagesPinned" {
			w.pinned = append(w.pinned, a.Message)
		}
	}
}

// digestsOf reports whether a status says the digests of its stable revision.
func digestsOf(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return s.Images != nil && slices.ContainsFunc(s.Images.Templates, func(t v1alpha1.PinnedTemplate) bool { return t.Template == s.StableRevision })
}

// count counts the pods that ask the registry without an answer yet, and have no known trouble.
func (w *world) count() {
	n := 0
	for _, p := range w.pods {
		if strings.Contains(p.Spec.Containers[0].Image, "@") || !w.slow[p.Spec.NodeName] {
			continue
		}
		n++
	}
	w.most = max(w.most, n)
}

// slowAll has all nodes pull until told otherwise.
func (w *world) slowAll() {
	for i := range 6 {
		w.slow[fmt.Sprint("n", i)] = true
	}
}

// again has all pods say what they know now.
func (w *world) again() {
	w.Helper()
	for _, p := range w.pods {
		w.book.Step(w.project(p))
	}
	w.settle()
}

// runs counts the pods by what their first container runs, and how it was asked for.
func (w *world) runs() map[string]int {
	out := map[string]int{}
	for _, p := range w.pods {
		out[p.Spec.Containers[0].Image+" "+p.Status.ContainerStatuses[0].ImageID]++
	}
	return out
}

func (w *world) wantRuns(want map[string]int) {
	w.Helper()
	if got := w.runs(); !maps.Equal(got, want) {
		w.Errorf("pods run %v, want %v; the rollout is %+v", got, want, w.stored)
	}
}

func byTag(n int) string    { return "demo:v1 docker.io/library/demo@" + sha(n) }
func byDigest(n int) string { return "demo@" + sha(n) + " docker.io/library/demo@" + sha(n) }

func TestAllGetWhatTheFirstNodeGot(t *testing.T) {
	w := newWorld(t, pinned)
	w.slowAll()
	w.start()
	w.pass(time.Minute)
	if len(w.pods) != 1 || w.most != 1 {
		t.Fatalf("%d pods pull, want one", len(w.pods))
	}
	for _, p := range w.pods {
		if c := p.Spec.Containers; c[0].ImagePullPolicy != corev1.PullAlways || p.Spec.InitContainers[0].ImagePullPolicy != corev1.PullAlways ||
			c[2].ImagePullPolicy == corev1.PullAlways || c[3].ImagePullPolicy != corev1.PullNever {
			t.Errorf("the first pod pulls %+v", c)
		}
	}
	clear(w.slow)
	w.again()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byTag(1): 1, byDigest(1): 5})
	for _, p := range w.pods {
		c := p.Spec.Containers
		if strings.Contains(c[0].Image, "@") && (p.Spec.InitContainers[0].Image != "demo@"+sha(1) || c[1].Image != "registry.example.com:5000/team/b@"+sha(2) ||
			c[2].Image != "demo@sha256:"+digits0 || c[3].Image != "local:v1") {
			t.Errorf("a pod is made with %s, %v", p.Spec.InitContainers[0].Image, c)
		}
	}
	// A pod that comes later gets the same, whatever the tag is by then; also after a restart.
	w.registry["demo:v1"] = sha(7)
	clear(w.pods)
	w.start()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byDigest(1): 6})
}

// While the first node pulls, no other one loses what it has.
func TestOthersKeepTheirPodsWhileTheFirstNodePulls(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	w.slowAll()
	w.edit()
	w.pass(5 * time.Minute)
	old := 0
	for _, p := range w.pods {
		if p.Labels[appsv1.ControllerRevisionHashLabelKey] == "t1" {
			old++
		}
	}
	if old != 5 || len(w.pods) != 6 {
		t.Errorf("%d of %d pods are of the old template, want 5 of 6", old, len(w.pods))
	}
}

// Between the canary and the rest somebody pushes other bits under the same tag.
func TestTagThatMovesInTheMiddle(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	w.registry["demo:v1"] = sha(5)
	w.edit()
	w.pass(30 * time.Second)
	w.registry["demo:v1"] = sha(6)
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{byTag(5): 1, byDigest(5): 5})
	if s := w.stored.Images; s == nil || len(s.Templates) != 1 || s.Templates[0].Images[0].Digest != sha(5) {
		t.Errorf("the rollout says %+v", s)
	}
}

// It is pushed while the first node has pulled the image for one container, and not yet for the other.
func TestTagThatMovesWithinTheFirstPod(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	w.slowAll()
	w.edit()
	w.pass(30 * time.Second)
	for _, p := range w.pods {
		if p.Labels[appsv1.ControllerRevisionHashLabelKey] == "t2" {
			p.Status.InitContainerStatuses[0].ImageID = full("demo") + "@" + sha(5)
		}
	}
	w.registry["demo:v1"] = sha(6)
	clear(w.slow)
	w.again()
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{byTag(6): 2, byDigest(6): 4})
	of := map[string]bool{}
	for _, p := range w.pods {
		if p.Spec.InitContainers[0].Image == "demo:v1" {
			of[p.Status.InitContainerStatuses[0].ImageID] = true
		}
	}
	if len(of) != 2 {
		t.Errorf("pods that asked were told %v, want one of them both digests", of)
	}
}

// The stable revision keeps its digests: who goes back gets what was there.
func TestGoingBackGetsTheOldDigests(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	w.registry["demo:v1"] = ""
	w.edit()
	w.pass(2 * time.Minute)
	if lines := w.stored.Images; w.stored.Phase != v1alpha1.PhaseRolledBack || lines == nil || len(lines.Templates) != 1 {
		t.Errorf("the rollout is %s: %s, images %+v", w.stored.Phase, w.stored.Message, lines)
	}
	w.pass(10 * time.Minute)
	for got, n := range w.runs() {
		if !strings.HasSuffix(got, sha(1)) {
			t.Errorf("%d pods run %s", n, got)
		}
	}
	w.registry["demo:v1"] = sha(8)
	w.edit()
	w.pass(30 * time.Second)
	lines := w.stored.Images.Lines()
	if len(lines) != 2 || !strings.Contains(lines[0], "image demo:v1 has moved") || !strings.Contains(lines[0], sha(1)) ||
		!strings.Contains(lines[0], sha(8)+", known since 20") || !strings.HasPrefix(lines[1], "image registry.example.com:5000/team/b:2 is "+sha(2)) {
		t.Errorf("people are told %q", lines)
	}
}

// A first node that says nothing, and one that cannot pull, give way to the next one: one at a time.
func TestFirstNodeThatCannotTellGivesWay(t *testing.T) {
	w := newWorld(t, "{waves: [{name: all, percent: 100}], failure: {max: 5, min: 5}, images: Pinned}")
	for i := range 5 {
		w.slow[fmt.Sprint("n", i)] = true
	}
	w.start()
	w.pass(5 * time.Minute)
	if len(w.pods) != 1 {
		t.Errorf("after five minutes %d pods pull, want one", len(w.pods))
	}
	w.pass(3 * time.Hour)
	if got := w.runs()[byTag(1)]; got != 1 || len(w.pods) != 6 {
		t.Errorf("%d of %d pods run, want the last one of six: %v", got, len(w.pods), w.runs())
	}
}

// Nodes that have their turn lose their pods before any could say so: their next ones come one at a time too.
func TestPodsThatAreMadeAgainAskOneAtATime(t *testing.T) {
	w := newWorld(t, "{waves: [{name: all, percent: 100}], failure: {max: 5, min: 5}, images: Pinned}")
	w.slowAll()
	w.start()
	w.pass(time.Hour)
	if len(w.pods) < 2 {
		t.Fatalf("%d nodes have tried, want several", len(w.pods))
	}
	for uid := range w.pods {
		delete(w.pods, uid)
		w.book.Step(fact.PodGone(uid))
	}
	w.most = 0
	w.pass(time.Minute)
	if w.most != 1 {
		t.Errorf("%d pods asked at one time, want one", w.most)
	}
	w.registry["demo:v1"] = sha(3)
	clear(w.slow)
	w.again()
	w.pass(time.Hour)
	for got, n := range w.runs() {
		if !strings.HasSuffix(got, sha(3)) {
			t.Errorf("%d pods run %s", n, got)
		}
	}
}

// An image that the node knows by no digest of its repository is taken as written, and that is told.
func TestImageWithoutADigestIsNotPinned(t *testing.T) {
	w := newWorld(t, pinned)
	for i := range 6 {
		w.unknown[fmt.Sprint("n", i)] = true
	}
	w.start()
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"demo:v1 " + sha(1): 6})
	if s := w.stored.Images; s == nil || !strings.Contains(s.Message, "demo:v1, registry.example.com:5000/team/b:2 is taken as written") {
		t.Errorf("the rollout says %+v", s)
	}
}

// Pods that run are taken at their word when pinning is turned on, and none restarts; nor when it is turned off.
func TestPinningIsTurnedOnAndOff(t *testing.T) {
	w := newWorld(t, strings.Replace(pinned, ", images: Pinned", "", 1))
	w.start()
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{byTag(1): 6})
	if w.stored.Images != nil {
		t.Errorf("without pinning the rollout says %+v", w.stored.Images)
	}
	w.registry["demo:v1"] = sha(5)
	w.policy = pinned
	w.tellPolicy()
	w.tellSet() // as contents does
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{byTag(1): 6})
	for uid, p := range w.pods {
		if p.Spec.NodeName == "n3" {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
		}
	}
	w.pass(time.Minute)
	w.wantRuns(map[string]int{byTag(1): 5, byDigest(1): 1})
	made := w.made
	w.policy = strings.Replace(pinned, ", images: Pinned", "", 1)
	w.tellPolicy()
	w.pass(10 * time.Minute)
	if w.made != made || w.stored.Images != nil {
		t.Errorf("%d pods were made, and the rollout says %+v", w.made-made, w.stored.Images)
	}
}

// repository is an image without its tag, full a repository as registries know it.
func repository(image string) string {
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[:at]
	}
	return image
}

func full(repository string) string {
	if strings.Contains(repository, "/") {
		return repository
	}
	return "docker.io/library/" + repository
}
