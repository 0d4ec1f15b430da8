// Package digests judges `images: Pinned` of policies, from the history alone. Tags move all the while.
//
//   - What a rollout says of a template's images stays as it is while that is the stable one or the target: no
//     image gets another digest, and none is forgotten.
//   - A digest is said, and given to a pod, only after a pod of the same DaemonSet and template had it.
//   - A pod that is made when the controller has said the digests has these; before, one pod at a time is made by tag.
//
// The two last rules hold for each pod that was made while a policy pinned all the while. What a rollout knew goes with
// it where its policy cannot be followed: nothing says then that images are pinned.
package digests

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// The rules.
const (
	Changed = "another digest of a template than the first"
	Untold  = "a digest that no pod had"
	Unlike  = "a pod without the digest of its template"
	Second  = "two first pods of a template"
)

// lag is how many revisions late a controller may be of which nothing but the history is known.
const lag = 400

// of is a template of a DaemonSet, by its hash.
type of struct {
	set      types.UID
	template string
}

// said is what a rollout says of a template's images.
type said struct {
	digests map[string]string // by the image as the template names it
	from    int64             // since when
}

// spoken is what a rollout says of a DaemonSet, by the template.
type spoken struct {
	set  types.UID
	said map[string]said
}

// made is a pod by tag.
type made struct {
	pod  *corev1.Pod
	from int64
}

type judge struct {
	record   history.Record
	sets     map[types.UID]*appsv1.DaemonSet
	policies map[types.UID]*v1alpha1.RolloutPolicy
	pinning  map[types.UID]pinning
	// rollouts are the templates of which each speaks.
	rollouts map[types.UID]spoken
	said     map[of]said
	pods     map[types.UID]*corev1.Pod
	// had are the digests that pods of a template have had.
	had   map[of]map[string]bool
	first map[of][]made
	names map[string]int64 // when the last pod of a name was made
	// erased is when a DaemonSet's rollout was deleted, and unread until when its policy could not be followed. lost is
	// since when it cannot be.
	erased, unread, lost map[types.UID]int64
	found                []history.Violation
	// judged is how many pods were made with digests that were to be theirs.
	judged int
}

// pinning is whether a DaemonSet's policy pins, and since when that, or the contrary, is so.
type pinning struct {
	is    bool
	since int64
	// again tells that it was otherwise before.
	again bool
}

// Check judges a record. It returns too how many pods there were that had to have digests, and had them.
func Check(r history.Record) (found []history.Violation, pinned int) {
	j := &judge{
		record: r, sets: map[types.UID]*appsv1.DaemonSet{}, policies: map[types.UID]*v1alpha1.RolloutPolicy{},
		pinning: map[types.UID]pinning{}, rollouts: map[types.UID]spoken{}, said: map[of]said{},
		pods: map[types.UID]*corev1.Pod{}, had: map[of]map[string]bool{}, first: map[of][]made{}, names: map[string]int64{},
		erased: map[types.UID]int64{}, unread: map[types.UID]int64{}, lost: map[types.UID]int64{},
	}
	for _, e := range r.Events {
		j.event(e)
	}
	return j.found, j.judged
}

func (j *judge) event(e history.Event) {
	uid := e.Object.GetUID()
	switch o := e.Object.(type) {
	case *appsv1.DaemonSet:
		keep(j.sets, uid, o, e.Deleted)
		j.pin(e.Revision)
	case *v1alpha1.RolloutPolicy:
		keep(j.policies, uid, o, e.Deleted)
		j.pin(e.Revision)
	case *v1alpha1.DaemonSetRollout:
		set := types.UID(o.Labels[history.OwnerLabel])
		if j.sets[set] != nil { // or it is taken over by the next DaemonSet of the name, after its status is
			j.rollout(e, o)
		}
		if e.Deleted {
			j.erased[set] = e.Revision
		}
	case *corev1.Pod:
		at := of{owner(o), o.Labels[appsv1.ControllerRevisionHashLabelKey]}
		if j.pods[uid] == nil && !e.Deleted {
			j.create(e, o, at)
			j.names[o.Name] = e.Revision
		}
		j.learn(at, o)
		keep(j.pods, uid, o, e.Deleted)
	}
}

func keep[T any](all map[types.UID]T, uid types.UID, o T, gone bool) {
	if gone {
		delete(all, uid)
		return
	}
	all[uid] = o
}

func owner(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == "DaemonSet" {
		return ref.UID
	}
	return ""
}

// pin notes which DaemonSets' policies pin now.
func (j *judge) pin(at int64) {
	var s history.State
	for _, p := range j.policies {
		s.Policies = append(s.Policies, p)
	}
	maps.DeleteFunc(j.pinning, func(uid types.UID, _ pinning) bool { return j.sets[uid] == nil })
	for uid, d := range j.sets {
		policy := s.PolicyOf(d)
		is := policy != nil && policy.Spec.Images == v1alpha1.ImagesPinned && d.DeletionTimestamp == nil
		j.read(uid, policy, at)
		was, known := j.pinning[uid]
		followed := policy == nil || waves.CanBeFollowed(policy)
		since, wasLost := j.lost[uid]
		if !known || was.is != is || followed && wasLost && !j.pinnedBefore(was, since) {
			j.pinning[uid] = pinning{is, at, known}
		}
		switch {
		case followed:
			delete(j.lost, uid)
		case !wasLost:
			j.lost[uid] = at
		}
	}
}

// read notes whether the policy of a DaemonSet can be followed.
func (j *judge) read(set types.UID, p *v1alpha1.RolloutPolicy, at int64) {
	switch {
	case p != nil && !waves.CanBeFollowed(p):
		j.unread[set] = math.MaxInt64
	case j.unread[set] == math.MaxInt64:
		j.unread[set] = at
	}
}

// unsaid reports whether what the rollout said at a revision went with it, and no policy could be followed then.
func (j *judge) unsaid(set types.UID, revision int64) bool {
	return revision < j.erased[set] && j.erased[set] < j.unread[set]
}

// pinnedBefore reports whether the controller knew of what a policy said of images before that could not be followed.
func (j *judge) pinnedBefore(p pinning, lost int64) bool {
	if !p.again || !j.record.Told {
		return !p.again || p.since <= lost-lag
	}
	return slices.ContainsFunc(j.record.Sights, func(s history.Sight) bool {
		return s.Version >= p.since && s.Version < lost && j.policies[s.UID] != nil
	})
}

// pinnedSince reports whether the DaemonSet's policy pins, and the controller knew of nothing else at a revision and
// later.
func (j *judge) pinnedSince(set types.UID, revision int64) bool {
	p := j.pinning[set]
	lost, isLost := j.lost[set]
	switch {
	case !p.is || p.since > revision || isLost && !j.pinnedBefore(p, lost):
		return false
	case !p.again:
		return true
	case !j.record.Told:
		return p.since <= revision-lag
	}
	return slices.ContainsFunc(j.record.Sights, func(s history.Sight) bool {
		return s.At <= revision && s.Version >= p.since && (j.policies[s.UID] != nil || j.sets[s.UID] != nil)
	})
}

func (j *judge) report(rule string, at int64, objects []types.UID, format string, args ...any) {
	j.found = append(j.found, history.Violation{
		Rule: rule, Revision: at, Objects: objects, Message: fmt.Sprintf(format, args...),
	})
}

// rollout judges what a rollout says of images.
func (j *judge) rollout(e history.Event, r *v1alpha1.DaemonSetRollout) {
	set, now := types.UID(r.Labels[history.OwnerLabel]), saidBy(e, r)
	concerned := []types.UID{r.UID, set}
	before := j.rollouts[r.UID]
	if before.set != set { // a DaemonSet that is made again gets the rollout of the one before it
		for template := range before.said {
			delete(j.said, of{before.set, template})
		}
		before.said = nil
	}
	for template, s := range before.said {
		is, stays := now[template]
		switch {
		case stays && !maps.Equal(is.digests, s.digests):
			j.report(Changed, e.Revision, concerned, "rollout %s says of template %s %v, and said %v since %d",
				r.Name, template, is.digests, s.digests, s.from)
		case stays:
			now[template] = s
		case !e.Deleted && goesTo(r, template) && j.pinnedSince(set, s.from):
			j.report(Changed, e.Revision, concerned, "rollout %s does not say any more what template %s has, which was %v",
				r.Name, template, s.digests)
		}
		delete(j.said, of{set, template})
	}
	j.saysNow(e, r, set, now)
	if history.PolicyGone(r) { // pods are made by tag, and what they have then is what counts once a policy is back
		maps.DeleteFunc(j.said, func(at of, _ said) bool { return at.set == set })
		now = nil
	}
	j.rollouts[r.UID] = spoken{set, now}
}

// saysNow judges the digests that a rollout says, and keeps them.
func (j *judge) saysNow(e history.Event, r *v1alpha1.DaemonSetRollout, set types.UID, now map[string]said) {
	concerned := []types.UID{r.UID, set}
	for template, s := range now {
		at := of{set, template}
		j.said[at] = s
		for image, digest := range s.digests {
			if s.from == e.Revision && digest != "" && !j.wasHad(at, repository(image)+"@"+digest) {
				j.report(Untold, e.Revision, concerned,
					"rollout %s says of template %s that %s is %s, and pods had %v", r.Name, template, image, digest,
					slices.Sorted(maps.Keys(j.had[at])))
			}
		}
	}
}

// saidBy is what a version of a rollout says.
func saidBy(e history.Event, r *v1alpha1.DaemonSetRollout) map[string]said {
	now := map[string]said{}
	if r.Status.Images == nil || e.Deleted {
		return now
	}
	for _, t := range r.Status.Images.Templates {
		s := said{map[string]string{}, e.Revision}
		for _, i := range t.Images {
			s.digests[i.Image] = i.Digest
		}
		now[t.Template] = s
	}
	return now
}

// goesTo reports whether the rollout goes to a template, or back to it.
func goesTo(r *v1alpha1.DaemonSetRollout, template string) bool {
	for _, revision := range []string{r.Status.StableRevision, r.Status.TargetRevision} {
		if hash, _, _ := strings.Cut(revision, "."); hash == template {
			return true
		}
	}
	return false
}

// wasHad reports whether a pod of the template has had an image, or one that nobody owned, which may have been adopted
// again just then.
func (j *judge) wasHad(at of, image string) bool {
	return j.had[at][image] || j.had[of{template: at.template}][image]
}

// learn takes in which digests a pod has.
func (j *judge) learn(at of, p *corev1.Pod) {
	if j.had[at] == nil {
		j.had[at] = map[string]bool{}
	}
	for _, image := range named(p) {
		if strings.Contains(image, "@") {
			j.had[at][image] = true
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		j.had[at][s.ImageID] = true
		for _, m := range s.VolumeMounts {
			if m.VolumeStatus != nil && m.VolumeStatus.Image != nil {
				j.had[at][m.VolumeStatus.Image.ImageRef] = true
			}
		}
	}
}

// named are the images of a pod's containers and volumes, as its spec names them.
func named(p *corev1.Pod) (out []string) {
	for _, c := range p.Spec.Containers {
		out = append(out, c.Image)
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			out = append(out, v.Image.Reference)
		}
	}
	return out
}

// create judges the images of a pod that the controller makes.
func (j *judge) create(e history.Event, p *corev1.Pod, at of) {
	d := j.sets[at.set]
	if d == nil || d.DeletionTimestamp != nil {
		return
	}
	early := j.early(e, p)
	s, known := j.said[at]
	known = known && s.from <= early && j.pinnedSince(at.set, s.from)
	byTag := false
	for _, image := range named(p) {
		_, byDigest := strings.CutPrefix(image, repository(image)+"@")
		byTag = byTag || !byDigest
		switch {
		case byDigest && !j.wasHad(at, image):
			j.report(Untold, e.Revision, []types.UID{p.UID, at.set}, "pod %s of template %s has %s, which no pod had",
				p.Name, at.template, image)
		case known && !s.has(image):
			j.report(Unlike, e.Revision, []types.UID{p.UID, at.set},
				"pod %s was made with %s, and the digests of template %s are %v since %d, which the controller knew at %d",
				p.Name, image, at.template, s.digests, s.from, early)
		case known:
			j.judged++
		}
	}
	if byTag {
		if !known {
			j.beside(e, p, at, early)
		}
		j.first[at] = append(j.first[at], made{p, e.Revision})
	}
}

// has reports whether a pod of the template may have an image: its digest, or a tag that the node knew none of.
func (s said) has(image string) bool {
	for tag, digest := range s.digests {
		if digest == "" && image == tag || digest != "" && image == repository(tag)+"@"+digest {
			return true
		}
	}
	return false
}

// beside judges that a pod by tag is the only one that can tell.
func (j *judge) beside(e history.Event, p *corev1.Pod, at of, early int64) {
	for _, m := range j.first[at] {
		other := j.pods[m.pod.UID]
		if other == nil || owner(other) != at.set || !j.tells(other, early, e.Revision) || !j.pinnedSince(at.set, m.from) ||
			j.unsaid(at.set, m.from) {
			continue
		}
		if j.record.Told && !j.knew(other.UID, early) || !j.record.Told && m.from > early {
			continue
		}
		j.report(Second, e.Revision, []types.UID{p.UID, other.UID, at.set},
			"pod %s of template %s was made by tag, and pod %s, which may tell the digest, is there since %d",
			p.Name, at.template, other.Name, m.from)
	}
}

// knew reports whether the controller had heard of an object.
func (j *judge) knew(uid types.UID, at int64) bool {
	return slices.ContainsFunc(j.record.Sights, func(s history.Sight) bool { return s.UID == uid && s.At <= at })
}

// tells reports whether a pod could tell its digest at each moment between two revisions.
func (j *judge) tells(p *corev1.Pod, low, high int64) bool {
	var before *corev1.Pod
	for _, e := range j.record.Events {
		o, is := e.Object.(*corev1.Pod)
		switch {
		case e.Revision > high:
			return mayTell(before)
		case !is || o.UID != p.UID:
			continue
		case e.Revision > low && !mayTell(before) || e.Deleted || !j.selects(owner(p), o):
			return false // somebody may have taken it out of the DaemonSet by its label
		}
		before = o
	}
	return mayTell(before)
}

// selects reports whether a DaemonSet's selector matches a pod.
func (j *judge) selects(set types.UID, p *corev1.Pod) bool {
	d := j.sets[set]
	if d == nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	return err == nil && s.Matches(labels.Set(p.Labels))
}

func mayTell(p *corev1.Pod) bool {
	if p == nil || p.DeletionTimestamp != nil {
		return false
	}
	if phase := p.Status.Phase; phase == corev1.PodFailed || phase == corev1.PodSucceeded {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return false
		}
	}
	return !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		w := s.State.Waiting
		return w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" || s.RestartCount > 0
	})
}

// early is the revision at which the creation of a pod was decided on, at the earliest. Names return: a pod can have
// been asked for while the one before it still was.
func (j *judge) early(e history.Event, p *corev1.Pod) int64 {
	if !j.record.Told {
		return j.before(p.CreationTimestamp.Add(-late))
	}
	for _, c := range j.record.Calls {
		if c.Pod == p.Name && !c.Delete && !c.Point && c.Since >= j.names[p.Name] {
			return c.Early
		}
	}
	return 0
}

// late is by how much a creation may come later than it was decided on: writes are held up, and are done once more.
const late = 5 * time.Second

// before is the newest revision that surely was before a time: that of an object that was made then.
func (j *judge) before(at time.Time) (revision int64) {
	seen := map[types.UID]bool{}
	for _, e := range j.record.Events {
		first := !seen[e.Object.GetUID()]
		seen[e.Object.GetUID()] = true
		if first && e.Object.GetCreationTimestamp().Time.Before(at) {
			revision = e.Revision
		}
	}
	return revision
}

// repository is an image without its tag or digest.
func repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		return name[:at]
	}
	return name
}
