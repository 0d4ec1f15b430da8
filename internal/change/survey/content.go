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

// Readers are how many of a DaemonSet's pods read the author's object itself, of so many that it has.
func (s *Survey) Readers(ds *appsv1.DaemonSet, ref content.Ref) (n, of int) {
	for _, pods := range s.byOwner[ds.UID] {
		for _, p := range pods {
			if pod.IsTerminal(p) {
				continue
			}
			of++
			if slices.Contains(content.Refs(&p.Spec), ref) {
				n++
			}
		}
	}
	return n, of
}
