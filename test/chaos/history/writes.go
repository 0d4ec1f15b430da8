package history

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// checkWrites finds acknowledged writes that are not in the history as they were
// answered, and changes of what users write that no user made.
func checkWrites(r Record, tracks map[types.UID]*track) (found []Violation) {
	report := func(revision int64, uid types.UID, format string, args ...any) {
		found = append(found, Violation{Rule: Writes, Revision: revision, Objects: []types.UID{uid}, Message: fmt.Sprintf(format, args...)})
	}
	byObject := map[types.UID][]Write{}
	unknown := map[string][]string{} // wishes of creations without an answer, by kind and name
	for _, w := range r.Writes {
		if w.UID == "" {
			unknown[w.Kind+" "+w.Name] = append(unknown[w.Kind+" "+w.Name], w.Wish)
			continue
		}
		byObject[w.UID] = append(byObject[w.UID], w)
		if !w.Acknowledged {
			continue
		}
		if text := missing(w, tracks[w.UID]); text != "" {
			report(w.Revision, w.UID, "%s", text)
		}
	}
	for _, t := range lives.InOrder(tracks) {
		uid := t.First().GetUID()
		for i := 1; i < len(t.Versions); i++ {
			is, was := t.Versions[i], t.Versions[i-1]
			if wish.Of(is.Object) == wish.Of(was.Object) || explained(byObject[uid], is) {
				continue
			}
			report(is.From, uid, "%s was changed by nobody's wish from %s to %s",
				is.Object.GetName(), wish.Of(was.Object), wish.Of(is.Object))
		}
		set, isSet := t.First().(*appsv1.DaemonSet)
		if isSet && !explained(byObject[uid], t.Versions[0]) && !slices.Contains(unknown["DaemonSet "+set.Name], wish.Of(set)) {
			report(t.Versions[0].From, uid, "DaemonSet %s was made by nobody, or is not what was asked for", set.Name)
		}
	}
	return found
}

// missing says what an object's history lacks of an acknowledged write, or nothing.
func missing(w Write, t *track) string {
	switch {
	case t == nil:
		return fmt.Sprintf("%s %s was acknowledged and is not in the history", w.Kind, w.Name)
	case w.Delete && t.Gone == 0 && t.Last().GetDeletionTimestamp() == nil:
		return fmt.Sprintf("the deletion of %s %s was acknowledged, and it was never deleted", w.Kind, w.Name)
	case w.Delete:
		return ""
	case t.Gone != 0 && w.Revision == t.Versions[len(t.Versions)-1].From:
		return "" // A change of an object that only waits to go takes it away.
	}
	if o := t.At(w.Revision); o == nil || wish.Of(o) != w.Wish {
		return fmt.Sprintf("a change of %s %s was acknowledged as %s, and the history has %s", w.Kind, w.Name, w.Wish, wishOf(o))
	}
	return ""
}

func wishOf(o metav1.Object) string {
	if o == nil {
		return "nothing"
	}
	return wish.Of(o)
}

// explained reports whether a user made the object so.
func explained(writes []Write, v version) bool {
	return slices.ContainsFunc(writes, func(w Write) bool {
		return !w.Delete && w.Wish == wish.Of(v.Object) && (w.Revision == v.From || !w.Acknowledged)
	})
}
