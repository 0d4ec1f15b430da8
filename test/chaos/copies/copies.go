// Package copies judges what becomes of ConfigMaps and Secrets that are content, from the history alone.
//
//   - A pod of a revision with content refers to copies of that content only, each of which is there from before the
//     pod until the pod is gone, or is no longer its DaemonSet's. So it is of one whose volumes were pointed at another
//     content, from then on.
//   - A copy holds what the author's object held at some time before, or nothing.
//   - In the end each pod has what the object holds now, and there are the copies that somebody may yet need, and
//     where these are swept soon no others (left.go).
package copies

import (
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

// The rules.
const (
	Refers = "a pod refers to what is not its content"
	Early  = "a copy was gone too early"
	Made   = "a copy of what nobody wrote"
)

const forEver = int64(math.MaxInt64)

// life is how long an object was there, and its first version.
type life struct {
	object   metav1.Object
	from, to int64
	// leaves is when it began to go, or was its owner's no more.
	leaves int64
}

type judge struct {
	lives map[types.UID]*life
	// named are the ConfigMaps and Secrets of a name.
	named map[revision.Ref][]*life
	found []history.Violation
}

// Check judges a record.
func Check(r history.Record) []history.Violation {
	j := &judge{lives: map[types.UID]*life{}, named: map[revision.Ref][]*life{}}
	for i := range r.Events {
		j.take(&r.Events[i])
	}
	written := map[string]bool{}
	for _, e := range r.Events {
		j.made(&e, written)
	}
	for _, s := range j.stays(r.Events) {
		j.pod(s)
	}
	return j.found
}

func (j *judge) take(e *history.Event) {
	uid := e.Object.GetUID()
	l := j.lives[uid]
	if l == nil {
		l = &life{object: e.Object, from: e.Revision, to: forEver, leaves: forEver}
		j.lives[uid] = l
		if ref := revision.RefOf(e.Object); ref != (revision.Ref{}) {
			j.named[ref] = append(j.named[ref], l)
		}
	}
	if e.Deleted {
		l.to = e.Revision
	}
	_, isSet := e.Object.(*appsv1.DaemonSet)
	if e.Deleted || isSet && e.Object.GetDeletionTimestamp() != nil || owner(e.Object) != owner(l.object) {
		l.leaves = min(l.leaves, e.Revision)
	}
}

func owner(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return ref.UID
	}
	return ""
}

func (j *judge) report(rule string, at int64, objects []types.UID, format string, args ...any) {
	j.found = append(j.found, history.Violation{
		Rule: rule, Revision: at, Objects: objects, Message: fmt.Sprintf(format, args...),
	})
}

// made judges a copy when it is made; written is what the authors' objects have held so far, by their kind.
func (j *judge) made(e *history.Event, written map[string]bool) {
	o, ref := e.Object, revision.RefOf(e.Object)
	switch value := ref.Kind + " " + revision.Value(o); {
	case ref.Kind == "":
	case revision.ByAuthor(o):
		written[value] = true
	case revision.Empty(o): // it stands for what is missing
	case o.GetLabels()[revision.ContentLabel] == revision.Copy && !e.Deleted && !written[value]:
		j.report(Made, e.Revision, []types.UID{o.GetUID()}, "copy %s holds %s, which nobody has written", ref, value)
	}
}

// stay is a pod while it has one content, and shows the same.
type stay struct {
	pod         *corev1.Pod
	from, until int64
}

// stays are those of each pod that a DaemonSet has made, in order.
func (j *judge) stays(events []history.Event) (out []*stay) {
	last := map[types.UID]*stay{}
	for _, e := range events {
		p, is := e.Object.(*corev1.Pod)
		if !is || j.lives[owner(j.lives[e.Object.GetUID()].object)] == nil {
			continue
		}
		l, was := j.lives[p.UID], last[p.UID]
		if e.Revision >= l.leaves || was != nil && same(was.pod, p) {
			continue
		}
		if was != nil {
			was.until = min(was.until, e.Revision)
		}
		set := j.lives[owner(l.object)]
		now := &stay{p, e.Revision, min(l.leaves, set.leaves)}
		last[p.UID], out = now, append(out, now)
	}
	return out
}

func same(a, b *corev1.Pod) bool {
	return revision.ContentOf(a) == revision.ContentOf(b) &&
		a.Annotations[revision.LiveAnnotation] == b.Annotations[revision.LiveAnnotation]
}

// pod judges what a pod refers to while it is as it is.
func (j *judge) pod(s *stay) {
	p, id := s.pod, revision.ContentOf(s.pod)
	set := j.lives[owner(j.lives[p.UID].object)]
	if s.until <= s.from {
		return
	}
	list := revision.Ref{Kind: revision.MapKind, Name: set.object.GetName() + "-" + id}
	listed := j.listedAt(list, s.from)
	for _, name := range revision.Shown(p) {
		own := name == revision.Map || name == revision.Secret
		m, is := listed.For(name)
		switch {
		case own && (id == "" || !listed.Has(name)):
		case id == "":
			j.report(Refers, s.from, []types.UID{p.UID}, "pod %s has no content and refers to %s", p.Name, name)
		case !is:
			j.report(Refers, s.from, append(j.all(list, name), p.UID),
				"pod %s of content %s refers to %s, which list %s does not name", p.Name, id, name, list.Name)
		case m.Absent && m.Refers() != name: // no object can have that name
		default:
			j.missed(s, list, name)
		}
	}
}

// missed judges that a copy is there as long as a pod needs it.
func (j *judge) missed(s *stay, list, name revision.Ref) {
	gap, ok := j.gap(name, s.from, s.until)
	if !ok {
		return
	}
	j.report(Early, gap, append(j.all(list, name), s.pod.UID),
		"copy %s is not there, and pod %s refers to it, which has been so since %d and is the DaemonSet's until %d",
		name, s.pod.Name, s.from, s.until)
}

// listedAt is the list of a name as it was at a revision; an empty one if there was none.
func (j *judge) listedAt(name revision.Ref, at int64) *revision.List {
	for _, l := range j.named[name] {
		if l.from <= at && at < l.to {
			list, _ := revision.Read(l.object)
			return &list
		}
	}
	return &revision.List{}
}

func (j *judge) all(names ...revision.Ref) (out []types.UID) {
	for _, name := range names {
		for _, l := range j.named[name] {
			out = append(out, l.object.GetUID())
		}
	}
	return out
}

// gap is the first revision from one to before another at which there was nothing of a name.
func (j *judge) gap(name revision.Ref, from, until int64) (at int64, ok bool) {
	for at = from; at < until; {
		i := slices.IndexFunc(j.named[name], func(l *life) bool { return l.from <= at && at < l.to })
		if i < 0 {
			return at, true
		}
		at = j.named[name][i].to
	}
	return 0, false
}

// place is a DaemonSet on a node.
type place struct{ set, node string }

// Unsettled says what is not as it should be in the end; swept: nor is a copy that nobody needs.
func Unsettled(s history.State, swept bool) (out []string) {
	values, sets := revision.Values(s.Contents), map[types.UID]*appsv1.DaemonSet{}
	for _, d := range s.Sets {
		sets[d.UID] = d
	}
	for _, o := range s.Contents {
		if is := owner(o); is != "" && sets[is] == nil {
			out = append(out, revision.RefOf(o).String()+" belongs to a DaemonSet that is gone")
		}
	}
	need := func(who string, d *appsv1.DaemonSet, id string) {
		if _, known := values[id]; id != "" && !known {
			out = append(out, fmt.Sprintf("%s has content %s of %s, and its copies are gone", who, id, d.Name))
		}
	}
	written, toRun := revision.Written(s.Contents), wanted(s)
	for _, p := range s.Pods {
		d, id := sets[owner(p)], revision.ContentOf(p)
		if d == nil {
			continue
		}
		need("pod "+p.Name, d, id)
		policy := s.PolicyOf(d)
		if !revision.WithContent(policy) || !toRun[place{d.Name, p.Spec.NodeName}] {
			continue
		}
		now := written.Of(revision.Takes(policy.Spec.Content, revision.Named(&d.Spec.Template.Spec)))
		if id == "" || !values[id].Equal(now) {
			out = append(out, fmt.Sprintf("pod %s of %s has content %q, which is %s, and the objects hold %s",
				p.Name, d.Name, id, values[id], now))
		}
	}
	revisions(s, need)
	if swept {
		out = append(out, left(s)...)
	}
	return out
}

// wanted are the places that are to have a pod.
func wanted(s history.State) map[place]bool {
	out := map[place]bool{}
	for _, d := range s.Sets {
		for _, n := range s.Nodes {
			out[place{d.Name, n.Name}] = wants.Judge(d, n) == wants.ShouldRun
		}
	}
	return out
}

// revisions has the contents be needed of which rollouts speak.
func revisions(s history.State, need func(string, *appsv1.DaemonSet, string)) {
	for _, r := range s.Rollouts {
		for _, d := range s.Sets {
			if d.Name == r.Name && r.Labels[history.OwnerLabel] == string(d.UID) && s.PolicyOf(d) != nil {
				_, stable := revision.Split(r.Status.StableRevision)
				_, target := revision.Split(r.Status.TargetRevision)
				need("rollout "+r.Name, d, stable)
				need("rollout "+r.Name, d, target)
			}
		}
	}
}
