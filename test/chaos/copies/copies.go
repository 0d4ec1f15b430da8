// Package copies judges what becomes of ConfigMaps that are content, from the history alone.
//
//   - A pod of a revision with content refers to copies of that content only, each of which is there from before the
//     pod until the pod is gone, or is no longer its DaemonSet's.
//   - A copy holds what the author's object held at some time before.
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
	// maps are the ConfigMaps of a name.
	maps  map[string][]*life
	found []history.Violation
}

// Check judges a record.
func Check(r history.Record) []history.Violation {
	j := &judge{lives: map[types.UID]*life{}, maps: map[string][]*life{}}
	for i := range r.Events {
		j.take(&r.Events[i])
	}
	values := map[string]bool{}
	for _, e := range r.Events {
		switch o := e.Object.(type) {
		case *corev1.ConfigMap:
			j.made(&e, o, values)
		case *corev1.Pod:
			if l := j.lives[o.UID]; l.from == e.Revision && metav1.GetControllerOfNoCopy(o) != nil {
				j.pod(l, o)
			}
		}
	}
	return j.found
}

func (j *judge) take(e *history.Event) {
	uid := e.Object.GetUID()
	l := j.lives[uid]
	if l == nil {
		l = &life{object: e.Object, from: e.Revision, to: forEver, leaves: forEver}
		j.lives[uid] = l
		if m, ok := e.Object.(*corev1.ConfigMap); ok {
			j.maps[m.Name] = append(j.maps[m.Name], l)
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

// made judges a copy when it is made; written is what the author's object has held so far.
func (j *judge) made(e *history.Event, m *corev1.ConfigMap, written map[string]bool) {
	switch value := revision.Value(m); {
	case revision.ByAuthor(m):
		written[value] = true
	case m.Labels[revision.ContentLabel] == revision.Copy && !e.Deleted && !written[value]:
		j.report(Made, e.Revision, []types.UID{m.UID}, "copy %s holds %s, which nobody has written", m.Name, value)
	}
}

// pod judges what a pod refers to, from its creation on.
func (j *judge) pod(l *life, p *corev1.Pod) {
	set := j.lives[owner(p)]
	if set == nil {
		return
	}
	id, until := revision.ContentOf(p), min(l.leaves, set.leaves)
	if until <= l.from {
		return
	}
	for _, name := range named(p) {
		if id == "" {
			if name != revision.Object {
				j.report(Refers, l.from, []types.UID{p.UID}, "pod %s has no content and refers to ConfigMap %s", p.Name, name)
			}
			continue
		}
		list := set.object.GetName() + "-" + id
		as, absent := j.listedAt(list, l.from).CopyOf(revision.Object)
		if as != name {
			j.report(Refers, l.from, append(j.all(list, name), p.UID),
				"pod %s of content %s refers to ConfigMap %s, which list %s does not name", p.Name, id, name, list)
			continue
		}
		if absent {
			continue // nothing of that name is there
		}
		if gap, ok := j.gap(name, l.from, until); ok {
			j.report(Early, gap, append(j.all(list, name), p.UID),
				"copy %s is not there, and pod %s refers to it, which was made at %d and is the DaemonSet's until %d",
				name, p.Name, l.from, until)
		}
	}
}

// named are the ConfigMaps that a pod refers to, each once.
func named(p *corev1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		if v := p.Spec.Volumes[i].ConfigMap; v != nil {
			names = append(names, v.Name)
		}
	}
	for i := range p.Spec.Containers {
		for _, from := range p.Spec.Containers[i].EnvFrom {
			if from.ConfigMapRef != nil {
				names = append(names, from.ConfigMapRef.Name)
			}
		}
		for _, v := range p.Spec.Containers[i].Env {
			if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil {
				names = append(names, v.ValueFrom.ConfigMapKeyRef.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// listedAt is the list of a name as it was at a revision; an empty one if there was none.
func (j *judge) listedAt(name string, at int64) *revision.List {
	for _, l := range j.maps[name] {
		if l.from <= at && at < l.to {
			list, _ := revision.Read(l.object.(*corev1.ConfigMap))
			return &list
		}
	}
	return &revision.List{}
}

func (j *judge) all(names ...string) (out []types.UID) {
	for _, name := range names {
		for _, l := range j.maps[name] {
			out = append(out, l.object.GetUID())
		}
	}
	return out
}

// gap is the first revision from one to before another at which there was no ConfigMap of a name.
func (j *judge) gap(name string, from, until int64) (at int64, ok bool) {
	for at = from; at < until; {
		i := slices.IndexFunc(j.maps[name], func(l *life) bool { return l.from <= at && at < l.to })
		if i < 0 {
			return at, true
		}
		at = j.maps[name][i].to
	}
	return 0, false
}

// place is a DaemonSet on a node.
type place struct{ set, node string }

// Unsettled says what is not as it should be in the end; swept: nor is a copy that nobody needs.
func Unsettled(s history.State, swept bool) (out []string) {
	values, sets := revision.Values(s.ConfigMaps), map[types.UID]*appsv1.DaemonSet{}
	for _, d := range s.Sets {
		sets[d.UID] = d
	}
	for _, m := range s.ConfigMaps {
		if is := owner(m); is != "" && sets[is] == nil {
			out = append(out, "ConfigMap "+m.Name+" belongs to a DaemonSet that is gone")
		}
	}
	need := func(who string, d *appsv1.DaemonSet, id string) {
		if _, known := values[id]; id != "" && !known {
			out = append(out, fmt.Sprintf("%s has content %s of %s, and its copies are gone", who, id, d.Name))
		}
	}
	now, toRun := revision.Written(s.ConfigMaps), wanted(s)
	for _, p := range s.Pods {
		d, id := sets[owner(p)], revision.ContentOf(p)
		if d == nil {
			continue
		}
		need("pod "+p.Name, d, id)
		follows := history.WithContent(s.PolicyOf(d)) && toRun[place{d.Name, p.Spec.NodeName}]
		if follows && (id == "" || values[id] != now) {
			out = append(out, fmt.Sprintf("pod %s of %s has content %q, which is %s, and the object holds %s",
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
