package contents

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/pod"
)

// tester is a test, or one case of a random one.
type tester interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is an API with nodes whose pods are ready at once, unless what they read says bad.
type world struct {
	tester
	now    time.Time
	book   *Book
	matrix *matrix.Matrix
	set    *appsv1.DaemonSet
	policy *rolloutpolicy.Policy
	stored *v1alpha1.DaemonSetRolloutStatus
	spec   v1alpha1.DaemonSetRolloutSpec // of the rollout
	// decided is what was stored when that was decided which is done now.
	decided *v1alpha1.DaemonSetRolloutStatus
	objects map[content.Ref]metav1.Object
	pods    map[string]fact.Pod // by node
	version int
	// refuse, when it returns something, fails a job that makes something; refusals counts those. keeps does so with what
	// is to be deleted.
	refuse   func(*Job) string
	keeps    func(metav1.Object) string
	refusals int
	// interrupts, if there is one, says of each object whether its job ends there without an answer, and whether it was
	// made before.
	interrupts func(metav1.Object) (ends, made bool)
	events     []string
	made       int
	restarts   int
	pointed    int
	// guest: another controller makes the pods.
	guest bool
	// foreign: the API server is another one.
	foreign bool
	// blind: policies cannot be read. unread: rollouts cannot be either.
	blind, unread bool
	// lastStored is what it was last.
	lastStored v1alpha1.DaemonSetRolloutStatus
	// said is what the status said last of content that replaces pods.
	said  *v1alpha1.ContentStatus
	surge bool
	// template is that of the DaemonSet, by the generation that had it first; 0 for that of its generation.
	template int64
	// reading are the kinds that are read; readable says whether they can be.
	reading  map[content.Kind]bool
	readable bool
	// assigned, if there is one, is asked about each pod that is made.
	assigned func(*action.CreatePod)
	// deletes, if there is one, is told of each pod that is deleted.
	deletes func(*action.DeletePod)
}

const careful = `
waves: [{name: canary, count: 1}]
failure: {max: 0, min: 1, then: Rollback}
content: {configMaps: Referenced, secrets: Referenced, settle: 5s, exclude: {names: [ca]}}`

// live is careful, with pods that stay.
var live = strings.Replace(careful, "content: {", "content: {apply: Live, ", 1)

const plain = `
waves: [{name: canary, count: 1}]
failure: {max: 0, min: 1, then: Rollback}`

func newWorld(t tester, policy string) *world { return newWorldWith(t, policy, nil) }

// newWorldWith is newWorld in which some jobs fail from the beginning.
func newWorldWith(t tester, policy string, refuse func(*Job) string) *world {
	w := &world{refuse: refuse, tester: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), objects: map[content.Ref]metav1.Object{}, pods: map[string]fact.Pod{}}
	w.set = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", UID: "ds", Generation: 1}}
	w.set.Spec.Template.Spec = corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}},
		{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}}},
	}}
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf", Labels: map[string]string{"app": "argo"}}, Data: map[string]string{"agent.conf": "good", "other": "same"}})
	w.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token"}, Data: map[string][]byte{"token": []byte("hunter2")}})
	w.policy = w.compile(policy)
	w.start(true)
	return w
}

func (w *world) compile(text string) *rolloutpolicy.Policy {
	w.Helper()
	spec := &v1alpha1.RolloutPolicySpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		w.Fatal(err)
	}
	p, err := rolloutpolicy.Compile(spec, time.LoadLocation)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// start has a controller begin that knows nothing; readable says whether it may read the namespace.
func (w *world) start(readable bool) {
	w.matrix = matrix.New(row.Config{Guest: w.guest})
	w.book, w.reading, w.readable = New(w.matrix), map[content.Kind]bool{}, readable
	w.book.Live, w.book.Guest = !w.foreign && !w.guest, w.guest
	w.tick(0)
	for i := range 5 {
		w.matrix.Step(fact.Node{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{content.LiveName: "true"}})
	}
	w.book.Tell(DaemonSet{Object: w.set})
	w.tellStored()
	w.tellPolicy()
	for _, node := range slices.Sorted(maps.Keys(w.pods)) {
		w.book.Step(w.pods[node])
	}
	w.tellSet()
	w.settle()
}

// read has what is followed be read, also what could not be.
func (w *world) read() {
	w.readable = true
	w.follow()
	for kind, reads := range w.reading {
		if reads {
			w.readKind(kind)
		}
	}
}

func sorted(objects map[content.Ref]metav1.Object) []content.Ref {
	return slices.SortedFunc(maps.Keys(objects), content.Ref.Compare)
}

func (w *world) readKind(kind content.Kind) {
	for _, ref := range sorted(w.objects) {
		if ref.Kind == kind {
			w.book.Tell(Object{Object: w.objects[ref]})
		}
	}
	w.book.Tell(Sight{Namespace: "ns", Kind: kind, Read: true})
}

// tellStored tells of the rollout as it is stored.
func (w *world) tellStored() {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent"}}
	if w.stored != nil {
		w.lastStored = *w.stored
	}
	r.Status = w.lastStored
	w.book.Tell(Stored{Rollout: r, Owner: w.set.UID, Gone: w.stored == nil})
}

// leave deletes the rollout that nobody follows any more, once no copy is left.
func (w *world) leave() {
	if w.policy == nil && w.stored != nil && !w.book.Keeps(w.set.UID) {
		w.stored = nil
		w.tellStored()
	}
}

func (w *world) tellPolicy() {
	if w.policy == nil {
		w.book.Step(fact.RolloutGone(w.set.UID))
		return
	}
	if w.unread {
		w.book.Step(fact.Rollout{UID: w.set.UID, Following: course.Lost, Why: "nothing can be read", Unread: true, ToldOf: true})
		return
	}
	if w.blind {
		w.book.Step(fact.Rollout{UID: w.set.UID, Following: course.Lost, Why: "policies cannot be read", Status: w.stored, Spec: w.spec})
		return
	}
	w.book.Step(fact.Rollout{UID: w.set.UID, PolicyUID: "p", Policy: w.policy, Status: w.stored, Spec: w.spec})
}

func (w *world) tellSet() {
	earlier := map[string]*placement.Rules{}
	for g := range w.set.Generation {
		earlier[fmt.Sprintf("t%d", g+1)] = placement.Compile(&w.set.Spec.Template.Spec)
	}
	strategy := fact.Strategy{MaxUnavailable: intstr.FromInt32(1), MaxSurge: intstr.FromInt32(0)}
	if w.surge {
		strategy.MaxUnavailable, strategy.MaxSurge = strategy.MaxSurge, strategy.MaxUnavailable
	}
	template := cmp.Or(w.template, w.set.Generation)
	w.book.Step(fact.DaemonSet{
		UID: w.set.UID, Namespace: "ns", Name: "agent", Generation: w.set.Generation, Revision: fmt.Sprintf("t%d", template),
		Digest: fmt.Sprintf("sha256:%064d", template), Placement: placement.Compile(&w.set.Spec.Template.Spec),
		Earlier: &placement.Revisions{ByRevision: earlier}, Strategy: strategy,
	})
}

// abort has somebody abort the change that is under way.
func (w *world) abort() {
	if w.stored == nil || w.policy == nil {
		return
	}
	w.spec.Abort = &v1alpha1.Abort{Revision: w.status().TargetRevision, Digest: w.stored.TargetDigest}
	w.tellPolicy()
	w.settle()
}

// edit changes the template as little as can be.
func (w *world) edit() {
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.book.Tell(DaemonSet{Object: w.set})
	w.tellSet()
	w.settle()
}

func (w *world) put(o metav1.Object) metav1.Object {
	w.version++
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), w.version)))
	o.SetResourceVersion(fmt.Sprint(w.version))
	o.SetCreationTimestamp(metav1.Time{Time: w.now})
	w.objects[read(o).Ref] = o
	if w.book != nil {
		w.book.Tell(Object{Object: o})
	}
	return o
}

func (w *world) drop(ref content.Ref) {
	o := w.objects[ref]
	if o == nil {
		w.Fatalf("there is no %s", ref)
	}
	delete(w.objects, ref)
	w.book.Tell(Object{Object: o, Gone: true})
	w.settle()
}

// write has the author write the ConfigMap.
func (w *world) write(value string) {
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf"}, Data: map[string]string{"agent.conf": value, "other": "same"}})
	w.settle()
}

func (w *world) tick(by time.Duration) {
	w.now = w.now.Add(by)
	w.matrix.Step(fact.Now{Time: w.now})
	w.book.Tell(Now{Time: w.now})
	w.book.touch("ns") // to look once more than there is news changes nothing
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for range 10 {
		w.tick(d / 10)
		w.settle()
	}
}

// follow tells of the kinds that are to be read, and of those no more.
func (w *world) follow() {
	want, moved := w.book.Follow()
	if !moved {
		return
	}
	for _, kind := range []content.Kind{content.ConfigMap, content.Secret} {
		reads := w.reading[kind]
		w.reading[kind] = want["ns"][kind]
		switch {
		case reads && !w.reading[kind]:
			w.book.Tell(Sight{Namespace: "ns", Kind: kind, Over: true})
		case !reads && w.reading[kind] && w.readable:
			w.readKind(kind)
		}
	}
}

// settle does what is to be done, until there is nothing more.
func (w *world) settle() {
	for range 1000 {
		w.leave()
		w.follow()
		jobs, actions := w.work()
		for _, n := range w.book.News() {
			w.events = append(w.events, n.Message)
		}
		if len(jobs)+len(actions) == 0 {
			return
		}
		for _, a := range actions {
			w.act(a)
		}
		for _, j := range jobs {
			w.book.Tell(w.carryOut(j))
		}
		w.check()
		w.checkStable()
	}
	w.Fatal("it never ends")
}

// work is what is to be done now, as decided by what is stored.
func (w *world) work() ([]*Job, []action.Action) {
	w.decided = w.stored
	return w.book.Jobs(), w.matrix.Ready()
}

func (w *world) carryOut(j *Job) Result {
	r := Result{Job: j}
	if w.refuse != nil && (j.Key != nil || len(j.Make) > 0) {
		r.Why = w.refuse(j)
		if r.Why != "" {
			w.refusals++
			return r
		}
	}
	if j.Key != nil {
		key := j.Key.DeepCopy()
		if key.Data == nil {
			key.Data = map[string][]byte{"key": fmt.Appendf(nil, "%032d", w.version)}
		}
		r.Made = append(r.Made, w.put(key))
	}
	for _, o := range j.Make {
		w.made++
		if w.stored == nil || w.stored.Content == nil {
			w.Errorf("%s is made before the rollout that is stored speaks of content", o.GetName())
		}
		ends, made := false, true
		if w.interrupts != nil {
			ends, made = w.interrupts(o)
		}
		if have := w.objects[read(o).Ref]; made && have != nil && !reflect.DeepEqual(read(have).Data, read(o).Data) {
			r.Why = "there is another object of that name"
			return r
		}
		if made {
			w.put(o)
		}
		if ends {
			r.Why = "no answer"
			return r
		}
		r.Made = append(r.Made, o)
	}
	for _, o := range j.Delete {
		if w.keeps != nil && w.keeps(o) != "" {
			r.Left = cmp.Or(r.Left, w.keeps(o))
			continue
		}
		if r.Left != "" && o.GetLabels()[content.Label] == content.IsManifest {
			continue
		}
		delete(w.objects, read(o).Ref)
		r.Deleted = append(r.Deleted, o)
	}
	return r
}

func (w *world) act(a action.Action) {
	switch a := a.(type) {
	case *action.CreatePod:
		if w.book.Unsound(a.UID, a.Revision) != "" {
			w.matrix.Step(action.Answer{Action: a, Outcome: action.Failed})
			return
		}
		if w.assigned != nil {
			w.assigned(a)
		}
		w.version++
		p := fact.Pod{UID: types.UID(fmt.Sprint("pod", w.version)), Name: a.PodName, Owner: w.set.UID, Node: a.Node, Bound: true, Revision: a.Revision,
			Created: w.now, BoundAt: w.now, Ready: true, ReadySince: w.now}
		if w.reads(a.Revision) == "bad" {
			p.Ready, p.ReadySince, p.Trouble, p.Certain, p.Cause = false, time.Time{}, "container agent ends", true, pod.ContainerStart
		}
		at := a.Node
		if _, is := w.pods[at]; is {
			at += "'" // with surge the second one
		}
		w.pods[at] = p
		w.restarts++
		w.book.Step(p)
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK, Pod: p.UID})
	case *action.PointPod:
		p := w.pods[a.Node]
		p.Revision, p.Pointed, p.Mounted, p.Settle, p.Before = a.Revision, a.At, w.now, a.Settle, a.Before
		if w.reads(a.Revision) == "bad" {
			p.Ready, p.ReadySince, p.Trouble, p.Restarts = false, time.Time{}, "container agent ends", 5
		}
		w.pods[a.Node] = p
		w.pointed++
		w.book.Step(p)
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
	case *action.DeletePod:
		if w.deletes != nil {
			w.deletes(a)
		}
		maps.DeleteFunc(w.pods, func(_ string, p fact.Pod) bool { return p.UID == a.PodUID })
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
		w.book.Step(fact.PodGone(a.PodUID))
	case *action.UpdateRollout:
		w.stored = a.Status.DeepCopy()
		if c := w.stored.Content; c != nil && c.Restarts != "" {
			w.said = c
		}
		w.tellStored()
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
	case *action.UpdateStatus:
		w.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
	}
}

// reads is what a pod of the revision finds in agent.conf; "none" if there is no copy, or an empty one.
func (w *world) reads(revision string) string {
	name := "conf"
	if id := content.IDOf(revision); id != "" {
		members, known := w.book.Members(w.set.UID, id)
		if !known {
			w.Errorf("a pod of revision %s is made, and nobody knows what that holds", revision)
			return "none"
		}
		for _, m := range members {
			if m.Ref == (content.Ref{Kind: content.ConfigMap, Name: "conf"}) {
				name = m.CopyRef().Name
			}
		}
	}
	m, is := w.objects[content.Ref{Kind: content.ConfigMap, Name: name}].(*corev1.ConfigMap)
	if !is || len(m.Data) == 0 {
		return "none"
	}
	return m.Data["agent.conf"]
}

// check: what a pod refers to is there.
func (w *world) check() {
	w.Helper()
	if !w.book.space("ns").sight[content.ConfigMap].read {
		return
	}
	for node, p := range w.pods {
		members, known := w.book.Members(w.set.UID, content.IDOf(p.Revision))
		if content.IDOf(p.Revision) != "" && !known {
			w.Errorf("at %s nobody knows what revision %s of the pod on %s holds", w.now, p.Revision, node)
		}
		for _, m := range members {
			if !m.Absent && w.objects[m.CopyRef()] == nil && w.refuse == nil {
				w.Errorf("at %s the pod on %s refers to %s, which is gone", w.now, node, m.CopyRef())
			}
		}
	}
}

// checkStable: what there would be to go back to is there, also while no pod has it.
func (w *world) checkStable() {
	w.Helper()
	if w.stored == nil || w.policy == nil || w.refuse != nil || !w.book.space("ns").sight[content.ConfigMap].read {
		return
	}
	members, _ := w.book.Members(w.set.UID, content.IDOf(w.stored.StableRevision))
	for _, m := range members {
		if !m.Absent && w.objects[m.CopyRef()] == nil {
			w.Errorf("at %s the copy %s of the stable revision is gone", w.now, m.CopyRef())
		}
	}
}

// runs counts the nodes by what their pods read.
func (w *world) runs() map[string]int {
	out := map[string]int{}
	for _, p := range w.pods {
		out[w.reads(p.Revision)]++
	}
	return out
}

func (w *world) wantRuns(want map[string]int) {
	w.Helper()
	if got := w.runs(); !maps.Equal(got, want) {
		w.Errorf("pods read %v, want %v; the rollout is %s: %s", got, want, w.status().Phase, w.status().Message)
	}
}

func (w *world) status() v1alpha1.DaemonSetRolloutStatus {
	s, _ := w.matrix.Rollout(w.set.UID)
	return s
}

func (w *world) wantMessage(words string) {
	w.Helper()
	if c := w.stored.Content; c == nil || !strings.Contains(c.Message, words) {
		w.Errorf("the rollout says of its content %+v, want %q", c, words)
	}
}

func (w *world) wantPhase(phase v1alpha1.Phase, words string) {
	w.Helper()
	if s := w.status(); s.Phase != phase || !strings.Contains(s.Message, words) {
		w.Errorf("the rollout is %s: %s; want %s with %q", s.Phase, s.Message, phase, words)
	}
}

// copies counts what stands for content.
func (w *world) copies() (n int) {
	for _, o := range w.objects {
		if is := o.GetLabels()[content.Label]; is == content.IsCopy || is == content.IsManifest {
			n++
		}
	}
	return n
}

// copyOf returns the copy of the ConfigMap that pods of the target refer to.
func (w *world) copyOf(revision string) content.Ref {
	w.Helper()
	members, _ := w.book.Members(w.set.UID, content.IDOf(revision))
	for _, m := range members {
		if m.Name == "conf" {
			return m.CopyRef()
		}
	}
	w.Fatalf("revision %s has no copy of the ConfigMap", revision)
	return content.Ref{}
}

// podGone has somebody delete the pod of a node.
func podGone(w *world, node string) fact.PodGone {
	uid := w.pods[node].UID
	delete(w.pods, node)
	return fact.PodGone(uid)
}

// marked counts the pods that refer to copies.
func marked(w *world) (n int) {
	for _, p := range w.pods {
		if content.IDOf(p.Revision) != "" {
			n++
		}
	}
	return n
}
