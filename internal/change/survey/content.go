package survey

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/objects/pod"
)

// addDirect says that the node's pod has no copies though the policy makes content a part of revisions: it was made
// before that, or while nobody answered.
func (v *View) addDirect(st *Standing) {
	if v.Rules == nil || v.Rules.Content == nil || st.Pod == nil {
		return
	}
	switch names := v.direct(st.Pod); len(names) {
	case 0:
	case 1:
		st.add("its pod reads the author's object directly, until its turn: " + names[0])
	default:
		st.add("its pod reads the authors' objects directly, until its turn: " + Some(names))
	}
}

// direct names what a pod reads that is content, and of which it has no copy.
func (v *View) direct(p *corev1.Pod) (names []string) {
	if content.IDOf(p.Labels[content.RevisionLabel]) != "" {
		return nil
	}
	apart, known := v.namedWhole()
	for _, ref := range content.Refs(&p.Spec) {
		switch {
		case !v.Rules.Content.Takes(ref) || apart[ref]:
		case !known && v.Rules.Content.ByLabel():
			names = append(names, ref.String()+" (if no label of it says that it is excluded)")
		default:
			names = append(names, ref.String())
		}
	}
	return names
}

// namedWhole are the objects that pods of the newest content name themselves: they are none, as by their labels, which
// nobody reads here. False if there is no such pod yet.
func (v *View) namedWhole() (apart map[content.Ref]bool, known bool) {
	id := content.IDOf(v.Revision)
	if v.apart != nil || id == "" {
		return v.apart, len(v.apart) > 0
	}
	v.apart = map[content.Ref]bool{}
	for _, pods := range v.survey.byOwner[v.DaemonSet.UID] {
		for _, p := range pods {
			if content.IDOf(p.Labels[content.RevisionLabel]) != id {
				continue
			}
			v.apart[content.Ref{}] = true
			for _, ref := range content.Refs(&p.Spec) {
				v.apart[ref] = true
			}
			return v.apart, true
		}
	}
	return v.apart, false
}

// Readers are how many pods a DaemonSet has, and how many of them read the author's object itself: in volumes, which
// follow it, or only when a container of theirs starts.
type Readers struct{ AtOnce, AtStart, Pods int }

// All are those who read the object itself.
func (r Readers) All() int { return r.AtOnce + r.AtStart }

// Readers counts who of a DaemonSet's pods reads the author's object itself.
func (s *Survey) Readers(ds *appsv1.DaemonSet, ref content.Ref) (r Readers) {
	for _, pods := range s.byOwner[ds.UID] {
		for _, p := range pods {
			if pod.IsTerminal(p) {
				continue
			}
			r.Pods++
			if is, _, err := content.Shown(p); err == nil {
				p = is // where it was pointed at a copy as it runs, it reads that
			}
			switch {
			case content.Follows(&p.Spec, ref):
				r.AtOnce++
			case slices.Contains(content.Refs(&p.Spec), ref):
				r.AtStart++
			}
		}
	}
	return r
}
