// Package conditions says in a DaemonSet's own conditions how far its change is, for tools that know neither rollouts
// nor OnDelete. It is pure. The other DaemonSet controller, which writes the rest of the status, leaves them alone.
package conditions

import (
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// types are those of the conditions.
var types = []appsv1.DaemonSetConditionType{v1alpha1.RolloutReconciling, v1alpha1.RolloutStalled}

// Of returns the conditions that a DaemonSet is to have; nil if it is not taken over. The rollout is its own, or nil,
// and hindered says why none of its pods may be deleted; "" if they may.
// Messages have no counts: each write has the other controller look at the whole DaemonSet.
func Of(ds *appsv1.DaemonSet, rollout *v1alpha1.DaemonSetRollout, hindered string) []appsv1.DaemonSetCondition {
	if !admit.Taken(ds) {
		return nil
	}
	if rollout == nil && find(ds.Status.Conditions, v1alpha1.RolloutReconciling) != nil {
		return ds.Status.Conditions // by them whoever makes the next rollout sees that one was deleted
	}
	reason, message := admit.NotSeen, "no controller has taken note of the last change yet"
	is := map[appsv1.DaemonSetConditionType]bool{v1alpha1.RolloutReconciling: true}
	if rollout != nil && rollout.Status.DaemonSetGeneration >= ds.Generation {
		s := &rollout.Status
		reason, message = string(s.Phase), says(s)
		of := rollouts.Conditions(s, nil, time.Time{})
		for _, t := range types {
			is[t] = meta.IsStatusConditionTrue(of, string(t))
		}
		if hindered != "" && s.Phase != v1alpha1.PhaseComplete {
			reason, message = admit.NotAsked, hindered
		}
	}
	var out []appsv1.DaemonSetCondition
	for _, t := range types {
		c := appsv1.DaemonSetCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
		if is[t] {
			c.Status = corev1.ConditionTrue
		}
		out = append(out, c)
	}
	return out
}

// says is where a rollout stands, in words.
func says(s *v1alpha1.DaemonSetRolloutStatus) string {
	for _, f := range s.FailedRevisions {
		if f.Revision == s.TargetRevision && f.Revision != s.StableRevision {
			return fmt.Sprintf("revision %s %s", f.Revision, f.Why)
		}
	}
	switch s.Phase {
	case v1alpha1.PhaseComplete:
		return fmt.Sprintf("revision %s is on every node that can have it", s.TargetRevision)
	case v1alpha1.PhaseProgressing, v1alpha1.PhaseSoaking, v1alpha1.PhaseWaitingForApproval, v1alpha1.PhaseOutsideWindow:
		return fmt.Sprintf("revision %s is at step %s", s.TargetRevision, s.Step)
	}
	return s.Message
}

// Patch is a strategic merge patch of the DaemonSet's status after which it has these conditions; nil if it has them.
// Those of others stay. It holds for the DaemonSet as it is given, so what has been given back since is left alone.
func Patch(ds *appsv1.DaemonSet, want []appsv1.DaemonSetCondition, now time.Time) ([]byte, error) {
	var changes []any
	for _, t := range types {
		have, next := find(ds.Status.Conditions, t), find(want, t)
		switch {
		case next == nil && have != nil:
			changes = append(changes, map[string]any{"$patch": "delete", "type": t})
		case next != nil && (have == nil || !same(*have, *next)):
			next.LastTransitionTime = metav1.NewTime(now)
			if have != nil && have.Status == next.Status {
				next.LastTransitionTime = have.LastTransitionTime
			}
			changes = append(changes, next)
		}
	}
	if changes == nil {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": ds.UID, "resourceVersion": ds.ResourceVersion},
		"status":   map[string]any{"conditions": changes},
	})
}

// find returns a copy of the condition of a type; nil if there is none.
func find(in []appsv1.DaemonSetCondition, t appsv1.DaemonSetConditionType) *appsv1.DaemonSetCondition {
	for _, c := range in {
		if c.Type == t {
			return &c
		}
	}
	return nil
}

func same(a, b appsv1.DaemonSetCondition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}
