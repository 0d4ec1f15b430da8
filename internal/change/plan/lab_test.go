package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// lab is a cluster with a DaemonSet controller in it: objects as the API holds them, a matrix and a book that hear of
// them late and in any order, and nodes that take their time. It shares no code with a play.
type lab struct {
	t *rapid.T
	*surveytest.World
	ds *appsv1.DaemonSet

	matrix *matrix.Matrix
	book   *rollouts.Book
	// contents stands before variants. kept are the ConfigMaps and Secrets; texts is what the author's hold, nil for none.
	// reading are the kinds that are read. secrets: those are content too.
	contents *contents.Book
	kept     map[content.Ref]metav1.Object
	texts    texts
	reading  map[content.Kind]bool
	secrets  bool
	// says is what a file has them hold; direct: its change is said to wait for no step.
	says   texts
	direct bool
	// pinned stands between contents and variants.
	pinned *pins.Book
	registry
	// variants stands before the matrix.
	variants *variants.Book
	// resized are the nodes whose pod was given other amounts last, and whether it was restarted for them.
	resized map[string]bool
	// withheld are nodes that did not give their pod other amounts.
	withheld map[string]bool
	// present is the ID of the present variants. fails: some of their formulas may fail.
	present string
	fails   bool
	// refusing: pods are tried again and again that cannot be made. refused: some were, ever.
	refusing, refused bool
	life              int // of the controller: what was meant for an earlier one is lost
	// soon is what the controller hears, later what happens on nodes.
	soon, later []event
	still       bool // nothing happens on nodes
	made        int
	// bad are the revisions that crash, and on which nodes.
	bad map[string]map[string]bool

	// done is what the controller has done since it was asked to be watched.
	done []deed
	// asked is what people were asked for.
	asked []string
	// away are deletions for another revision than the newest one, by nodes that have no other pod yet.
	away map[string]deed
	last time.Time // when something happened last
	step string
	// soaked are the steps that were watched for a while after their nodes had changed.
	soaked map[string]bool
}

// deed is a pod made or deleted.
type deed struct {
	at             time.Time
	node, revision string
	deleted        bool
	reason         action.Reason
	step           string
	// back tells that nodes went to the stable revision then, wanted that the node was to have the newest one, asked
	// that somebody had been asked for something before.
	back, wanted, asked bool
}

type event struct {
	at   time.Time
	life int // 0: whoever is there
	do   func()
}

func newLab(outer *testing.T, t *rapid.T) *lab {
	return &lab{t: t, World: surveytest.New(outer), bad: map[string]map[string]bool{}, soaked: map[string]bool{},
		kept: map[content.Ref]metav1.Object{},
		away: map[string]deed{}, resized: map[string]bool{}, withheld: map[string]bool{}}
}

// hear lets the controller hear of something, a second later at most.
func (l *lab) hear(do func()) {
	d := time.Duration(rapid.IntRange(0, 10).Draw(l.t, "lag")) * 100 * time.Millisecond
	l.soon = append(l.soon, event{l.Objects.Now.Add(d), l.life, do})
}

// happen lets something happen on a node.
func (l *lab) happen(most int, do func()) {
	d := time.Duration(rapid.IntRange(1, most).Draw(l.t, "takes")) * time.Second
	l.later = append(l.later, event{l.Objects.Now.Add(d), 0, do})
}

// restart begins a controller that knows nothing, and is told of objects in any order.
func (l *lab) restart() {
	l.life++
	l.soon = nil
	// After its start a controller has daemons that come up ask for a turn for a while. A plan knows nothing of that
	// start.
	l.matrix = matrix.New(row.Config{Foretells: true, Fetches: true})
	l.variants = variants.New(l.matrix)
	l.variants.Objects = labObjects{l}
	l.pinned = pins.New(labBelow{l.variants, l.matrix})
	l.pinned.Objects = labObjects{l}
	l.contents, l.reading = contents.New(l.pinned), map[content.Kind]bool{}
	l.contents.Live = true
	l.book = rollouts.New(labRows{l.contents, l.matrix}, time.LoadLocation)
	l.clock()
	tell := []func(){func() { l.book.Step(rollouts.DaemonSet{Object: l.ds}); l.hearDaemonSet() }}
	for _, p := range l.Objects.Policies {
		tell = append(tell, func() { l.book.Step(rollouts.Policy{Object: p}) })
	}
	for _, r := range l.Objects.Rollouts {
		tell = append(tell, func() {
			l.book.Step(rollouts.Rollout{Object: r})
			l.contents.Tell(contents.Stored{Rollout: r, Owner: l.ds.UID})
		})
	}
	for _, n := range l.Objects.Nodes {
		tell = append(tell, func() { l.hearNode(n) })
	}
	for _, v := range l.Objects.Variants {
		tell = append(tell, func() { l.variants.TellVariant(v, false) })
	}
	for _, r := range l.Objects.Revisions {
		if variants.IsStored(r) {
			tell = append(tell, func() { l.variants.TellStored(r, false) })
		}
	}
	for _, p := range l.Objects.Pods {
		if metav1.IsControlledBy(p, l.ds) {
			tell = append(tell, func() { l.hearPod(p.UID) })
		}
	}
	for _, f := range rapid.Permutation(tell).Draw(l.t, "order of the first lists") {
		f()
	}
}

func (l *lab) clock() {
	l.matrix.Step(fact.Now{Time: l.Objects.Now})
	l.contents.Tell(contents.Now{Time: l.Objects.Now})
	l.pinned.Tick(l.Objects.Now)
	l.variants.Tick(l.Objects.Now)
	l.book.Step(rollouts.Now{Time: l.Objects.Now})
}

// revision is the ControllerRevision of the present template, which is made if there is none.
func (l *lab) revision() *appsv1.ControllerRevision {
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(l.ds), Revisions: l.templates()})
	if err != nil {
		l.t.Fatal(err)
	}
	if plan.Current != nil {
		return plan.Current
	}
	l.Objects.Revisions = append(slices.Clone(l.Objects.Revisions), plan.Create)
	return plan.Create
}

func (l *lab) hearDaemonSet() {
	r := l.revision()
	digest, err := history.Digest(r)
	if err != nil {
		l.t.Fatal(err)
	}
	ds := l.ds
	l.variants.TellDaemonSet(ds, false)
	l.contents.Tell(contents.DaemonSet{Object: ds})
	l.contents.Step(fact.DaemonSet{
		UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name, Generation: ds.Generation, Revision: history.HashOf(r),
		Digest:    digest,
		Placement: placement.Compile(&ds.Spec.Template.Spec),
		Earlier:   belongings.PlacementsOf(slices.Values(l.templates())),
		Strategy:  belongings.StrategyOf(ds), MinReadySeconds: ds.Spec.MinReadySeconds,
		Reported: fact.StatusOf(&ds.Status), Conditions: fact.ConditionsOf(&ds.Status),
	})
}

// apply changes the DaemonSet as somebody who applies a manifest does.
func (l *lab) apply(ds *appsv1.DaemonSet) {
	l.ds, l.Objects.DaemonSets = ds, []*appsv1.DaemonSet{ds}
	l.book.Step(rollouts.DaemonSet{Object: ds}) // first, as in the shell
	l.hearDaemonSet()
}

func (l *lab) pod(uid types.UID) int {
	return slices.IndexFunc(l.Objects.Pods, func(p *corev1.Pod) bool { return p.UID == uid })
}

// change replaces a pod by one that is edited; the controller hears of it.
func (l *lab) change(uid types.UID, edit func(p *corev1.Pod)) {
	i := l.pod(uid)
	if i < 0 {
		return
	}
	l.Objects.Pods = slices.Clone(l.Objects.Pods)
	l.Objects.Pods[i] = l.Objects.Pods[i].DeepCopy()
	edit(l.Objects.Pods[i])
	l.hear(func() { l.hearPod(uid) })
}

func (l *lab) remove(uid types.UID) {
	i := l.pod(uid)
	if i < 0 {
		return
	}
	node := l.Objects.Pods[i].Spec.NodeName
	l.Objects.Pods = slices.Delete(slices.Clone(l.Objects.Pods), i, i+1)
	l.hear(func() { l.hearPod(uid) })
	for _, p := range l.Objects.Pods {
		if p.Spec.NodeName == "" && node != "" {
			l.schedule(p.UID) // what had no room may have some
		}
		if r := resizing.RecordOf(p); r != nil && node != "" && p.Spec.NodeName == node {
			l.give(p.UID)
		}
	}
}

func (l *lab) hearPod(uid types.UID) {
	if i := l.pod(uid); i >= 0 {
		info := fact.OfPod(l.Objects.Pods[i], l.ds.UID)
		info.Point(l.Objects.Pods[i])
		info.Resize(l.Objects.Pods[i])
		info.Fetch = fetch.ReportOf(l.Objects.Pods[i])
		l.contents.Step(info)
	} else {
		l.contents.Step(fact.PodGone(uid))
	}
}

func (l *lab) works(name string) bool {
	for _, n := range l.Objects.Nodes {
		if n.Name == name {
			return n.Status.Conditions[0].Status == corev1.ConditionTrue
		}
	}
	return false
}

func meantFor(p *corev1.Pod) string {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

func condition(p *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus, at time.Time, message string) {
	p.Status.Conditions = slices.DeleteFunc(slices.Clone(p.Status.Conditions),
		func(c corev1.PodCondition) bool { return c.Type == t })
	c := corev1.PodCondition{Type: t, Status: status, LastTransitionTime: metav1.NewTime(at), Message: message}
	if message != "" {
		c.Reason = corev1.PodReasonUnschedulable
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}

// schedule binds a pod, or says that it has no room.
func (l *lab) schedule(uid types.UID) {
	p := l.Objects.Pods[l.pod(uid)]
	if p.Spec.NodeName != "" {
		return
	}
	node := meantFor(p)
	reasons := survey.New(l.Objects).Reasons(p, node, nil)
	l.change(uid, func(p *corev1.Pod) {
		if len(reasons) > 0 {
			condition(p, corev1.PodScheduled, corev1.ConditionFalse, l.Objects.Now,
				"0/1 nodes are available: "+reasons[0]+".")
			return
		}
		p.Spec.NodeName = node
		condition(p, corev1.PodScheduled, corev1.ConditionTrue, l.Objects.Now, "")
	})
	switch {
	case len(reasons) > 0 || !l.works(node):
	case l.pins:
		l.happen(15, func() {
			if !l.cannotPull(hashOf(p), node) {
				l.change(uid, l.pull)
			}
			l.happen(15, func() { l.start(uid) })
		})
	default:
		l.happen(30, func() { l.start(uid) })
	}
}

// start lets a pod become ready, or crash.
func (l *lab) start(uid types.UID) {
	l.change(uid, func(p *corev1.Pod) {
		if l.cannotPull(hashOf(p), p.Spec.NodeName) {
			condition(p, corev1.PodReady, corev1.ConditionFalse, l.Objects.Now, "")
			waits := corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &waits}}}
			return
		}
		p.Status.Phase = corev1.PodRunning
		if l.isBad(p) {
			p.Status.Conditions = append(slices.Clone(p.Status.Conditions),
				corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
			surveytest.CrashesAt(p, l.Objects.Now)
			if l.pins {
				l.pull(p)
			}
			return
		}
		condition(p, corev1.PodReady, corev1.ConditionTrue, l.Objects.Now, "")
		available := l.Objects.Now.Add(time.Duration(l.ds.Spec.MinReadySeconds)*time.Second + time.Second)
		l.later = append(l.later, event{available, 0, func() {}}) // nobody is asked for anything before
	})
}

// delete has a pod end, where its node works.
func (l *lab) delete(uid types.UID) {
	i := l.pod(uid)
	if i < 0 || l.Objects.Pods[i].DeletionTimestamp != nil {
		return
	}
	node := l.Objects.Pods[i].Spec.NodeName
	grace := int64(30)
	at := metav1.NewTime(l.Objects.Now.Add(30 * time.Second))
	l.change(uid, func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace })
	switch {
	case node == "":
		l.remove(uid)
	case l.works(node):
		l.happen(15, func() { l.remove(uid) })
	}
}

// act does what the controller wants done. Whether its answer comes before the watch tells of it is chance.
func (l *lab) act(a action.Action) {
	answer := action.Answer{Action: a}
	switch a := a.(type) {
	case *action.CreatePod:
		l.pinned.Begun(a.UID, a.Revision, a.PodName)
		if l.contents.Unsound(a.UID, a.Revision) != "" { // after a start Secrets may not be read yet
			answer.Outcome = action.Failed
			l.pinned.Step(answer)
			return
		}
		outcome, err := l.variants.Outcome(a.UID, a.Revision, a.Node)
		if err == nil && outcome != nil && outcome.Err != nil {
			answer.Refused, err = outcome.Err.Error(), outcome.Err
		}
		if err != nil {
			answer.Outcome, l.refusing, l.refused = action.Failed, true, true
			l.pinned.Step(answer)
			return
		}
		l.did(deed{node: a.Node, revision: a.Revision})
		delete(l.resized, a.Node)
		delete(l.away, a.Node)
		answer.Pod = l.create(a, outcome)
	case *action.ResizePod:
		answer.Outcome, answer.Refused = l.resize(a)
	case *action.PointPod:
		answer.Outcome = l.point(a)
	case *action.FetchImages:
		answer.Outcome = l.fetch(a)
	case *action.DeletePod:
		l.did(deed{node: a.Node, revision: l.revisionOf(a.PodUID), deleted: true, reason: a.Reason})
		if d := l.done[len(l.done)-1]; a.Reason == action.ReasonTurn && !d.wanted {
			l.away[a.Node] = d
		}
		l.delete(a.PodUID)
	case *action.UpdateStatus:
		l.ds = l.ds.DeepCopy()
		a.Status.Apply(&l.ds.Status)
		a.Conditions.Apply(&l.ds.Status, l.Objects.Now)
		l.Objects.DaemonSets = []*appsv1.DaemonSet{l.ds}
	case *action.UpdateRollout:
		l.store(a)
	default:
		return
	}
	l.hear(func() { l.pinned.Step(answer) })
}

func hashOf(p *corev1.Pod) string { return p.Labels[appsv1.ControllerRevisionHashLabelKey] }

func (l *lab) did(d deed) {
	st, guided := l.matrix.Rollout(l.ds.UID)
	order, _ := l.matrix.Order(l.ds.UID, d.node)
	d.back, d.wanted = guided && isBack(&st), !guided || order.Target == l.newest()
	d.step = all
	if guided && !d.back && st.StableRevision != "" {
		d.step = cmp.Or(l.matrix.StepOf(l.ds.UID, d.node), all)
	}
	d.at, d.asked = l.Objects.Now, len(l.asked) > 0
	l.hadFetched(d.node)
	l.done = append(l.done, d)
}

func isBack(st *v1alpha1.DaemonSetRolloutStatus) bool {
	return st.Phase == v1alpha1.PhaseRolledBack || st.StableRevision == st.TargetRevision
}

func (l *lab) create(a *action.CreatePod, outcome *variant.Outcome) types.UID {
	l.made++
	var template *corev1.PodTemplateSpec
	for _, r := range l.Objects.Revisions {
		if history.HashOf(r) == content.TemplateOf(a.Revision) {
			var err error
			if template, err = history.Template(r); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	if outcome != nil {
		template = outcome.Template.DeepCopy()
		outcome.Resources.Fill(&template.Spec)
	}
	if id := content.IDOf(a.Revision); id != "" {
		members, _ := l.contents.Given(a.UID, a.Revision) // see act
		template = template.DeepCopy()
		content.Rewrite(&template.Spec, members)
	}
	template = l.fill(a, template)
	p := survey.Candidate(template, l.ds.Namespace, a.Node)
	p.Name, p.UID, p.CreationTimestamp = a.PodName, types.UID(fmt.Sprintf("pod-%d",
		l.made)), metav1.NewTime(l.Objects.Now)
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = content.TemplateOf(a.Revision)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(l.ds, belongings.Kind)}
	p.Status.Phase = corev1.PodPending
	if a.Before != "" {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, fact.Replaced, fact.ReplacedText(a.Before, p.Name))
	}
	if outcome != nil && !outcome.Plain {
		l.sign(p, a.Revision, &outcome.Mark)
	} else {
		l.sign(p, a.Revision, &variant.Mark{})
	}
	l.Objects.Pods = append(slices.Clone(l.Objects.Pods), p)
	l.hear(func() { l.hearPod(p.UID) })
	l.happen(2, func() {
		if l.pod(p.UID) >= 0 {
			l.schedule(p.UID)
		}
	})
	return p.UID
}

func (l *lab) rollout() *v1alpha1.DaemonSetRollout {
	if len(l.Objects.Rollouts) == 0 {
		return nil
	}
	return l.Objects.Rollouts[0]
}

func (l *lab) store(a *action.UpdateRollout) {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name, UID: "rollout",
		Generation: 1}}
	if have := l.rollout(); have != nil {
		r = have.DeepCopy()
	} else if a.PausedWhy != "" {
		r.Spec.Paused = true
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, rollouts.PausedBecause, a.PausedWhy)
	}
	r.Labels = map[string]string{rollouts.OwnerLabel: string(a.UID)}
	r.Status = a.Status
	r.Status.Conditions = rollouts.Conditions(&r.Status, r.Status.Conditions, l.Objects.Now)
	l.write(r)
}

// write puts the rollout in place of the one that there is.
func (l *lab) write(r *v1alpha1.DaemonSetRollout) {
	l.Objects.Rollouts = []*v1alpha1.DaemonSetRollout{r}
	l.book.Step(rollouts.Rollout{Object: r})
	l.contents.Tell(contents.Stored{Rollout: r, Owner: l.ds.UID})
}

// jobs does what the book wants done.
func (l *lab) jobs() {
	for _, j := range l.book.Jobs() {
		result := rollouts.Result{Job: j}
		switch {
		case j.Policy != nil:
			i := slices.IndexFunc(l.Objects.Policies, func(p *v1alpha1.RolloutPolicy) bool { return p.UID == j.Policy.UID })
			if i >= 0 {
				l.Objects.Policies = slices.Clone(l.Objects.Policies)
				l.Objects.Policies[i], result.Policy = j.Policy, j.Policy
			}
		case j.Left != nil:
			l.Objects.Rollouts = []*v1alpha1.DaemonSetRollout{j.Left}
			result.Rollout = j.Left
		default:
			l.contents.Tell(contents.Stored{Rollout: l.Objects.Rollouts[0], Owner: l.ds.UID, Gone: true})
			l.Objects.Rollouts = nil
		}
		l.book.Step(result)
	}
}

// decide has the controller do all that it does at this moment.
func (l *lab) decide() {
	for {
		l.jobs()
		kept := l.keepContent()
		l.keepVariants()
		actions := l.matrix.Ready()
		for _, a := range actions {
			l.act(a)
		}
		if len(actions) == 0 && !kept {
			break
		}
	}
	for _, node := range slices.Sorted(maps.Keys(l.away)) {
		order, guided := l.matrix.Order(l.ds.UID, node)
		if guided && order.Target == l.newest() && !l.matrix.Selects(l.ds.UID, l.newest(), node) {
			l.did(l.away[node]) // its step has begun, and it has no daemon to lose
			delete(l.away, node)
		}
	}
	l.lookAtFetches()
	st, _ := l.matrix.Rollout(l.ds.UID)
	if st.Step != l.step {
		l.step, l.last = st.Step, l.Objects.Now
	}
	if st.Phase == v1alpha1.PhaseSoaking {
		l.soaked[st.Step] = true
	}
}

// due takes what is due from a list.
func due(list *[]event, now time.Time, life int) (out []event) {
	var rest []event
	for _, e := range *list {
		switch {
		case e.life != 0 && e.life != life:
		case e.at.After(now):
			rest = append(rest, e)
		default:
			out = append(out, e)
		}
	}
	*list = rest
	slices.SortStableFunc(out, func(a, b event) int { return a.at.Compare(b.at) })
	return out
}

// next is when there is something to do.
func (l *lab) next() (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, e := range l.soon {
		sooner(e.at)
	}
	for _, e := range l.later {
		if !l.still {
			sooner(e.at)
		}
	}
	for _, next := range []func() (time.Time, bool){l.matrix.NextTick, l.book.NextTick, l.variants.NextTick,
		l.contents.NextTick, l.pinned.NextTick} {
		t, ok := next()
		if ok {
			sooner(t)
		}
	}
	return at
}

// to moves the clock, and does what is due.
func (l *lab) to(at time.Time) {
	l.Objects.Now = at
	l.clock()
	var now []event
	if !l.still {
		now = due(&l.later, at, l.life)
	}
	if len(now) > 0 {
		l.last = at
	}
	for _, e := range append(now, due(&l.soon, at, l.life)...) {
		e.do()
	}
	l.decide()
}

// run goes on for a while.
func (l *lab) run(d time.Duration) {
	end := l.Objects.Now.Add(d)
	l.decide()
	for {
		at := l.next()
		if at.IsZero() || at.After(end) {
			break
		}
		l.to(later(at, l.Objects.Now.Add(time.Millisecond)))
	}
	l.to(end)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// hush lets the controller hear all that there is to hear. On nodes only what is to end ends meanwhile: whether a
// daemon comes back first, or its node's turn to lose it comes, is a matter of seconds.
func (l *lab) hush() {
	l.still = true
	for again := true; again; {
		l.run(2 * time.Second)
		again = len(l.soon) > 0
		for _, p := range l.Objects.Pods {
			if p.DeletionTimestamp != nil && l.works(p.Spec.NodeName) {
				l.remove(p.UID)
				again = true
			}
		}
	}
	l.still = false
	// What starts then does so some seconds later, when the controller has heard of what is applied.
	for i := range l.later {
		l.later[i].at = later(l.later[i].at, l.Objects.Now.Add(5*time.Second))
	}
}

// finish goes on until nothing more happens, and gives what is asked for.
func (l *lab) finish() {
	l.last, l.refusing = l.Objects.Now, false
	l.decide()
	for range 100_000 {
		at := l.next()
		quiet := len(l.soon) == 0 && len(l.later) == 0
		switch {
		case quiet && l.help():
			l.last = l.Objects.Now
			l.decide()
			continue
		case at.IsZero(), quiet && at.After(l.last.Add(16*24*time.Hour)),
			quiet && l.refusing && at.After(l.last.Add(26*time.Hour)): // windows open each day
			return
		}
		l.to(later(at, l.Objects.Now.Add(time.Millisecond)))
	}
	l.t.Fatal("the controller does not come to rest")
}

// help does what people are asked for; false if they are asked for nothing.
func (l *lab) help() bool {
	if l.ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		newest, gave := l.newest(), false
		for _, p := range l.Objects.Pods {
			old := metav1.IsControlledBy(p, l.ds) && p.DeletionTimestamp == nil && l.revisionOf(p.UID) != newest
			if !old || !l.matrix.Selects(l.ds.UID, newest, meantFor(p)) {
				continue
			}
			if !gave {
				l.asked = append(l.asked, byHand)
			}
			l.did(deed{node: meantFor(p), revision: l.revisionOf(p.UID), deleted: true})
			l.delete(p.UID)
			gave = true
		}
		return gave
	}
	r := l.rollout()
	st, guided := l.matrix.Rollout(l.ds.UID)
	if !guided || r == nil || r.Status.TargetRevision != st.TargetRevision || r.Status.TargetDigest == "" {
		return false
	}
	next := r.DeepCopy()
	next.Generation++
	approve := func(step string) bool {
		a := &v1alpha1.StepApproval{Revision: st.TargetRevision, Digest: r.Status.TargetDigest, Step: step, Change: st.Change}
		if was := next.Spec.Approved; was != nil && *was == *a {
			return false
		}
		next.Spec.Approved = a
		return true
	}
	gone := len(l.Objects.Policies) == 0 || !selects(l.Objects.Policies[0], l.ds)
	switch {
	case st.Phase == v1alpha1.PhaseWaitingForApproval:
		if !approve(st.Step) {
			return false
		}
		l.asked = append(l.asked, "approval of "+st.Step)
	case st.Phase != v1alpha1.PhasePaused:
		return false
	case gone && rollouts.TargetFailed(&st):
		return false
	case gone:
		if !approve(v1alpha1.WithoutPolicy) {
			return false
		}
		l.asked = append(l.asked, "approval of step WithoutPolicy")
	case r.Spec.Paused && st.TargetRevision != st.StableRevision:
		next.Spec.Paused = false
		l.asked = append(l.asked, "resume")
	default:
		return false
	}
	l.write(next)
	return true
}

func selects(p *v1alpha1.RolloutPolicy, ds *appsv1.DaemonSet) bool {
	if p.Spec.Selector == nil {
		return true
	}
	for k, v := range p.Spec.Selector.MatchLabels {
		if ds.Labels[k] != v {
			return false
		}
	}
	return true
}

// newestPod of a node that is not on its way out; nil if there is none.
func (l *lab) newestPod(node string) *corev1.Pod {
	var newest *corev1.Pod
	for _, p := range l.Objects.Pods {
		if !metav1.IsControlledBy(p, l.ds) || p.DeletionTimestamp != nil || meantFor(p) != node {
			continue
		}
		if newest == nil || cmp.Compare(newest.CreationTimestamp.UnixNano(), p.CreationTimestamp.UnixNano()) < 0 {
			newest = p
		}
	}
	return newest
}
