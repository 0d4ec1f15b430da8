package admit

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/approval"
	"github.com/everynode/everynode/internal/change/content"
)

// Move is what is to be done about how a DaemonSet is stored. In each case the controller writes nothing but the
// annotation, and admission the rest: so nobody but the author owns the update strategy.
type Move uint8

// The moves. Return gives a DaemonSet back whose policy is gone; Hold says why that has to wait.
const (
	Stay Move = iota
	Take
	Return
	Hold
)

// The reasons in a DaemonSet's conditions besides the phases of its rollout: the rollout does not speak of what is
// written yet, or the API server does not ask the webhook about the DaemonSet.
const (
	NotSeen  = "NotSeen"
	NotAsked = "NotAsked"
)

// Stand is how a DaemonSet stands when nobody writes it.
type Stand struct {
	Set *appsv1.DaemonSet
	// Selected tells that a policy selects it.
	Selected bool
	// Rollout is its own; nil if there is none.
	Rollout *v1alpha1.DaemonSetRollout
	// Newest is the hash of its template, "" while that is not known. Pods says how many there are of each revision.
	Newest string
	Pods   map[string]int
}

// Due decides what is to be done, and says for people why it has to wait.
func Due(s Stand) (Move, string) {
	taken, waits := Taken(s.Set), s.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	switch {
	case s.Selected && !waits:
		return Take, ""
	case s.Selected || !taken:
		return Stay, ""
	case s.Newest == "":
		return Hold, "the revision of its template is not known yet"
	case consented(s.Rollout, s.Newest):
		return Return, ""
	}
	l := Leaving{Newest: s.Newest, Pods: s.Pods}
	others, nodes := l.others()
	if nodes > 0 {
		return Hold, fmt.Sprintf("no policy selects it, and %d nodes have %s: if it were given back, all of them would get "+
			"%s at once; make a policy for it, or approve step %s", nodes, others, s.Newest, v1alpha1.WithoutPolicy)
	}
	if nodes = s.otherContent(); nodes > 0 {
		return Hold, fmt.Sprintf("no policy selects it, and %d nodes have another content than %s: if it were given back, "+
			"each would read that when its pod is next made; make a policy for it, or approve step %s", nodes,
			s.Rollout.Status.TargetRevision, v1alpha1.WithoutPolicy)
	}
	return Return, ""
}

// otherContent is on how many nodes there is a pod of the newest template whose content is another than the target's.
func (s *Stand) otherContent() (nodes int) {
	if s.Rollout == nil || content.IDOf(s.Rollout.Status.TargetRevision) == "" ||
		content.TemplateOf(s.Rollout.Status.TargetRevision) != s.Newest {
		return 0
	}
	for revision, n := range s.Pods {
		if content.IDOf(revision) != "" && revision != plain(s.Rollout.Status.TargetRevision) {
			nodes += n
		}
	}
	return nodes
}

// consented reports whether somebody lets the change go on without a policy.
func consented(r *v1alpha1.DaemonSetRollout, newest string) bool {
	if r == nil || content.TemplateOf(r.Status.TargetRevision) != newest {
		return false
	}
	a, _ := approval.Given(&r.Spec, &r.Status)
	return a != nil && a.Step == v1alpha1.WithoutPolicy && a.Digest == r.Status.TargetDigest
}

// Annotation is a merge patch by which a DaemonSet is taken, or given back.
func Annotation(ds *appsv1.DaemonSet, m Move) ([]byte, error) {
	var value any
	if m == Take {
		raw, err := json.Marshal(ds.Spec.UpdateStrategy)
		if err != nil {
			return nil, fmt.Errorf("write the update strategy of %s/%s down: %w", ds.Namespace, ds.Name, err)
		}
		value = string(raw)
	}
	return json.Marshal(object{"metadata": object{
		"uid": ds.UID, "resourceVersion": ds.ResourceVersion, "annotations": object{UpdateStrategy: value},
	}})
}

// GivingBack is a merge patch by which a DaemonSet is stored as its author wrote it, without admission's help.
func GivingBack(ds *appsv1.DaemonSet) ([]byte, error) {
	kept, _ := keptBy(ds)
	author, err := read(kept)
	if err != nil {
		return nil, fmt.Errorf("DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return json.Marshal(object{
		"metadata": object{"uid": ds.UID, "resourceVersion": ds.ResourceVersion, "annotations": object{UpdateStrategy: nil}},
		"spec":     object{"updateStrategy": author},
	})
}

// WithoutStrategy is a merge patch that takes the annotation off an object.
func WithoutStrategy() []byte {
	return []byte(`{"metadata":{"annotations":{"` + UpdateStrategy + `":null}}}`)
}
