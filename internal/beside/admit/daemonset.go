package admit

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpdateStrategy is the annotation that keeps the author's update strategy, as JSON, of a DaemonSet that is stored with
// OnDelete because it follows a policy. It is the truth while it is there.
const UpdateStrategy = "everynode.io/update-strategy"

// MadeBy is the annotation of a pod of a DaemonSet under a policy that another account has made than the DaemonSet
// controller's, as far as we were told. It names the account.
const MadeBy = "everynode.io/made-by"

// Standing is how a DaemonSet, with the labels of the write, stands to policies.
type Standing uint8

// The standings. Frozen is a DaemonSet whose policy went while pods of another revision were left: it stays stored as
// it is, for kube-controller-manager would replace all of them at once.
const (
	Free Standing = iota
	Follows
	Frozen
)

// DaemonSetWrite is a write of a DaemonSet.
type DaemonSetWrite struct {
	// Old is what is stored; nil if it is created.
	Old, New *appsv1.DaemonSet
	Standing Standing
	// Manager is the field manager of the write, as its options say. They do not say whether it is an apply.
	Manager string
	// Returns tells that the controller itself writes, which gives a DaemonSet back by taking the annotation off.
	Returns bool
}

// Stored is how a DaemonSet is to be stored.
type Stored struct {
	// Patch is a JSON patch (RFC 6902); nil if the DaemonSet stays as it was written.
	Patch []byte
	// Warning is for whoever writes; "" if there is none.
	Warning string
	// Refusal says why the write is refused; "" if it is not.
	Refusal string
}

// DaemonSet decides how a DaemonSet is stored. What it stores it leaves as it is when it is written again.
func DaemonSet(w DaemonSetWrite) Stored {
	before, wasKept := keptBy(w.Old)
	if w.Returns && wasKept && !Taken(w.New) {
		author, err := read(before)
		if err != nil {
			return Stored{Refusal: err.Error()}
		}
		return patched(w.New, author, "")
	}
	if w.Standing == Free {
		return free(w.New)
	}
	written := w.New.Spec.UpdateStrategy
	kept, isKept := w.New.Annotations[UpdateStrategy]
	if w.Standing == Frozen && !isKept && !wasKept {
		return Stored{}
	}
	switch {
	case written.Type != appsv1.OnDeleteDaemonSetStrategyType:
		return keep(w.New, written)
	case written.RollingUpdate != nil:
		// What is stored has no rollingUpdate, so somebody set its fields and meant the strategy that he wrote before.
		return keep(w.New, appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: written.RollingUpdate,
		})
	case !isKept:
		return Stored{}
	case w.ownOnDelete():
		return patched(w.New, written, "")
	}
	_, err := read(kept)
	if err != nil {
		return Stored{Refusal: err.Error()}
	}
	return Stored{Warning: w.warning()}
}

// free gives a DaemonSet that follows no policy back as its author wrote it.
func free(ds *appsv1.DaemonSet) Stored {
	kept, isKept := ds.Annotations[UpdateStrategy]
	written := ds.Spec.UpdateStrategy
	switch {
	case !isKept:
		return Stored{}
	case written.Type != appsv1.OnDeleteDaemonSetStrategyType:
		return patched(ds, written, "")
	case written.RollingUpdate != nil:
		return patched(ds, appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: written.RollingUpdate,
		}, "")
	}
	author, err := read(kept)
	if err != nil {
		return Stored{Refusal: err.Error()}
	}
	return patched(ds, author, "")
}

// keep stores OnDelete, and the author's strategy beside it.
func keep(ds *appsv1.DaemonSet, author appsv1.DaemonSetUpdateStrategy) Stored {
	err := possible(author)
	if err != nil {
		return Stored{Refusal: fmt.Sprintf("spec.updateStrategy.rollingUpdate: %v", err)}
	}
	raw, err := json.Marshal(author)
	if err != nil {
		return Stored{Refusal: fmt.Sprintf("the update strategy cannot be kept: %v", err)}
	}
	out := patched(ds, appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, string(raw))
	if Surges(ds) {
		out.Warning = NoSurge
	}
	return out
}

// read is the strategy that an annotation keeps.
func read(kept string) (appsv1.DaemonSetUpdateStrategy, error) {
	var s appsv1.DaemonSetUpdateStrategy
	err := json.Unmarshal([]byte(kept), &s)
	if err != nil {
		return s, fmt.Errorf("annotation %s: %q is no update strategy: %w", UpdateStrategy, kept, err)
	}
	if s.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return s, fmt.Errorf("annotation %s: %q is not of type RollingUpdate", UpdateStrategy, kept)
	}
	err = possible(s)
	if err != nil {
		return s, fmt.Errorf("annotation %s: %q: %w", UpdateStrategy, kept, err)
	}
	return s, nil
}

// Taken reports whether a DaemonSet is stored with OnDelete because it follows a policy, and its author's strategy
// beside it.
func Taken(ds *appsv1.DaemonSet) bool {
	_, kept := ds.Annotations[UpdateStrategy]
	return kept
}

// AsWritten is a DaemonSet that follows a policy with its author's strategy, and any other one as it is. A surge is
// left out, for the other controller removes second pods.
func AsWritten(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	kept, taken := keptBy(ds)
	if !taken {
		return ds
	}
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		// Admission did not see the write: it is not taken yet.
		out := *ds
		out.Annotations = maps.Clone(ds.Annotations)
		delete(out.Annotations, UpdateStrategy)
		return &out
	}
	author, err := read(kept)
	if err != nil {
		return ds
	}
	out := *ds
	out.Spec.UpdateStrategy = WithoutSurge(author)
	return &out
}

// NoSurge is what the author of a surge is told.
const NoSurge = "maxSurge has no effect beside another DaemonSet controller, which removes second pods; " +
	"the limit is maxUnavailable, or 1"

// WithoutSurge is a strategy as it counts beside another controller.
func WithoutSurge(s appsv1.DaemonSetUpdateStrategy) appsv1.DaemonSetUpdateStrategy {
	if s.RollingUpdate != nil && s.RollingUpdate.MaxSurge != nil {
		s.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: s.RollingUpdate.MaxUnavailable}
	}
	return s
}

// Surges reports whether the author of a DaemonSet wants second pods.
func Surges(ds *appsv1.DaemonSet) bool {
	author := ds.Spec.UpdateStrategy
	kept, taken := keptBy(ds)
	if taken && author.Type == appsv1.OnDeleteDaemonSetStrategyType {
		written, err := read(kept)
		if err == nil {
			author = written
		}
	}
	surge := author.RollingUpdate
	return surge != nil && surge.MaxSurge != nil && surge.MaxSurge.String() != "0" && surge.MaxSurge.String() != "0%"
}

// keptBy is the strategy that is kept beside a DaemonSet, which may be nil.
func keptBy(ds *appsv1.DaemonSet) (string, bool) {
	if ds == nil {
		return "", false
	}
	kept, ok := ds.Annotations[UpdateStrategy]
	return kept, ok
}

// ownOnDelete reports whether this write says that the author himself wants OnDelete, and not merely repeats what is
// stored. What kubectl applied last counts where this write changed it: what an older apply said, a later edit may have
// overruled.
func (w DaemonSetWrite) ownOnDelete() bool {
	if w.isApply() {
		return held(w.New, w.Manager)["f:type"] != nil
	}
	applied := lastApplied(w.New)
	var said struct {
		Spec struct {
			UpdateStrategy struct {
				Type appsv1.DaemonSetUpdateStrategyType
			}
		}
	}
	err := json.Unmarshal([]byte(applied), &said)
	return err == nil && applied != lastApplied(w.Old) &&
		said.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

// lastApplied is what kubectl applied last, as JSON; "" if it never did. The DaemonSet may be nil.
func lastApplied(ds *appsv1.DaemonSet) string {
	if ds == nil {
		return ""
	}
	return ds.Annotations[corev1.LastAppliedConfigAnnotation]
}

// isApply reports whether this write is a server-side apply. The API server does not say of what kind a write is. But
// an apply that changes anything gives its manager's entry another time, and one that changes nothing leaves all as it
// is. Whoever applies also writes otherwise under the same name, such as to tidy up the fields of other managers, and
// says nothing about the strategy by that. An apply within the second of the one before is taken for such a write: it
// is heard when it is repeated.
func (w DaemonSetWrite) isApply() bool {
	now, before := entryOf(w.New, w.Manager), entryOf(w.Old, w.Manager)
	switch {
	case now == nil:
		return false
	case before == nil, !now.Time.Equal(before.Time):
		return true
	}
	return reflect.DeepEqual(w.Old, w.New)
}

// held are the fields of the update strategy that a manager holds by server-side apply, nil if it holds none of them.
func held(ds *appsv1.DaemonSet, manager string) object {
	e := entryOf(ds, manager)
	if e == nil || e.FieldsV1 == nil {
		return nil
	}
	all, err := decode(e.FieldsV1.GetRawBytes())
	if err != nil {
		return nil
	}
	return part(all, "f:spec", "f:updateStrategy")
}

// entryOf says what a manager holds of a DaemonSet, which may be nil, by server-side apply; nil if it never applied.
func entryOf(ds *appsv1.DaemonSet, manager string) *metav1.ManagedFieldsEntry {
	if ds == nil || manager == "" {
		return nil
	}
	at := slices.IndexFunc(ds.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
	if at < 0 {
		return nil
	}
	return &ds.ManagedFields[at]
}

// warning tells whoever changed the specification, and may have meant OnDelete, how to say so. It is no news to
// somebody who applies: what he applied says what he wants.
func (w DaemonSetWrite) warning() string {
	if w.Old == nil || w.isApply() || lastApplied(w.Old) != lastApplied(w.New) ||
		reflect.DeepEqual(w.Old.Spec, w.New.Spec) {
		return ""
	}
	return "this DaemonSet follows a RolloutPolicy; it keeps the update strategy in the annotation " + UpdateStrategy +
		". If you mean OnDelete, remove that annotation"
}

// patched is the patch that stores a strategy, and keeps the author's; "" keeps none. What is so already is left out.
func patched(ds *appsv1.DaemonSet, strategy appsv1.DaemonSetUpdateStrategy, kept string) Stored {
	var patch []step
	if !reflect.DeepEqual(ds.Spec.UpdateStrategy, strategy) {
		patch = append(patch, step{"add", "/spec/updateStrategy", strategy})
	}
	was, isKept := keptBy(ds)
	switch {
	case kept == "" && isKept:
		patch = append(patch, step{Op: "remove", Path: annotationPath(UpdateStrategy)})
	case kept != "" && kept != was:
		patch = append(patch, annotate(ds.Annotations, UpdateStrategy, kept))
	}
	if patch == nil {
		return Stored{}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return Stored{Refusal: fmt.Sprintf("the DaemonSet cannot be stored: %v", err)}
	}
	return Stored{Patch: raw}
}

// annotate is the step that gives an object with these annotations one more, or another value of it.
func annotate(have map[string]string, name, value string) step {
	if have == nil {
		return step{"add", "/metadata/annotations", map[string]string{name: value}}
	}
	return step{"add", annotationPath(name), value}
}

// annotationPath is where an annotation is, as a JSON pointer (RFC 6901).
func annotationPath(name string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
}

// NoteMaker is the JSON patch (RFC 6902) that notes on a pod with these annotations by which account it is made.
func NoteMaker(have map[string]string, account string) ([]byte, error) {
	return json.Marshal([]step{annotate(have, MadeBy, account)})
}
